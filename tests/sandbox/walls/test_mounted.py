"""What the walls made of mounts and namespaces keep away, and what they let through."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Limits
from coderoom.sandbox.guest.isolation.supervisor import descendants
from coderoom.sandbox.walls.base import WallSpec
from coderoom.sandbox.walls.bubblewrap import BubblewrapWall

from .behind import STUB, USERS, Started, behind

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
    pytest.mark.parametrize("user", USERS),
    pytest.mark.parametrize("wall", ["bubblewrap", "namespaces"]),
]


def test_files_of_the_host_are_not_there(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        assert await it.inside.attempt("open('/etc/shadow')") == "FileNotFoundError"
        assert (
            await it.inside.attempt("sorted(set(os.listdir('/')) & {'home', 'sys', 'var', 'boot', 'mnt', 'srv'})") == []
        )
        assert await it.inside.attempt("os.listdir('/run')") == ["coderoom"]
        assert "x:1:1:" not in await it.inside.attempt("open('/etc/passwd').read()")
        assert await it.inside.attempt("socket.gethostname()") == "coderoom"

    behind(wall, user, check)


def test_home_shows_no_more_than_the_interpreter(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        home = Path("/root") if os.geteuid() == 0 else Path.home()
        secret = f"os.listdir({str(home)!r})"
        shown = await it.inside.attempt(secret)
        assert shown in ("FileNotFoundError", "PermissionError") or set(shown) <= {".pyenv", ".local", ".cache"}

    behind(wall, user, check)


def test_environment_is_what_was_asked_for(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        assert await it.inside.attempt("os.environ.get('ONE')") == "1"
        assert await it.inside.attempt("sorted(set(os.environ) - {'ONE', 'PWD', 'LC_CTYPE'})") == []
        others = (
            "import os\nr = []\n"
            "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
            "    try: r.append(open('/proc/%s/environ' % pid).read())\n"
            "    except PermissionError: pass"
        )
        assert "CODEROOM_SECRET" not in "".join(await it.inside.ask(others))

    os.environ["CODEROOM_SECRET"] = "secret"
    try:
        behind(wall, user, check, env={"ONE": "1"})
    finally:
        del os.environ["CODEROOM_SECRET"]


def test_everything_but_the_workspace_and_memory_is_read_only(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        for folder in ("/", "/usr", "/etc", "/dev", "/run/coderoom/guest"):
            assert await it.inside.attempt(f"open(os.path.join({folder!r}, 'x'), 'w')") == "OSError", folder
        assert await it.inside.attempt("open(os.path.join(sys.prefix, 'x'), 'w')") == "OSError"
        assert await it.inside.attempt("open(os.__file__, 'a')") in ("OSError", "PermissionError")
        assert await it.inside.attempt("open('/proc/sys/kernel/core_pattern', 'w')") == "PermissionError"
        for folder in ("/workspace", "/tmp", "/dev/shm"):
            assert await it.inside.attempt(f"open(os.path.join({folder!r}, 'x'), 'w').write('y')") == 1, folder

    behind(wall, user, check)


def test_workspace_belongs_to_its_owner_on_both_sides(wall: str, user: str) -> None:
    def before(workspace: Path) -> None:
        (workspace / "old").write_text("old")
        (workspace / "old").chmod(0o600)

    async def check(it: Started) -> None:
        assert await it.inside.attempt("open('/workspace/old').read()") == "old"
        assert await it.inside.attempt("open('/workspace/old', 'a').write('er')") == 2
        assert await it.inside.attempt("os.makedirs('/workspace/a/b')") is None
        assert await it.inside.attempt("open('/workspace/a/b/new', 'w').write('new')") == 3
        assert await it.inside.attempt("os.stat('/workspace/a/b/new').st_uid == os.getuid()") is True
        assert (it.workspace / "old").read_text() == "older"
        assert (it.workspace / "a" / "b" / "new").stat().st_uid == os.geteuid()
        assert (it.workspace / "a").stat().st_gid == it.workspace.stat().st_gid

    behind(wall, user, check, before=before)


def test_workspace_of_another_user_when_root_starts_it(wall: str, user: str) -> None:
    if user != "self" or os.geteuid() != 0:
        return  # Only root can start it for another user.

    def before(workspace: Path) -> None:
        os.chown(workspace, 4321, 4322)
        (workspace / "roots").write_text("roots")
        (workspace / "roots").chmod(0o600)

    async def check(it: Started) -> None:
        assert await it.inside.attempt("open('/workspace/new', 'w').write('new')") == 3
        assert await it.inside.attempt("open('/workspace/roots').read()") == "PermissionError"
        status = (it.workspace / "new").stat()
        assert (status.st_uid, status.st_gid) == (4321, 4322)

    behind(wall, user, check, before=before)


def test_without_a_workspace_there_is_an_empty_one(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        assert await it.inside.attempt("os.listdir('/workspace')") == []
        assert await it.inside.attempt("open('/workspace/new', 'w').write('new')") == 3

    behind(wall, user, check, workspace=None)


def test_no_network_but_its_own(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        code = "import socket; s = socket.socket(); s.settimeout(5); s.connect(('192.0.2.1', 9))"
        assert await it.inside.ask(code) == "OSError"
        assert await it.inside.attempt("[name for _, name in socket.if_nameindex()]") == ["lo"]
        code = (
            "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\n"
            "socket.create_connection(s.getsockname(), 5)\nr = 'connected'"
        )
        assert await it.inside.ask(code) == "connected"
        assert await it.inside.attempt("os.path.exists('/etc/resolv.conf')") is False

    behind(wall, user, check)


def test_network_where_it_is_asked_for(wall: str, user: str) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:

        async def check(it: Started) -> None:
            address = server.getsockname()
            assert await it.inside.attempt(f"socket.create_connection({address!r}, 5) and 'connected'") == "connected"

        behind(wall, user, check, network=True)


def test_processes_of_the_host_are_not_there(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        pids = await it.inside.attempt("sorted(int(name) for name in os.listdir('/proc') if name.isdigit())")
        assert len(pids) <= 2
        assert pids == list(range(1, len(pids) + 1))

    behind(wall, user, check)


def test_the_worker_is_nobody_on_the_host(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        ours = [pid for pid in descendants(os.getpid()) if b"CONTROL" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        worker = ours[-1]
        status = Path(f"/proc/{worker}/status").read_text()
        facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        users = set(facts["Uid"].split())
        assert users == {str(os.geteuid())} if os.geteuid() else "0" not in users
        assert int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == 0
        assert facts["NoNewPrivs"] == "1"
        if os.geteuid() == 0:
            assert facts["Groups"].strip() == ""

    behind(wall, user, check)


def test_a_room_can_have_namespaces_of_its_own(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        if it.inside.worker.boot["rooms"] == "plain":
            pytest.skip("not on this machine")
        code = "from coderoom_guest.isolation import boot; r = boot._in_child(boot._nest)"
        assert await it.inside.ask(code) == ""

    behind(wall, user, check)


def test_nothing_of_the_host_is_open(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        code = (
            "import os\nr = []\n"
            "for name in os.listdir('/proc/self/fd'):\n"
            "    try: r.append(os.readlink('/proc/self/fd/' + name).split(':')[0])\n"
            "    except FileNotFoundError: pass"
        )
        assert sorted(await it.inside.ask(code)) == ["/dev/null", "/dev/null", "pipe", "socket"]

    with Path(__file__).open("rb") as kept:
        os.set_inheritable(kept.fileno(), True)
        behind(wall, user, check)


def test_the_interpreter_works(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        code = (
            "import site, sys, subprocess; site.main(); import ssl, sqlite3, ctypes\n"
            "r = subprocess.run([sys.executable, '-c', 'import json, sys; print(sys.prefix)'],\n"
            "                   capture_output=True, text=True).stdout.strip() == sys.prefix"
        )
        assert await it.inside.ask(code) is True
        assert await it.inside.ask("import pwd, os; r = pwd.getpwuid(os.getuid()).pw_name") == "user"

    behind(wall, user, check)


def test_a_readable_folder(wall: str, user: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = Path("/usr/share") if user == "ordinary" else tmp_path_factory.mktemp("readable")
    if user == "self":
        (folder / "file").write_text("text")
        folder.chmod(0o755)

    async def check(it: Started) -> None:
        listed = await it.inside.attempt(f"sorted(os.listdir({str(folder)!r}))")
        assert listed == sorted(path.name for path in folder.iterdir())
        assert await it.inside.attempt(f"open({str(folder / 'new')!r}, 'w')") == "OSError"

    behind(wall, user, check, readable=[folder])


def test_an_interpreter_in_the_workspace_stays_as_it_is(wall: str, user: str) -> None:
    async def check(it: Started) -> None:
        place = "/workspace/deep/tools"
        assert await it.inside.attempt(f"os.listdir({place!r})") == ["file"]
        assert await it.inside.attempt(f"open('{place}/file', 'w')") == "OSError"
        assert await it.inside.attempt(f"os.rename({place!r}, '/workspace/other')") == "OSError"
        assert await it.inside.attempt("os.rename('/workspace/deep', '/workspace/other')") == "OSError"
        assert await it.inside.attempt("open('/workspace/deep/file', 'w').write('y')") == 1

    workspaces: list[Path] = []

    def before(workspace: Path) -> None:
        (workspace / "deep" / "tools").mkdir(parents=True)
        (workspace / "deep" / "tools" / "file").write_text("text")
        workspaces.append(workspace / "deep" / "tools")

    # What is readable lies in the workspace, as a virtual environment often does.
    behind(wall, user, check, before=before, readable=workspaces)


def test_a_new_tmp_keeps_what_is_shown_below_it(wall: str, user: str) -> None:
    shown: list[Path] = []

    def before(workspace: Path) -> None:
        (workspace / "tools").mkdir()
        (workspace / "tools" / "file").write_text("text")
        shown.append(workspace / "tools")

    async def check(it: Started) -> None:
        below = it.inside.worker.boot["below_tmp"]
        if str(shown[0]) not in below:
            pytest.skip("temporary folders are not below /tmp here")
        code = (
            "import os\nfrom coderoom_guest.isolation import boot, linux, mounts\n"
            "def cover():\n"
            "    uid, gid = os.getuid(), os.getgid()\n"
            "    linux.libc('unshare', linux.CLONE_NEWUSER | linux.CLONE_NEWNS)\n"
            "    boot._map_ids(f'{uid} {uid} 1', f'{gid} {gid} 1')\n"
            f"    mounts.cover('/tmp', 65536, '1777', {below!r})\n"
            f"    raise OSError(open({str(shown[0] / 'file')!r}).read() + ' ' + ' '.join(os.listdir('/tmp')))\n"
            "r = boot._in_child(cover)"
        )
        assert await it.inside.attempt("open('/tmp/mine', 'w').write('y')") == 1
        text, *names = (await it.inside.ask(code)).split()
        assert text == "text"
        # An interpreter may be below /tmp as well.
        assert shown[0].parts[2] in names
        assert "mine" not in names

    behind(wall, user, check, before=before, readable=shown)


# What a kernel before 5.12 says to open_tree, move_mount and mount_setattr, which have the same numbers everywhere.
_OLD_KERNEL = """
import ctypes, struct
steps = [(0x20, 0, 0, 0)]
for number in (428, 429, 442):
    steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | 38)]
steps += [(0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("@HP", len(steps), ctypes.addressof(code)), 0, 0) == 0
"""


def test_mounts_of_an_older_kernel(wall: str, user: str) -> None:
    if wall != "namespaces" or (user == "self" and os.geteuid() == 0):
        return  # There nothing is done in another way.

    async def check(it: Started) -> None:
        assert await it.inside.attempt("open('/usr/x', 'w')") == "OSError"
        assert await it.inside.attempt("open('/workspace/x', 'w').write('y')") == 1

    behind(wall, user, check, program=f"exec({_OLD_KERNEL!r}); {STUB}")


async def test_options_are_refused(wall: str, user: str) -> None:
    spec = WallSpec(workspace=None, network=False, env={}, limits=Limits(), options={"image": "python"})
    with pytest.raises(RequestError, match="'image'"):
        await BubblewrapWall().start(spec)
