"""The wall without namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import Sandbox, SandboxUnavailable

from .behind import PYTHON, Inside, behind

pytestmark = pytest.mark.allwalls
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another")
with_each_user = pytest.mark.parametrize("user", ["self", pytest.param("ordinary", marks=only_root)])


def run(user: str, check: Any, **asked: Any) -> None:
    if user == "self":
        asked["python"] = PYTHON
    behind("landlock", user, check, **asked)


@with_each_user
def test_only_what_is_needed_can_be_opened(user: str) -> None:
    async def check(it: Inside) -> None:
        for path in ("/etc/passwd", "/etc/hostname", "/proc/self/status", "/proc/1/cmdline", __file__):
            assert await it.ask(f"open({path!r})") in ("PermissionError", "FileNotFoundError"), path
        for path in ("/", "/etc", "/home", "/root", "/tmp", "/proc"):
            assert await it.ask(f"os.listdir({path!r})") == "PermissionError", path
        assert await it.ask("open('/proc/meminfo').readline()[:3]") == "Mem"
        assert await it.ask("import ssl, subprocess; subprocess.call(['/bin/true'])") == 0

    run(user, check)


@with_each_user
def test_the_workspace_and_a_temporary_folder_can_be_written_to(user: str) -> None:
    async def check(it: Inside) -> None:
        assert await it.ask(f"open({str(it.workspace / 'new')!r}, 'w').write('new')") == 3
        assert await it.ask("import tempfile; tempfile.TemporaryFile().write(b'text')") == 4
        assert await it.ask("open(os.environ['HOME'] + '/file', 'w').write('text')") == 4
        assert await it.ask("os.environ['CACHE'].startswith(os.environ['TMPDIR'] + '/c')") is True
        for folder in ("/tmp", "/dev/shm", "/run/coderoom", str(Path(os.__file__).parent)):
            assert await it.ask(f"open({folder!r} + '/not-there-yet', 'w')") in (
                "PermissionError",
                "FileNotFoundError",
            )

    run(user, check, env={"HOME": "/tmp", "CACHE": "/tmp/c"})


@with_each_user
def test_other_processes_are_out_of_reach(user: str) -> None:
    with contextlib.ExitStack() as unwind:
        other = unwind.enter_context(subprocess.Popen(["sleep", "600"]))
        unwind.callback(other.kill)

        async def check(it: Inside) -> None:
            assert await it.ask(f"os.kill({other.pid}, 0)") == "PermissionError"
            assert await it.ask(f"open('/proc/{other.pid}/environ')") == "PermissionError"

        run(user, check)


@with_each_user
def test_no_network(user: str) -> None:
    async def check(it: Inside) -> None:
        for family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"):
            assert await it.ask(f"socket.socket(socket.{family})") == "PermissionError", family

    run(user, check)


@with_each_user
def test_a_folder_of_its_own_where_there_is_no_workspace(user: str) -> None:
    async def check(it: Inside) -> None:
        workspace = Path(await it.ask("os.getcwd()"))
        assert await it.ask(f"open({str(workspace / 'new')!r}, 'w').write('new')") == 3
        assert workspace.stat().st_mode & 0o077 == 0 or workspace.parent.stat().st_mode & 0o077 == 0

    run(user, check, workspace=None)


@only_root
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

    async def check(it: Inside) -> None:
        assert await it.ask("os.getuid()") != 0
        workspace = str(it.workspace)
        assert await it.ask(f"open({workspace!r} + '/folder/own', 'a').write('ed')") == 2
        assert await it.ask(f"open({workspace!r} + '/new', 'w').write('new')") == 3
        # It is elsewhere as well, so it stays whose it was.
        assert await it.ask(f"open({workspace!r} + '/old')") == "PermissionError"
        await it.sandbox.close()
        entries = [it.workspace, *it.workspace.rglob("*")]
        assert {path.lstat().st_uid for path in entries} == {0}
        assert Path("/etc/passwd").stat().st_uid == 0

    try:
        run("self", check, before=before)
    finally:
        for path in kept:
            path.unlink()


@only_root
def test_a_workspace_that_is_in_use_already() -> None:
    async def check(it: Inside) -> None:
        with pytest.raises(SandboxUnavailable, match="in use by another sandbox"):
            await Sandbox("landlock", workspace=it.workspace, python=PYTHON).start()

    run("self", check)


@only_root
def test_a_workspace_that_was_never_given_back() -> None:
    def before(workspace: Path) -> None:
        os.chown(workspace, 0x70000001, 0x70000001)

    async def check(it: Inside) -> None:
        assert await it.ask(f"open({str(it.workspace)!r} + '/new', 'w').write('new')") == 3
        await it.sandbox.close()
        assert it.workspace.stat().st_uid == (it.workspace / "new").stat().st_uid == 0

    run("self", check, before=before)


async def test_an_interpreter_in_the_workspace_is_refused() -> None:
    project = Path(__file__).parents[3]
    with pytest.raises((RequestError, SandboxUnavailable), match=r"cannot keep a part of it|out of reach"):
        await Sandbox("landlock", workspace=project, python=PYTHON).start()


@pytest.mark.parametrize("wall", ["landlock", "sandlock"])
async def test_pytest_runs_beside_a_plugin_whose_source_is_not_visible(wall: str) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        env, source = Path(folder) / "env", Path(folder) / "source"
        Path(folder).chmod(0o755)
        base = sys.executable if os.geteuid() else "/usr/bin/python3"
        subprocess.run([base, "-m", "venv", "--without-pip", env], check=True)
        packages = next(env.glob("lib/python*/site-packages"))
        installed = Path(pytest.__file__).parent.parent
        for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py"):
            copy = shutil.copy if name == "py.py" else shutil.copytree
            copy(installed / name, packages / name)
        told = packages / "plugin-1.dist-info"
        told.mkdir()
        (told / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1\n")
        (told / "entry_points.txt").write_text("[pytest11]\nof-mine = plugin\n")
        (told / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
        sandbox = Sandbox(wall, python=env / "bin" / "python", env={"PYTEST_ADDOPTS": "-q"})
        try:
            await sandbox.start()
        except SandboxUnavailable as error:
            pytest.skip(str(error))
        async with sandbox:
            result = await sandbox.run(
                "echo 'def test_x(): pass' > test_x.py; python -m pytest -p no:cacheprovider test_x.py", language="sh"
            )
            assert (result.exit_code, "1 passed" in result.output) == (0, True), result.output
            assert (await sandbox.run("import os\nos.environ['PYTEST_ADDOPTS']")).value == "-p no:of-mine -q"
