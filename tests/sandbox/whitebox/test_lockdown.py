from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from coderoom.sandbox.guest.isolation import landlock, lockdown
from tests.sandbox.whitebox.locked import IDENTITIES, inside, only_linux

pytestmark = only_linux
identities = pytest.mark.parametrize("user", IDENTITIES)

MIB = 1024 * 1024


def locked(body: str, user: int | None = None, cwd: Path | None = None, before: str = "", **settings: Any) -> Any:
    """Report what a script says that has locked itself down; without settings, as a room would."""
    usual: dict[str, Any] = {
        "network": False,
        "memory_bytes": 512 * MIB,
        "open_files": 256,
        "file_bytes": MIB,
        "read": ["/"],
        "write": ["/tmp", "/dev/shm", str(cwd or "/tmp")],
    }
    data = json.dumps({**usual, **settings})
    script = (
        f"settings = json.loads({data!r})\n{before}\nlockdown.Prepared(lockdown.Lockdown(**settings)).apply()\n{body}"
    )
    return inside(script, user, cwd)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder that another user can write to too."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o777)
    return tmp_path


class TestLimits:
    @identities
    def test_limits_are_as_asked_and_for_good(self, user: int | None) -> None:
        answers = locked(
            """
wanted = {"FSIZE": 1 << 20, "NOFILE": 256, "CORE": 1, "MEMLOCK": 1 << 16, "MSGQUEUE": 0, "SIGPENDING": 1024,
          "RTPRIO": 0, "NICE": 0, "NPROC": 4000, "DATA": 512 << 20}
def more(limit):
    try:
        resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except ValueError:
        return "refused"
limits = {name: getattr(resource, "RLIMIT_" + name) for name in wanted}
report([
    {name: resource.getrlimit(limit) for name, limit in limits.items()} == {n: (v, v) for n, v in wanted.items()},
    {more(limit) for limit in limits.values()} == {"refused"},
    resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY,
])
""",
            user,
            processes=4000,
        )
        assert answers == [True, True, True]

    def test_what_is_lower_already_stays_so(self) -> None:
        before = "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))"
        assert locked("report(resource.getrlimit(resource.RLIMIT_NOFILE))", before=before) == [100, 100]

    @identities
    @pytest.mark.parametrize("shared", [True, False])
    def test_memory_runs_out(self, user: int | None, shared: bool) -> None:
        answers = locked(
            f"""
kept = []
def take():
    flags = mmap.MAP_ANONYMOUS | (mmap.MAP_SHARED if {shared} else mmap.MAP_PRIVATE)
    kept.append(mmap.mmap(-1, 64 << 20, flags=flags))
answers = [attempt(take) for _ in range(40)]
del kept[:]
try:
    bytearray(600 << 20)
except MemoryError:
    answers.append("MemoryError")
report([answers.count(""), answers[-2:]])
""",
            user,
        )
        assert 1 <= answers[0] <= 16
        assert answers[1] == ["ENOMEM", "MemoryError"]

    @pytest.mark.parametrize("address_space", [True, False])
    def test_reserving_addresses_is_bounded_if_asked_for(self, address_space: bool) -> None:
        answers = locked(
            "report(attempt(mmap.mmap, -1, 16 << 30, flags=mmap.MAP_ANONYMOUS | mmap.MAP_PRIVATE, prot=0))",
            address_space=address_space,
        )
        assert answers == ("ENOMEM" if address_space else "")

    def test_a_limit_below_what_is_there_is_an_error_that_says_so(self) -> None:
        answer = inside("""
kept = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_ANONYMOUS | mmap.MAP_PRIVATE)
try:
    lockdown.Prepared(lockdown.Lockdown(network=False, memory_bytes=32 << 20, open_files=64, file_bytes=4096)).apply()
except OSError as error:
    report(str(error))
""")
        assert "33554432 bytes" in answer
        assert "preload" in answer

    def test_files_grow_no_further(self, tmp_path: Path) -> None:
        answers = locked(
            """
with open("file", "wb", buffering=0) as file:
    written = file.write(bytes(3 << 20))
    report([written, attempt(file.write, b"more")])
""",
            cwd=tmp_path,
        )
        assert answers == [MIB, "EFBIG"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="the limit counts all processes of the user, and there are others")
    def test_processes_run_out(self) -> None:
        answers = locked(
            """
pids = []
def fork():
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    pids.append(pid)
answers = [attempt(fork) for _ in range(12)]
try:
    threading.Thread(target=int).start()
except RuntimeError:
    answers.append("no thread")
for pid in pids:
    os.kill(pid, signal.SIGKILL)
report([answers.count(""), answers[-2:]])
""",
            user=0x7A5C32,
            processes=8,
        )
        assert answers == [7, ["EAGAIN", "no thread"]]

    def test_a_crash_leaves_nothing(self, tmp_path: Path) -> None:
        status = locked("report(status_of(lambda: ctypes.string_at(1)))", cwd=tmp_path)
        assert status == signal.SIGSEGV  # Without the bit that tells of a core file.
        assert list(tmp_path.iterdir()) == []


