"""The wall without namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox import Limits
from coderoom.sandbox.guest.isolation import landlock
from coderoom.sandbox.walls.base import WallSpec
from coderoom.sandbox.walls.landlock import LandlockWall

from .behind import USERS, Started, behind

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or landlock.abi() < 3, reason="needs Landlock ABI 3"),
]
SYSTEM = Path("/usr/bin/python3")
with_each_user = pytest.mark.parametrize("user", USERS)


def run(user: str, check: object, **asked: object) -> None:
    if os.geteuid() == 0 and user == "self":
        if not SYSTEM.exists():
            pytest.skip("no interpreter that is within everybody's reach")
        asked["python"] = SYSTEM
    behind("landlock", user, check, **asked)  # type: ignore[arg-type]


async def lock_down(it: Started) -> None:
    """Do what a runner does before it runs any code."""
    settings = it.inside.worker.boot["lockdown"]
    code = (
        "from coderoom_guest.isolation import lockdown\n"
        f"lockdown.apply(lockdown.Lockdown(network={it.spec.network}, memory_bytes=1 << 34, open_files=64,\n"
        f"    file_bytes=1 << 20, **{settings!r}))\nr = 'locked'"
    )
    assert await it.inside.ask(code) == "locked"


@with_each_user
def test_only_what_is_needed_can_be_opened(user: str) -> None:
    async def check(it: Started) -> None:
        await lock_down(it)
        for path in ("/etc/passwd", "/etc/hostname", "/proc/self/status", "/proc/1/cmdline", __file__):
            assert await it.inside.attempt(f"open({path!r})") in ("PermissionError", "FileNotFoundError"), path
        for path in ("/", "/etc", "/home", "/root", "/tmp", "/proc"):
            assert await it.inside.attempt(f"os.listdir({path!r})") == "PermissionError", path
        assert await it.inside.attempt("open('/proc/meminfo').readline()[:3]") == "Mem"
        assert await it.inside.ask("import ssl, subprocess; r = subprocess.call(['/bin/true'])") == 0

    run(user, check)


@with_each_user
def test_the_workspace_and_a_temporary_folder_can_be_written_to(user: str) -> None:
    async def check(it: Started) -> None:
        await lock_down(it)
        assert await it.inside.attempt(f"open({str(it.workspace / 'new')!r}, 'w').write('new')") == 3
        assert await it.inside.ask("import tempfile; r = tempfile.TemporaryFile().write(b'text')") == 4
        assert await it.inside.attempt("open(os.environ['HOME'] + '/file', 'w').write('text')") == 4
        assert await it.inside.attempt("os.environ['CACHE'].startswith(os.environ['TMPDIR'] + '/c')") is True
        for folder in ("/tmp", "/dev/shm", "/run/coderoom", str(Path(os.__file__).parent)):
            assert await it.inside.attempt(f"open({folder!r} + '/not-there-yet', 'w')") in (
                "PermissionError",
                "FileNotFoundError",
            )

    run(user, check, env={"HOME": "/tmp", "CACHE": "/tmp/c"})


@with_each_user
def test_other_processes_are_out_of_reach(user: str) -> None:
    with contextlib.ExitStack() as unwind:
        other = unwind.enter_context(subprocess.Popen(["sleep", "600"]))
        unwind.callback(other.kill)

        async def check(it: Started) -> None:
            await lock_down(it)
            assert await it.inside.attempt(f"os.kill({other.pid}, 0)") == "PermissionError"
            assert await it.inside.attempt(f"open('/proc/{other.pid}/environ')") == "PermissionError"

        run(user, check)


@with_each_user
def test_no_network(user: str) -> None:
    async def check(it: Started) -> None:
        await lock_down(it)
        for family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"):
            assert await it.inside.attempt(f"socket.socket(socket.{family})") == "PermissionError", family

    run(user, check)


@with_each_user
def test_a_folder_of_its_own_where_there_is_no_workspace(user: str) -> None:
    async def check(it: Started) -> None:
        workspace = Path(it.inside.worker.boot["workspace"])
        await lock_down(it)
        assert await it.inside.attempt(f"open({str(workspace / 'new')!r}, 'w').write('new')") == 3
        assert workspace.stat().st_mode & 0o077 == 0 or workspace.parent.stat().st_mode & 0o077 == 0

    run(user, check, workspace=None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another")
def test_roots_worker_is_nobody_and_gives_the_workspace_back() -> None:
    kept: list[Path] = []

    def before(workspace: Path) -> None:
        (workspace / "old").write_text("old")
        (workspace / "old").chmod(0o600)
        (workspace / "link").symlink_to("/etc/passwd")
        os.link(workspace / "old", workspace.with_suffix(".linked"))
        kept.append(workspace.with_suffix(".linked"))
        (workspace / "folder").mkdir()
        (workspace / "folder" / "own").write_text("own")

    async def check(it: Started) -> None:
        identity = it.inside.worker.boot["identity"]
        assert await it.inside.attempt("os.getuid()") == identity[0] != 0
        await lock_down(it)
        workspace = str(it.workspace)
        assert await it.inside.attempt(f"open({workspace!r} + '/folder/own', 'a').write('ed')") == 2
        assert await it.inside.attempt(f"open({workspace!r} + '/new', 'w').write('new')") == 3
        # It is elsewhere as well, so it stays whose it was.
        assert await it.inside.attempt(f"open({workspace!r} + '/old')") == "PermissionError"
        await it.inside.worker.end()
        entries = [it.workspace, *it.workspace.rglob("*")]
        assert {path.lstat().st_uid for path in entries} == {0}
        assert Path("/etc/passwd").stat().st_uid == 0

    try:
        run("self", check, before=before)
    finally:
        for path in kept:
            path.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another")
def test_a_workspace_that_is_in_use_already() -> None:
    async def check(it: Started) -> None:
        with pytest.raises(SandboxUnavailable, match="in use by another sandbox"):
            await LandlockWall().start(it.spec)

    run("self", check)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another")
def test_a_workspace_that_was_never_given_back() -> None:
    def before(workspace: Path) -> None:
        os.chown(workspace, 0x70000001, 0x70000001)

    async def check(it: Started) -> None:
        await lock_down(it)
        assert await it.inside.attempt(f"open({str(it.workspace)!r} + '/new', 'w').write('new')") == 3
        await it.inside.worker.end()
        assert it.workspace.stat().st_uid == (it.workspace / "new").stat().st_uid == 0

    run("self", check, before=before)


async def test_an_interpreter_in_the_workspace_is_refused() -> None:
    project = Path(__file__).parents[3]
    python = SYSTEM if os.geteuid() == 0 else None
    with pytest.raises((RequestError, SandboxUnavailable), match=r"cannot keep a part of it|out of reach"):
        await LandlockWall().start(WallSpec(project, network=False, env={}, limits=Limits(), python=python))


def test_what_it_starts_ends_with_it() -> None:
    async def check(it: Started) -> None:
        code = "import os\nif not os.fork():\n    os.setsid()\n    while True: os.read(0, 1)\nr = 1"
        assert await it.inside.ask(code) == 1
        os.kill(await it.inside.attempt("os.getpid()"), signal.SIGKILL)
        assert "SIGKILL" in it.inside.worker.describe_death()

    run("self", check)
