"""What the walls made of mounts and namespaces keep away, and what they let through."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Sandbox

from ..places import STRONGEST
from .behind import Inside, behind


def _pairs() -> list[Any]:
    pairs: list[Any] = []
    for wall in ("bubblewrap", "namespaces"):
        for user in ("self", "ordinary"):
            marks = [] if wall == STRONGEST.wall and user == "self" else [pytest.mark.allwalls]
            if user == "ordinary":
                marks.append(pytest.mark.skipif(os.geteuid() != 0, reason="only root can be others"))
            pairs.append(pytest.param(wall, user, marks=marks))
    return pairs


pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
    pytest.mark.parametrize(("wall", "user"), _pairs()),
]


def test_files_of_the_host_are_not_there(wall: str, user: str) -> None:
    async def check(it: Inside) -> None:
        assert await it.ask("open('/etc/shadow')") == "FileNotFoundError"
        assert await it.ask("sorted(set(os.listdir('/')) & {'home', 'sys', 'boot', 'mnt', 'srv'})") == []
        assert await it.ask("(os.listdir('/var'), os.readlink('/var/tmp'))") == (["tmp"], "/tmp")
        assert await it.ask("os.listdir('/run')") == ["coderoom"]
        assert "x:1:1:" not in await it.ask("open('/etc/passwd').read()")
        assert await it.ask("socket.gethostname()") == "coderoom"

    behind(wall, user, check)


def test_home_shows_no_more_than_the_interpreter(wall: str, user: str) -> None:
    async def check(it: Inside) -> None:
        home = Path("/root") if os.geteuid() == 0 else Path.home()
        secret = f"os.listdir({str(home)!r})"
        shown = await it.ask(secret)
        assert shown in ("FileNotFoundError", "PermissionError") or set(shown) <= {".pyenv", ".local", ".cache"}

    behind(wall, user, check)


def test_environment_is_what_was_asked_for(wall: str, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(it: Inside) -> None:
        assert await it.ask("os.environ['ONE']") == "1"
        others = (
            "found = [str(os.environ)]\n"
            "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
            "    try: found.append(open('/proc/%s/environ' % pid).read())\n"
            "    except PermissionError: pass\n"
            "[len(found), 'CODEROOM_SECRET' in ''.join(found)]"
        )
        count, leaked = await it.ask(others)
        assert count > 1
        assert not leaked

    monkeypatch.setenv("CODEROOM_SECRET", "secret")
    behind(wall, user, check, env={"ONE": "1"})


def test_everything_but_the_workspace_and_memory_is_read_only(wall: str, user: str) -> None:
    async def check(it: Inside) -> None:
        for folder in ("/", "/usr", "/etc", "/dev", "/run/coderoom/guest"):
            assert await it.ask(f"open(os.path.join({folder!r}, 'x'), 'w')") == "OSError", folder
        assert await it.ask("open(os.path.join(sys.prefix, 'x'), 'w')") == "OSError"
        assert await it.ask("open(os.__file__, 'a')") in ("OSError", "PermissionError")
        assert await it.ask("open('/proc/sys/kernel/core_pattern', 'w')") == "OSError"
        for folder in ("/workspace", "/tmp", "/dev/shm"):
            assert await it.ask(f"open(os.path.join({folder!r}, 'x'), 'w').write('y')") == 1, folder

    behind(wall, user, check)


def test_workspace_belongs_to_its_owner_on_both_sides(wall: str, user: str) -> None:
    def before(workspace: Path) -> None:
        (workspace / "old").write_text("old")
        (workspace / "old").chmod(0o600)

    async def check(it: Inside) -> None:
        assert await it.ask("open('/workspace/old').read()") == "old"
        assert await it.ask("open('/workspace/old', 'a').write('er')") == 2
        assert await it.ask("os.makedirs('/workspace/a/b')") is None
        assert await it.ask("open('/workspace/a/b/new', 'w').write('new')") == 3
        assert await it.ask("os.stat('/workspace/a/b/new').st_uid == os.getuid()") is True
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

    async def check(it: Inside) -> None:
        assert await it.ask("open('/workspace/new', 'w').write('new')") == 3
        assert await it.ask("open('/workspace/roots').read()") == "PermissionError"
        status = (it.workspace / "new").stat()
        assert (status.st_uid, status.st_gid) == (4321, 4322)

    behind(wall, user, check, before=before)


def test_without_a_workspace_there_is_an_empty_one(wall: str, user: str) -> None:
    async def check(it: Inside) -> None:
        assert await it.ask("os.listdir('/workspace')") == []
        assert await it.ask("open('/workspace/new', 'w').write('new')") == 3

    behind(wall, user, check, workspace=None)


def test_no_network(wall: str, user: str) -> None:
    async def check(it: Inside) -> None:
        assert await it.ask("s = socket.socket(); s.settimeout(5); s.connect(('192.0.2.1', 9))") == "PermissionError"
        assert await it.ask("[name for _, name in socket.if_nameindex()]") in ("PermissionError", ["lo"])
        assert await it.ask("os.path.exists('/etc/resolv.conf')") is False

    behind(wall, user, check)


def test_network_where_it_is_asked_for(wall: str, user: str) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:

        async def check(it: Inside) -> None:
            address = server.getsockname()
            assert await it.ask(f"socket.create_connection({address!r}, 5) and 'connected'") == "connected"

        behind(wall, user, check, network=True)


def test_the_interpreter_works(wall: str, user: str) -> None:
    async def check(it: Inside) -> None:
        code = (
            "import subprocess, ssl, sqlite3, ctypes\n"
            "subprocess.run([sys.executable, '-c', 'import json, sys; print(sys.prefix)'],\n"
            "               capture_output=True, text=True).stdout.strip() == sys.prefix"
        )
        assert await it.ask(code) is True
        assert await it.ask("import pwd; pwd.getpwuid(os.getuid()).pw_name") == "user"

    behind(wall, user, check)


def test_a_readable_folder(wall: str, user: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = Path("/usr/share") if user == "ordinary" else tmp_path_factory.mktemp("readable")
    if user == "self":
        (folder / "file").write_text("text")
        folder.chmod(0o755)

    async def check(it: Inside) -> None:
        listed = await it.ask(f"sorted(os.listdir({str(folder)!r}))")
        assert listed == sorted(path.name for path in folder.iterdir())
        assert await it.ask(f"open({str(folder / 'new')!r}, 'w')") == "OSError"

    behind(wall, user, check, readable=[folder])


def test_an_interpreter_in_the_workspace_stays_as_it_is(wall: str, user: str) -> None:
    async def check(it: Inside) -> None:
        place = "/workspace/deep/tools"
        assert await it.ask(f"os.listdir({place!r})") == ["file"]
        assert await it.ask(f"open('{place}/file', 'w')") == "OSError"
        assert await it.ask(f"os.rename({place!r}, '/workspace/other')") == "OSError"
        assert await it.ask("os.rename('/workspace/deep', '/workspace/other')") == "OSError"
        assert await it.ask("open('/workspace/deep/file', 'w').write('y')") == 1

    workspaces: list[Path] = []

    def before(workspace: Path) -> None:
        (workspace / "deep" / "tools").mkdir(parents=True)
        (workspace / "deep" / "tools" / "file").write_text("text")
        workspaces.append(workspace / "deep" / "tools")

    # What is readable lies in the workspace, as a virtual environment often does.
    behind(wall, user, check, before=before, readable=workspaces)


def test_processes_of_the_host_are_not_there(wall: str, user: str) -> None:
    async def check(it: Inside) -> None:
        pids = await it.ask("sorted(int(name) for name in os.listdir('/proc') if name.isdigit())")
        assert pids == list(range(1, len(pids) + 1))
        assert len(pids) <= 3

    behind(wall, user, check)


def test_what_is_shown_below_tmp_is_there(wall: str, user: str) -> None:
    shown: list[Path] = []

    def before(workspace: Path) -> None:
        (workspace / "tools").mkdir()
        (workspace / "tools" / "file").write_text("text")
        shown.append(workspace / "tools")

    async def check(it: Inside) -> None:
        assert await it.ask(f"open({str(shown[0] / 'file')!r}).read()") == "text"
        assert await it.ask("open('/tmp/mine', 'w').write('y')") == 1

    behind(wall, user, check, before=before, readable=shown)


async def test_options_are_refused(wall: str, user: str) -> None:
    with pytest.raises(RequestError, match="'image'"):
        await Sandbox(wall, options={"image": "python"}).start()
