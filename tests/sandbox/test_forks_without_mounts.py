"""Forks behind walls without mounts: their files are at other paths, and what they can reach of the first session."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox import Sandbox, Session

from .places import Place, on_walls, on_walls_without_mounts

# Puts links to a folder of the host in the place of the folders of forks, for as long as it runs.
SWAPS = r"""
import os, threading, time
forks = os.path.join(os.path.dirname(os.environ["TMPDIR"]), "forks")
target, done, swapped = {target!r}, [], []
def swap():
    while not done:
        for room in os.listdir(forks):
            for name in ("workspace", "tmp", "forks"):
                path = os.path.join(forks, room, name)
                try:
                    if not os.path.islink(path):
                        os.rename(path, f"{{path}}.away")
                        os.symlink(target, path)
                        swapped.append(path)
                except OSError:
                    pass
"""
SECRET = "a secret of the host"
START = "thread = threading.Thread(target=swap, daemon=True)\nthread.start()"


async def value_of(session: Session, code: str) -> Any:
    result = await session.run(code)
    assert result.success, result.output
    return result.value


async def error_of(session: Session, code: str) -> str:
    error = (await session.run(code)).error
    return "" if error is None else error.type


@on_walls_without_mounts
async def test_what_python_keeps_of_paths_is_the_forks(place: Place, workspace: Path) -> None:
    package = workspace / "package"
    package.mkdir()
    for name in ("__init__", "first", "later"):
        (package / f"{name}.py").write_text(f"name = {name!r}")
    async with place.sandbox(workspace=workspace) as sandbox, sandbox.session() as session:
        old = await value_of(
            session,
            "import os, sys, tempfile\nimport package.first\ntempfile.gettempdir()\nold = os.getcwd()\n"
            "os.environ['LISTED'] = f'/usr:{old}/package'\nold",
        )
        (fork,) = await session.fork()
        look = (
            "os.environ['LISTED'][5:], package.first.__file__[:-9], "
            "[each for each in sys.path if each.startswith((old, os.getcwd()))]"
        )
        here = await value_of(fork, "os.getcwd()")
        assert here != old
        assert await value_of(fork, look) == (f"{here}/package", f"{here}/package", [here])
        await value_of(fork, "open('package/later.py', 'w').write('name = 1')")
        assert await value_of(fork, "import package.later\npackage.later.name") == 1
        assert await value_of(fork, "tempfile.gettempdir() == os.environ['TMPDIR'] != old") is True
        await session.become(fork)
        assert await value_of(session, look) == (f"{old}/package",) * 2 + ([old],)


@on_walls_without_mounts
async def test_shells_go_on_in_a_folder_whose_name_is_quoted(place: Place, workspace: Path) -> None:
    folder = workspace / "a folder"
    folder.mkdir(mode=0o777)
    async with place.sandbox(workspace=folder) as sandbox, sandbox.session() as session:
        await session.run("HERE=\"$PWD/x y\"; mkdir 'x y'; cd 'x y'", language="bash")
        here = (await session.run('echo "$HERE"', language="bash")).output
        (fork,) = await session.fork()
        said = await fork.run('echo f > file; [[ $HERE = $PWD ]] && basename "$PWD"', language="bash")
        assert said.output == "x y\n"
        assert not (folder / "x y/file").exists()
        await session.become(fork)
        assert (await session.run('cat file; echo "$HERE"', language="bash")).output == f"f\n{here}"


@on_walls("landlock", "docker")
async def test_forks_reach_no_files_and_processes_of_others(place: Place, sandbox: Sandbox) -> None:
    async with sandbox.session() as session, sandbox.session() as stranger:
        where = (
            "import os, signal, tempfile\nopen('own', 'w').write('x')\nos.getcwd(), tempfile.gettempdir(), os.getpid()"
        )
        strangers = await value_of(stranger, where)
        firsts = await value_of(session, where)
        one, other = await session.fork(2)
        others = await value_of(other, where)
        for folder, temporary, pid in (strangers, firsts, others):
            for attempt in (
                f"open('{folder}/own', 'a')",
                f"open('{folder}/own')",
                f"os.listdir('{temporary}')",
                f"os.link('{folder}/own', 'mine')",
                f"os.kill({pid}, signal.SIGKILL)",
            ):
                assert await error_of(one, attempt) in ("PermissionError", "OSError"), attempt
        assert await error_of(one, "os.kill(os.getppid(), signal.SIGKILL)") == "PermissionError"
        assert await error_of(one, "open('/etc/hostname', 'a')") == "PermissionError"
        (deeper,) = await one.fork()
        folder = await value_of(one, "os.getcwd()")
        assert await error_of(deeper, f"open('{folder}/own', 'a')") == "PermissionError"
        assert await value_of(deeper, "open('own', 'a').write('y')") == 1
        for each in (one, other, deeper):
            await each.close()


@on_walls("landlock")
@pytest.mark.slow
async def test_links_in_the_place_of_their_folders_are_not_followed(place: Place, workspace: Path) -> None:
    folder, secret = workspace / "folder", workspace / "secret"
    folder.mkdir(mode=0o777)
    secret.mkdir(mode=0o777)
    secret.chmod(0o777)
    (secret / "key").write_text(SECRET)
    said = []
    async with place.sandbox(workspace=folder) as sandbox, sandbox.session() as session:
        await value_of(session, SWAPS.format(target=str(secret)))
        forks = await session.fork(4)
        attack = asyncio.ensure_future(session.run(f"{START}\ntime.sleep(4)\ndone.append(1)\nlen(swapped)"))
        await asyncio.sleep(0.5)
        for fork in forks:
            with contextlib.suppress(RequestError, SandboxUnavailable):
                said.append((await fork.run("print(open('key').read())")).output)
                await fork.run("import os\nos._exit(0)")
                said.append((await fork.run(f"print(open('{secret}/key').read())")).output)
                said.append(
                    (await fork.run(f"ls; cat key; cat {secret}/key; echo > {secret}/made", language="bash")).output
                )
        assert (await attack).value > 0
        for fork in forks:
            with contextlib.suppress(RequestError, SandboxUnavailable):
                await session.become(fork)
    assert not [each for each in said if SECRET in each]
    assert [each.name for each in secret.iterdir()] == ["key"]
    assert not (folder / "key").exists()