class TestPrivileges:
    @identities
    def test_none_are_left(self, user: int | None) -> None:
        answers = locked(
            """
wanted = ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp")
def status():
    with open("/proc/self/status") as file:
        return [line.split()[1].lstrip("0") for line in file if line.startswith(wanted)]
script = "grep -E '^(%s)' /proc/self/status" % "|".join(name + ":" for name in wanted)
child = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
report([status(), [line.split()[1].lstrip("0") for line in child]])
""",
            user,
        )
        # The capabilities, the privileges, and the filter; a process that is started has no more.
        assert answers[0][:6] == answers[1][:6] == ["", "", "", "", "1", "2"]

    @identities
    def test_none_come_back(self, user: int | None) -> None:
        answers = locked(
            """
report([
    attempt(os.setuid, 0 if os.getuid() else 1), attempt(os.setgroups, [0]), attempt(os.chroot, "/"),
    attempt(os.chown, "/tmp", 1, 1), attempt(os.mknod, "/tmp/coderoom-device", 0o20600, os.makedev(1, 3)),
    bool(attempt(linux.prctl, 24, 1)), bool(attempt(linux.prctl, 28, 0)),
])
""",
            user,
        )
        assert set(answers[:5]) == {"EPERM"} or answers[4] == "EACCES"
        assert answers[5:] == [True, True]

    def test_a_second_thread_is_refused(self) -> None:
        # It would keep its privileges.
        answer = inside("""
gate = threading.Event()
threading.Thread(target=gate.wait, daemon=True).start()
settings = dict(network=False, memory_bytes=1 << 30, open_files=64, file_bytes=4096)
report(attempt(lockdown.Prepared(lockdown.Lockdown(**settings)).apply))
""")
        assert answer == "EBUSY"


class TestPrepared:
    @identities
    @pytest.mark.parametrize("settled", [True, False])
    def test_each_fork_applies_it(self, user: int | None, settled: bool, work: Path) -> None:
        answers = inside(
            f"""
settings = dict(network=False, memory_bytes=1 << 29, open_files=64, file_bytes=4096, read=["/usr", "/proc"])
prepared = lockdown.Prepared(lockdown.Lockdown(write=["."], **settings))
def apply():
    prepared.apply()
    denied = [call("unshare", 0), attempt(os.listdir, "/etc"), attempt(socket.socket)]
    expected = ["EPERM", "EACCES" if prepared.landlock_abi else "", "EPERM"]
    bounds = {{resource.getrlimit(limit) for limit in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE)}}
    assert bounds == {{(1 << 29, 1 << 29), (4096, 4096)}}
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    os._exit(0 if denied == expected and attempt(os.listdir, ".") == "" else 1)
if {settled}:
    prepared.settle()
answers = [status_of(apply) for _ in range(3)]
report([answers, attempt(os.listdir, "/etc"), attempt(socket.socket)])
""",
            user,
            work,
        )
        assert answers == [[0, 0, 0], "", ""]

    def test_it_comes_with_json(self) -> None:
        settings = lockdown.Lockdown(network=True, memory_bytes=1, open_files=3, file_bytes=4, write=["/tmp"])
        assert lockdown.Lockdown(**json.loads(json.dumps(settings._asdict()))) == settings
        with pytest.raises(TypeError, match="netwrok"):
            lockdown.Lockdown(**{**settings._asdict(), "netwrok": True})

    def test_own_pid_only_is_for_the_one_who_applies_it(self) -> None:
        answers = inside("""
settings = dict(network=False, memory_bytes=1 << 29, open_files=64, file_bytes=4096, own_pid_only=True, read=["/"])
prepared = lockdown.Prepared(lockdown.Lockdown(**settings))
keeper = os.getpid()
reading, writing = os.pipe()
def apply():
    prepared.apply()
    outcomes = [call("kill", keeper, 0), call("prlimit64", keeper, 0, None, None)]
    os.kill(os.getpid(), 0)
    os.kill(0, 0)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    outcomes.append(attempt(child.kill))
    child.stdin.close()
    child.wait()
    os.write(writing, json.dumps([outcomes, os.getsid(0) == os.getpid()]).encode())
    os._exit(0)
report([status_of(apply), *json.loads(os.read(reading, 1000))])
""")
        own_child = "" if landlock.abi() >= 6 else "EPERM"
        assert answers == [0, ["EPERM", "EPERM", own_child], True]

    def test_without_a_filter_or_landlock_the_rest_still_holds(self) -> None:
        answers = locked(
            "report([attempt(socket.socket), attempt(os.listdir, '/'), attempt(os.chroot, '/')])",
            use_seccomp=False,
            read=None,
        )
        assert answers == ["", "", "EPERM"]


