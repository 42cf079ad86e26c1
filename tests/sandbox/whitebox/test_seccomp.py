from __future__ import annotations

import platform
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.whitebox.locked import IDENTITIES, inside, only_linux

identities = pytest.mark.parametrize("user", IDENTITIES)
x86_only = pytest.mark.skipif(platform.machine() != "x86_64", reason="other machines have one way in")


@only_linux
class TestDenied:
    @identities
    def test_what_is_denied_is_denied_for_real(self, user: int | None) -> None:
        answers = inside(
            """
names = list(seccomp._numbers(seccomp._DENIED, MACHINE))
filtered()
report({name: call(name, -1, -1, -1, -1, -1, -1) for name in names})
""",
            user,
        )
        assert len(answers) > 60
        assert set(answers.values()) == {"EPERM"}

    def test_what_is_unknown_is_not_there(self) -> None:
        answers = inside("""
filtered()
names = ["clone3", "openat2", "statmount", "listmount", 470, 471, 511, 547, 4000, -1]
report({name: call(name, -1, -1, -1, -1, -1, -1) for name in names})
""")
        assert set(answers.values()) == {"ENOSYS"}

    @identities
    def test_no_new_namespaces(self, user: int | None) -> None:
        flags = [0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]
        answers = inside(
            f"""
filtered()
answers = []
for flag in {flags}:
    for high in (0, 1 << 40):
        answers.append(call("clone", high | flag | signal.SIGCHLD, 0, 0, 0, 0))
        answers.append(call("clone", high | flag | 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0))
answers.append(call("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0))
report(answers)
""",
            user,
        )
        assert set(answers) == {"EPERM"}
        assert len(answers) == 29

    def test_what_it_starts_is_under_it_too(self) -> None:
        answers = inside("""
filtered()
words = subprocess.run(["grep", "Seccomp:", "/proc/self/status"], stdout=subprocess.PIPE, check=True).stdout.split()
again = status_of(lambda: os._exit(call("unshare", 0x10000000) == "EPERM"))
report([words[1].decode(), os.WEXITSTATUS(again)])
""")
        assert answers == ["2", 1]

    def test_all_threads_are_under_it(self) -> None:
        assert inside("""
gate, answers = threading.Event(), []
thread = threading.Thread(target=lambda: (gate.wait(), answers.append(call("unshare", 0))))
thread.start()
filtered()
gate.set()
thread.join()
report(answers)
""") == ["EPERM"]

    def test_a_filter_of_ones_own_loosens_nothing(self) -> None:
        # The second one would ask a listener, which could let a call through; here, nobody would answer.
        answers = inside("""
filtered()
allow, notify, listener = 0x7FFF0000, 0x7FC00000, 8
seccomp.install(struct.pack("<HBBI", 6, 0, 0, allow))
steps = (0x20, 0, 0, 0), (0x15, 0, 1, NUMBERS["ptrace"]), (6, 0, 0, notify), (6, 0, 0, allow)
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
installed = call(317 if MACHINE == "x86_64" else 277, 1, listener, struct.pack("@HP", 4, ctypes.addressof(code)))
signal.alarm(10)
report([installed, call("ptrace", 0, 0, 0, 0), call("unshare", 0x10000000)])
""")
        assert answers == ["", "EPERM", "EPERM"]

    def test_personality_only_as_it_is(self) -> None:
        answers = inside("""
filtered()
report([call("personality", value) for value in (0, 0xFFFFFFFF, 0x0040000, 0x0400000, 8, 0x100000008)])
""")
        assert answers == ["", "", *["EPERM"] * 4]

    @pytest.mark.parametrize("high", [0, 1 << 32])
    def test_no_input_is_pushed_into_a_terminal(self, high: int) -> None:
        answers = inside(f"""
import termios
ours, theirs = pty.openpty()
filtered()
termios.tcgetattr(theirs)
letter = ctypes.create_string_buffer(b"x")
report([call("ioctl", theirs, {high} | request, letter) for request in (0x5412, 0x541C, 0x5423, 0x5413)])
""")
        assert answers[:3] == ["EPERM"] * 3
        assert answers[3] == ""


@only_linux
@x86_only
class TestOtherWaysIn:
    def test_the_32_bit_entry_is_killed(self) -> None:
        # getpid there is number 20; a kernel without that entry kills as well, with another signal.
        status = inside("""
filtered()
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
enter = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
report(status_of(enter))
""")
        assert status & 0x7F in (signal.SIGSYS, signal.SIGSEGV)

    @pytest.mark.parametrize("number", [39, 520])
    def test_x32_numbers_are_killed(self, number: int) -> None:
        status = inside(f"filtered()\nreport(status_of(lambda: call(0x40000000 + {number}, 0, 0, 0, 0)))")
        assert status & 0x7F == signal.SIGSYS


