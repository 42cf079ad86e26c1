"""What nobody closes ends without a word and leaves neither a process nor a folder."""

from __future__ import annotations

import os
import textwrap
import time
from pathlib import Path

import pytest

from tests.support.processes import run_often

_PROLOGUE = """
import asyncio, gc, os, sys, threading
from pathlib import Path
from coderoom.sandbox import Sandbox

WALL = sys.argv[1]

def descendants():
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
                if state != b"Z":  # pydantic-monty waits for its workers at the end of this process only.
                    parents[int(entry.name)] = int(parent)
            except OSError:
                pass
    found = {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= new
    return found - {os.getpid()}

def make(**arguments):
    python = {"python": "/usr/bin/python3"} if WALL in ("landlock", "sandlock") else {}
    if WALL == "monty":
        return Sandbox(engine="monty", **arguments)
    return Sandbox(WALL, **python, **arguments)

def show():
    print(*descendants(), flush=True)
"""

_WAYS = {
    "dropped": """
        async def main():
            sandbox = make()
            assert (await sandbox.run("1 + 1")).value == 2
            show()
        asyncio.run(main())
    """,
    "dropped in a loop that goes on": """
        async def use():
            sandbox = make()
            assert (await sandbox.run("1 + 1")).value == 2
            show()
        async def main():
            await use()
            async with asyncio.timeout(10):
                while descendants():
                    gc.collect()
                    await asyncio.sleep(0.01)
        asyncio.run(main())
    """,
    "a session is dropped in a sandbox that goes on": """
        async def use(sandbox):
            assert (await sandbox.session().run("1 + 1")).value == 2
        async def main():
            async with make(concurrency=1) as sandbox:
                for _ in range(3):
                    await use(sandbox)
                    gc.collect()
                show()
        asyncio.run(main())
    """,
    "a session is open at an exception": """
        async def main():
            async with make() as sandbox:
                session = sandbox.session(functions=[len_of])
                await session.run("x = len_of('ab')")
                show()
                raise KeyError("mine")
        def len_of(text: str) -> int:
            return len(text)
        try:
            asyncio.run(main())
        except KeyError:
            pass
    """,
    "a session is open at the end": """
        async def main():
            async with make() as sandbox:
                session = sandbox.session()
                await session.run("x = 1")
                show()
        asyncio.run(main())
    """,
    "a session and its sandbox are open at the end": """
        async def main():
            session = make().session()
            await session.run("x = 1")
            if WALL != "monty":
                await session.start(["sh", "-c", "sleep 100 & echo"])
                await session.start(["sh", "-c", "sleep 100 & cat"], pty=True)
            show()
            return session
        session = asyncio.run(main())
    """,
    "a cell runs at the end": """
        async def main():
            sandbox = make()
            session = sandbox.session()
            await session.run("x = 1")
            asyncio.get_running_loop().create_task(session.run("while True: pass"))
            asyncio.get_running_loop().create_task(sandbox.run("import time; time.sleep(60)"))
            await asyncio.sleep(0.1)
            show()
        asyncio.run(main())
    """,
    "a stream is left half way": """
        async def main():
            sandbox = make()
            async for item in sandbox.stream("while True: print('x' * 1000)"):
                break
            show()
        asyncio.run(main())
    """,
    "a session's stream is left half way": """
        async def main():
            async with make() as sandbox:
                session = sandbox.session()
                async for item in session.stream("while True: print('x' * 1000)"):
                    break
                show()
        asyncio.run(main())
    """,
    "a checkpoint is kept": """
        async def main():
            sandbox = make()
            session = sandbox.session()
            await session.run("x = 1")
            mark = await session.checkpoint()
            show()
            return mark
        mark = asyncio.run(main())
    """,
    "a checkpoint with files is kept": """
        async def main():
            workspace = Path(sys.argv[2], str(os.getpid()))
            workspace.mkdir(parents=True)
            sandbox = make(workspace=workspace)
            session = sandbox.session()
            await session.run("open('a.txt', 'w').write('x')")
            mark = await session.checkpoint(files=True)
            show()
            return mark
        mark = asyncio.run(main())
    """,
    "the loop is closed at once": """
        async def main():
            sandbox = make()
            session = sandbox.session()
            await session.run("x = 1")
            await session.close()
            await sandbox.run("1")
            show()
            return session
        loop = asyncio.new_event_loop()
        session = loop.run_until_complete(main())
        loop.close()
        del loop
        gc.collect()
    """,
    "another loop goes on with it": """
        async def main(sandbox):
            session = sandbox.session()
            await session.run("x = 1")
            assert (await sandbox.run("1 + 1")).value == 2
            show()
        sandbox = make()
        for _ in range(2):
            asyncio.run(main(sandbox))
    """,
}


def check(way: str, wall: str, folder: Path, times: int) -> None:
    temporary = folder / "tmp"
    temporary.mkdir(mode=0o711)
    env = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[2])}
    pids = run_often(_PROLOGUE, textwrap.dedent(_WAYS[way]), times, folder, wall, "workspace", env=env).split()
    assert len(pids) >= times
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (any(map(is_alive, pids)) or any(temporary.iterdir())):
        time.sleep(0.01)
    assert [pid for pid in pids if is_alive(pid)] == []
    assert list(temporary.iterdir()) == []


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("wall", ["bubblewrap", "none", "monty"])
@pytest.mark.parametrize("way", _WAYS)
def test_it_always_ends_silently(way: str, wall: str, workspace: Path) -> None:
    check(way, wall, workspace, times=3)
