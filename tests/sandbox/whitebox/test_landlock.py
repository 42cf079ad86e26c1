from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coderoom.sandbox.guest.isolation import landlock
from tests.sandbox.whitebox.locked import IDENTITIES, inside, only_linux

ABI = landlock.abi() if sys.platform == "linux" else 0

pytestmark = only_linux
identities = pytest.mark.parametrize("user", IDENTITIES)


def needs(abi: int) -> pytest.MarkDecorator:
    return pytest.mark.skipif(abi > ABI, reason=f"Landlock here is of ABI {ABI}, not {abi}")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a part to read, one to write, and one that is out of reach; everybody's, but for Landlock."""
    folder = tmp_path
    while folder.stat().st_mode & 0o005 != 0o005:
        folder.chmod(0o777)
        folder = folder.parent
    tmp_path.chmod(0o777)
    for name in ("read", "write", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
        (tmp_path / name / "file").chmod(0o777)
        (tmp_path / name).chmod(0o777)
    return tmp_path


@pytest.fixture
def outside(user: int | None) -> Iterator[int]:
    """Another process of the same user."""
    with subprocess.Popen(["sleep", "300"], user=user, extra_groups=[] if user else None) as process:
        yield process.pid
        assert process.poll() is None
        process.kill()


RESTRICT = """
no_new_privileges()
restrict(["/usr", "/lib", "/lib64", "/bin", "/proc", "read"], ["write"])
"""


def can(path: str, flags: str) -> str:
    return f"attempt(lambda: os.close(os.open({path!r}, {flags}, 0o600)))"


def test_without_landlock_nothing_is_done() -> None:
    # As on a kernel without it: rules of ABI 0.
    landlock.Ruleset(0, -1).enforce()


def test_the_abi_is_that_of_the_kernel() -> None:
    assert ABI >= 0
    answers = inside("no_new_privileges()\nreport([restrict([], []), landlock.abi()])")
    assert answers == [ABI, ABI]


@needs(1)
class TestFiles:
    @identities
    def test_what_may_be_read_can_be_read_and_executed_only(self, place: Path, user: int | None) -> None:
        (place / "read" / "program").write_text("#!/bin/sh\nexit 3\n")
        (place / "read" / "program").chmod(0o755)
        answers = inside(
            RESTRICT
            + f"""
report([
    {can("read/file", "os.O_RDONLY")}, attempt(os.listdir, "read"),
    os.waitstatus_to_exitcode(os.system("read/program")), {can("read/file", "os.O_WRONLY")},
    {can("read/new", "os.O_CREAT")}, attempt(os.unlink, "read/file"), attempt(os.mkdir, "read/folder"),
    attempt(os.rename, "read/file", "read/other"), attempt(os.symlink, "x", "read/link"),
    attempt(os.mkfifo, "read/fifo"),
])
""",
            user,
            place,
        )
        assert answers == ["", "", 3, *["EACCES"] * 7]

    @needs(3)
    def test_what_may_only_be_read_cannot_be_truncated(self, place: Path) -> None:
        answers = inside(f"{RESTRICT}\nreport([attempt(os.truncate, 'read/file', 0)])", cwd=place)
        assert answers == ["EACCES"]

    @needs(3)
    @identities
    def test_what_may_be_written_can_be_changed_at_will(self, place: Path, user: int | None) -> None:
        answers = inside(
            RESTRICT
            + f"""
tempfile.TemporaryFile(dir="write").close()
report([
    {can("write/file", "os.O_RDWR | os.O_TRUNC")}, attempt(os.truncate, "write/file", 10),
    attempt(os.makedirs, "write/a/b"), attempt(os.rename, "write/file", "write/a/b/file"),
    attempt(os.link, "write/a/b/file", "write/link"), attempt(os.symlink, "link", "write/symlink"),
    {can("write/symlink", "os.O_RDWR")}, attempt(os.mkfifo, "write/fifo"), attempt(os.unlink, "write/fifo"),
    attempt(os.unlink, "write/a/b/file"), attempt(os.removedirs, "write/a/b"), attempt(os.listdir, "write"),
])
""",
            user,
            place,
        )
        assert answers == [""] * 12

    @identities
    def test_the_rest_is_out_of_reach(self, place: Path, user: int | None) -> None:
        answers = inside(
            RESTRICT
            + f"""
report([
    {can("out/file", "os.O_RDONLY")}, {can("out/file", "os.O_WRONLY")}, {can("out/new", "os.O_CREAT")},
    {can("/etc/passwd", "os.O_RDONLY")}, attempt(os.listdir, "out"), attempt(os.listdir, "/"),
    attempt(os.execv, "out/file", ["file"]), attempt(os.unlink, "out/file"), {can(".", "os.O_RDONLY")},
])
""",
            user,
            place,
        )
        assert set(answers) == {"EACCES"}

    @identities
    def test_no_detour_leads_out(self, place: Path, user: int | None) -> None:
        (place / "write" / "before").symlink_to(place / "out" / "file")
        answers = inside(
            f"""
place = {str(place)!r}
folder, path = os.open("out", os.O_RDONLY), os.open("out/file", os.O_PATH)
root = os.open("/", os.O_PATH)
{RESTRICT}
os.symlink(place + "/out/file", "write/after")
tries = [
    "write/before", "write/after", "write/../out/file", "/proc/self/root" + place + "/out/file",
    "/proc/self/cwd/out/file", "/proc/self/fd/%d/file" % folder, "/proc/self/fd/%d" % path,
]
def openat2(directory, name):
    how = struct.pack("QQQ", os.O_RDONLY, 0, 0)
    return call(437, directory, name.encode(), how, len(how))
report([
    [attempt(os.open, name, os.O_RDONLY) for name in tries],
    attempt(os.open, "file", os.O_RDONLY, dir_fd=folder), attempt(os.open, "etc/passwd", os.O_RDONLY, dir_fd=root),
    openat2(folder, "file"), openat2(root, "etc/passwd"), openat2(-100, "write/before"),
    bool(attempt(os.link, "out/file", "write/linked")), bool(attempt(os.rename, "out/file", "write/moved")),
])
""",
            user,
            place,
        )
        assert answers == [["EACCES"] * 7, *["EACCES"] * 5, True, True]
        assert (place / "out" / "file").read_text() == "out"

    def test_a_path_may_be_a_file_or_missing(self, place: Path) -> None:
        answers = inside(
            f"""
no_new_privileges()
restrict(["read/file", "missing", "read/file/beneath"], ["write/file", "/missing/too"])
report([{can("read/file", "os.O_RDONLY")}, {can("write/file", "os.O_RDWR")}, {can("write/new", "os.O_CREAT")}])
""",
            cwd=place,
        )
        assert answers == ["", "", "EACCES"]

    def test_harmless_devices_can_always_be_used(self) -> None:
        answers = inside(f"""
no_new_privileges()
restrict([], [])
flags = os.O_RDWR | os.O_TRUNC
usual = [attempt(lambda: os.close(os.open("/dev/" + name, flags))) for name in ("null", "zero", "full")]
report([usual, len(open("/dev/urandom", "rb").read(8)), {can("/dev", "os.O_RDONLY")}])
""")
        assert answers == [["", "", ""], 8, "EACCES"]

    @needs(5)
    @pytest.mark.skipif(not Path("/dev/pts/ptmx").exists(), reason="there are no terminals here")
    def test_terminals_only_if_asked_for(self) -> None:
        answers = inside("""
def opened(write):
    restrict([], write)
    os._exit(0 if os.isatty(pty.openpty()[1]) else 1)
no_new_privileges()
report([status_of(lambda: opened(["/dev/pts", "/dev/ptmx"])) , status_of(lambda: attempt(opened, []))])
""")
        assert answers == [0, 77 << 8]


@needs(4)
class TestNetwork:
    @pytest.mark.parametrize("network", [True, False])
    def test_tcp_as_asked(self, network: bool) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            answers = inside(f"""
no_new_privileges()
restrict([], [], network={network})
tcp = lambda: socket.socket(socket.AF_INET)
report([attempt(tcp().connect, {server.getsockname()!r}), attempt(tcp().bind, ("127.0.0.1", 0))])
""")
        assert answers == (["", ""] if network else ["EACCES", "EACCES"])


@needs(6)
class TestScope:
    @identities
    def test_signals_stay_in(self, user: int | None, outside: int) -> None:
        answers = inside(
            f"""
no_new_privileges()
restrict(["/"], [])
child = subprocess.Popen(["sleep", "300"])
child.terminate()
report([attempt(os.kill, {outside}, 0), child.wait()])
""",
            user,
        )
        assert answers == ["EPERM", -15]

    def test_abstract_sockets_of_the_host_are_out_of_reach(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as host:
            host.bind("\0coderoom-test-of-landlock" + str(id(host)))
            answers = inside(f"""
name = {host.getsockname()!r}
no_new_privileges()
restrict([], [])
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
report([attempt(one.sendto, b"out", name), attempt(one.connect, name)])
""")
        assert answers == ["EPERM", "EPERM"]


@needs(1)
class TestOtherProcesses:
    @identities
    def test_nobody_looks_into_them(self, user: int | None, outside: int) -> None:
        answers = inside(
            f"""
drop()
restrict(["/proc"], ["/proc"])
def look(name):
    with open("/proc/{outside}/" + name, "rb", buffering=0) as file:
        file.read(1)
report([attempt(look, name) for name in ("mem", "environ", "maps", "auxv")]
       + [attempt(os.readlink, "/proc/{outside}/fd/0"), call("ptrace", 16, {outside}, 0, 0)])
""",
            user,
        )
        assert answers == [*["EACCES"] * 5, "EPERM"]


@needs(1)
class TestPrepared:
    def test_forks_enforce_one_after_the_other_and_keep_no_ruleset(self, place: Path) -> None:
        # With a ruleset in hand, code could add to it what it likes, for the next one who enforces it.
        answers = inside(
            """
no_new_privileges()
usable = lambda fd: attempt(os.fstat, fd) == ""
first, second = (landlock.prepare([], [name]) for name in ("read", "write"))
numbers = [first._descriptor, second._descriptor]
def enforced(ruleset, name):
    ruleset.enforce()
    inside = attempt(os.listdir, name) == ""
    outside = attempt(os.listdir, "out") == "EACCES"
    os._exit(0 if inside and outside and not any(map(usable, numbers)) else 1)
turns = [(first, "read"), (second, "write"), (first, "read")]
answers = [status_of(lambda: enforced(*turn)) for turn in turns]
kept = [usable(fd) and not os.get_inheritable(fd) for fd in numbers]
first.close()
second.close()
first.close()
report([answers, kept, [usable(fd) for fd in numbers]])
""",
            cwd=place,
        )
        assert answers == [[0, 0, 0], [True, True], [False, False]]

    def test_it_cannot_be_loosened(self, place: Path) -> None:
        answers = inside(
            f"{RESTRICT}\nrestrict(['/'], ['/'])\nreport({can('out/file', 'os.O_RDONLY')})",
            cwd=place,
        )
        assert answers == "EACCES"