@only_linux
class TestSetIdFiles:
    def test_nothing_is_made_to_run_as_its_owner(self, tmp_path: Path) -> None:
        answers = inside(
            """
open("file", "w").close()
fd = os.open("file", os.O_RDWR)
filtered()
AT = -100
create, temporary = os.O_CREAT | os.O_WRONLY, os.O_TMPFILE | os.O_WRONLY
answers = []
for bits in (0o4755, 0o2755, 0o6755, 0o4000):
    for name, *arguments in [
        ("chmod", b"file", bits), ("fchmod", fd, bits), ("fchmodat", AT, b"file", bits),
        ("fchmodat2", AT, b"file", bits, 0), ("openat", AT, b"new", create, bits),
        ("openat", AT, b".", temporary, bits), ("open", b"new", create, bits), ("creat", b"new", bits),
        ("mknod", b"new", 0o100000 | bits, 0), ("mknodat", AT, b"new", 0o100000 | bits, 0),
    ]:
        if name in NUMBERS:
            answers.append(call(name, *arguments))
    answers += [attempt(os.chmod, "file", bits), attempt(os.open, "new", create, bits)]
report([answers, os.listdir("."), os.stat("file").st_mode & 0o7000])
""",
            cwd=tmp_path,
        )
        assert set(answers[0]) == {"EPERM"}
        assert answers[1:] == [["file"], 0]

    def test_other_modes_are_ones_own_business(self, tmp_path: Path) -> None:
        answers = inside(
            """
filtered()
report([
    attempt(lambda: os.close(os.open("new", os.O_CREAT | os.O_WRONLY, 0o1777))),
    attempt(os.chmod, "new", 0o1755),
    attempt(os.mkfifo, "fifo", 0o600),
    attempt(os.mkdir, "folder", 0o1777),
    # Without O_CREAT, the mode is not even read.
    call("openat", -100, b"new", os.O_RDONLY, 0o6777),
])
""",
            cwd=tmp_path,
        )
        assert answers == [""] * 5


@only_linux
class TestSockets:
    @identities
    def test_without_network_there_are_no_sockets(self, user: int | None) -> None:
        answers = inside(
            """
filtered()
kinds = [kind | flags for kind in range(11) for flags in (0, socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)]
report([call("socket", family, kind, 0) for family in range(50) for kind in kinds])
""",
            user,
        )
        assert set(answers) == {"EPERM"}

    def test_pairs_can_be_made_that_lead_nowhere_else(self) -> None:
        answers = inside("""
filtered()
pair = (ctypes.c_int * 2)()
report([call("socketpair", family, kind, 0, pair) for family in (1, 2, 10, 16) for kind in (1, 5, 1 | 0x80000, 2, 3)])
""")
        assert answers == ["", "", "", "EPERM", "EPERM", *["EPERM"] * 15]

    @pytest.mark.parametrize("network", [True, False])
    def test_no_pair_reaches_a_socket_of_the_host(self, network: bool) -> None:
        # A datagram socket of a pair can: by `sendto`, and by `connect`.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
            host.bind("\0coderoom-test-of-a-filter" + str(id(host)))
            answers = inside(f"""
name = {host.getsockname()!r}
filtered(network={network})
answers = [attempt(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)]
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    attempt(one.sendto, b"out", name)
    answers.append(bool(attempt(one.connect, name)))
    other.close()
    answers.append(bool(attempt(one.connect, name)))
report(answers)
""")
            assert answers == ["EPERM", True, True, True, True]
            host.setblocking(False)
            with pytest.raises(BlockingIOError):
                host.recv(1)

    @identities
    def test_with_network_there_are_tcp_and_udp(self, user: int | None) -> None:
        answers = inside(
            """
filtered(network=True)
flags = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
fine = [call("socket", family, kind, protocol) for family in (2, 10)
        for kind, protocol in ((1, 0), (2, 0), (1, 6), (2, 17), (1 | flags, 0), (2 | flags, 0))]
wrong = [call("socket", family, kind, 0) for family in range(50) if family not in (2, 10) for kind in (1, 2, 3)]
wrong += [call("socket", family, kind, protocol) for family in (2, 10)
          for kind, protocol in ((3, 1), (3, 255), (4, 0), (5, 132), (1, 132), (1, 256), (2, 115), (2, 136), (10, 0))]
report([fine, wrong])
""",
            user,
        )
        assert set(answers[0]) <= {"", "EAFNOSUPPORT"}
        assert answers[0][:6] == [""] * 6
        assert set(answers[1]) == {"EPERM"}

    def test_with_network_names_are_found_and_connections_made(self) -> None:
        answers = inside("""
filtered(network=True)
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(("localhost", server.getsockname()[1]), timeout=10)
there = server.accept()[0]
there.sendall(b"hello")
report([client.recv(5).decode(), bool(socket.getaddrinfo("localhost", 80))])
""")
        assert answers == ["hello", True]

    def test_local_ones_if_asked_for(self) -> None:
        answers = inside("""
filtered(local_sockets=True)
with multiprocessing.Manager() as manager:
    shared = manager.dict(answer=42)
    value = shared["answer"]
report([value, attempt(socket.socketpair, type=socket.SOCK_DGRAM), call("socket", 2, 1, 0), call("socket", 16, 3, 0)])
""")
        assert answers == [42, "", "EPERM", "EPERM"]