class TestOrdinaryThings:
    @identities
    def test_they_work(self, user: int | None, work: Path) -> None:
        answers = locked(
            """
def pool():
    with multiprocessing.get_context("fork").Pool(2) as workers:
        assert workers.map(abs, [-1, -2]) == [1, 2]
def many():
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(abs, range(-50, 0))) == list(range(50, 0, -1))
async def asynchronous():
    process = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
    assert (await process.communicate())[0] == b"hello\\n"
    await asyncio.to_thread(time.sleep, 0)
def pair():
    one, other = socket.socketpair()
    one.sendall(b"hello")
    assert other.recv(5) == b"hello"
def too_long():
    try:
        subprocess.run(["sleep", "300"], timeout=0.1)
    except subprocess.TimeoutExpired:
        pass
def temporary():
    with tempfile.TemporaryDirectory() as folder, open(folder + "/x", "w") as file:
        file.write("x")
    with tempfile.TemporaryFile() as file:
        os.close(os.open("/proc/self/fd/%d" % file.fileno(), os.O_RDWR))
def shared():
    queue = multiprocessing.get_context("fork").Queue()
    queue.put(42)
    assert queue.get(timeout=10) == 42
    queue.close()
    value = multiprocessing.get_context("fork").Value("i", 3)
    with value.get_lock():
        value.value += 1
def signals():
    heard = []
    signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    while not heard:
        time.sleep(0.01)
things = {
    "run": lambda: subprocess.run(["/bin/true"], check=True), "pool": pool, "threads": many, "timeout": too_long,
    "asyncio": lambda: asyncio.run(asynchronous()), "pair": pair, "temporary": temporary, "shared": shared,
    "shell": lambda: subprocess.run("x=$(echo a | cat); test $x = a", shell=True, check=True), "signals": signals,
    "fork": lambda: 1 / (status_of(lambda: os._exit(3)) == 3 << 8), "nice": lambda: os.nice(1),
    "affinity": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
}
failed = {}
for name, thing in things.items():
    try:
        thing()
    except Exception as error:
        failed[name] = repr(error)
report(failed)
""",
            user,
            work,
        )
        assert answers == {}

    @pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="numpy is not installed")
    def test_so_does_numpy_which_was_imported_before(self) -> None:
        # Its threads are gone in a fork, and come back when they are needed.
        answers = inside("""
import numpy
square = numpy.ones((300, 300))
square @ square
settings = dict(network=False, memory_bytes=1 << 30, open_files=64, file_bytes=4096)
prepared = lockdown.Prepared(lockdown.Lockdown(**settings))
def calculate():
    prepared.apply()
    os._exit(0 if (square @ square)[0, 0] == 300 and call("unshare", 0) == "EPERM" else 1)
report(status_of(calculate))
""")
        assert answers == 0

    @pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
    def test_so_does_node_without_a_bound_on_addresses(self) -> None:
        program = "setTimeout(() => require('child_process').exec('echo hi', (e, out) => console.log(out.trim())), 1)"
        answers = locked(
            f"""
done = subprocess.run(["node", "-e", {program!r}], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
report([done.returncode, done.stdout.decode()])
""",
            address_space=False,
        )
        assert answers == [0, "hi\n"]