@only_linux
class TestOwnPidOnly:
    @pytest.fixture
    def victim(self) -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen(["sleep", "300"], start_new_session=True) as process:
            yield process
            process.kill()

    ATTACKS = """
os.setsid()
ours, theirs = socket.socketpair()
pidfd = os.pidfd_open(victim)
info = ctypes.create_string_buffer(struct.pack("=iii", 15, 0, -1), 128)
limit = struct.pack("QQ", 1, 1)
filtered(own_pid_only=os.getpid(){options})
signals = [
    call("kill", victim, 15), call("kill", -victim, 15), call("kill", -1, 0), call("kill", 1, 0),
    call("kill", victim, 0), call("kill", victim | 1 << 32, 15), call("tkill", victim, 15),
    call("tgkill", victim, victim, 15), call("rt_sigqueueinfo", victim, 15, info),
    call("rt_tgsigqueueinfo", victim, victim, 15, info), call("pidfd_send_signal", pidfd, 15, None, 0),
    call("fcntl", ours.fileno(), 8, victim), call("fcntl", ours.fileno(), 15, struct.pack("ii", 1, victim)),
    call("ioctl", ours.fileno(), 0x8901, struct.pack("i", victim)),
    call("ioctl", ours.fileno(), 0x8902, struct.pack("i", victim)),
]
others = [
    call("prlimit64", victim, 0, limit, None), call("setpriority", 0, victim, 19), call("setpriority", 2, 0, 19),
    call("setpriority", 1, 0, 19), call("ioprio_set", 1, victim, 3 << 13), call("ioprio_set", 3, 0, 3 << 13),
    call("sched_setscheduler", victim, 5, struct.pack("i", 0)), call("sched_setparam", victim, struct.pack("i", 0)),
    call("sched_setattr", victim, bytes(48), 0), call("process_vm_readv", victim, None, 0, None, 0, 0),
]
"""

    def test_nobody_else_is_ended(self, victim: subprocess.Popen[bytes]) -> None:
        body = f"victim = {victim.pid}\n" + self.ATTACKS.replace("{options}", "") + "report([signals, others])"
        answers = inside(body)
        assert set(answers[0]) == set(answers[1]) == {"EPERM"}
        assert victim.poll() is None

    def test_where_landlock_keeps_signals_in_the_rest_is_still_denied(self, victim: subprocess.Popen[bytes]) -> None:
        body = self.ATTACKS.replace("{options}", ", signals=False").replace(", 15)", ", 0)")
        answers = inside(f"victim = {victim.pid}\n{body}report([call('kill', victim, 0), others])")
        assert answers[0] == ""
        assert set(answers[1]) == {"EPERM"}

    def test_it_may_do_all_that_to_itself(self) -> None:
        answers = inside("""
os.setsid()
me = os.getpid()
filtered(own_pid_only=me)
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
os.kill(me, signal.SIGUSR1)
os.kill(0, signal.SIGUSR1)
os.killpg(me, signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
os.nice(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
report([len(heard), resource.getrlimit(resource.RLIMIT_NOFILE)[0]])
""")
        assert answers == [4, 100]


@only_linux
def test_a_filter_needs_no_new_privileges() -> None:
    assert (
        inside("""
linux.keep_capabilities()
report(attempt(seccomp.install, seccomp.build_filter(MACHINE, False)))
""")
        == "EACCES"
    )
