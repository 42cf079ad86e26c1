# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Processes that leave their session, their parents and their group, to outlive what they were started in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import all_gone, attempt, still_works

BEAT = """
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
def beat():
    while True:
        time.sleep(0.02)
        try: open("/workspace/beat", "a").write("x")
        except OSError: pass
def deaf():
    for number in signal.valid_signals():
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
"""
ESCAPES = {
    "twice forked": "if not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n    deaf(); beat()",
    "many times forked": "if not os.fork():\n    for _ in range(10):\n        os.setsid() if os.getpgrp() != os.getpid() else 0\n        if os.fork(): os._exit(0)\n    deaf(); beat()",
    "a reaper of its own": "if not os.fork():\n    os.setsid(); libc.prctl(36, 1, 0, 0, 0)\n    if not os.fork():\n        if os.fork(): os._exit(0)\n        beat()\n    deaf(); beat()",
    "no signal from the parent": "if not os.fork():\n    libc.prctl(1, 0, 0, 0, 0); libc.prctl(4, 0, 0, 0, 0); deaf(); beat()",
    "stopped": "if not os.fork():\n    os.setsid()\n    p = os.fork()\n    if not p: beat()\n    os.kill(p, signal.SIGSTOP)\n    time.sleep(0.1); os.kill(p, signal.SIGCONT); os._exit(0)",
    "always new": "if not os.fork():\n    os.setsid()\n    while True:\n        if os.fork(): os._exit(0)\n        try: open('/workspace/beat', 'a').write('x')\n        except OSError: pass",
    "a program": "import subprocess\nsubprocess.Popen(['setsid', '-f', 'sh', '-c', 'trap \"\" 1 2 3 13 15; while :; do echo x >> /workspace/beat; sleep 0.02; done'])",
    "nohup": "import subprocess\nsubprocess.Popen('nohup sh -c \"while :; do echo x >> /workspace/beat; sleep 0.02; done\" >/dev/null 2>&1 &', shell=True)",
    "vfork": "if not os.fork():\n    os.setsid()\n    if libc.vfork() == 0:\n        deaf(); beat()",
    "threads only": "import threading\nif not os.fork():\n    os.setsid()\n    threading.Thread(target=beat).start()\n    libc.syscall(60, 0)",
}


async def silent(beat: Path) -> bool:
    """Whether nothing beats any more, a moment after it should have ended."""
    await asyncio.sleep(0.05)
    size = beat.stat().st_size if beat.exists() else 0
    await asyncio.sleep(0.25)
    return (beat.stat().st_size if beat.exists() else 0) == size


async def escape(wall: str, folder: Path, code: str) -> dict[str, Any]:
    folder.mkdir()
    folder.chmod(0o777)
    beat = folder / "beat"
    found: dict[str, Any] = {}
    start = f"{BEAT}{code}\n"
    async with Sandbox(wall, workspace=folder) as sandbox:
        session = sandbox.session()
        await session.run("x = 1")
        mark = await session.checkpoint()
        await attempt(session, start + "while True: pass", 0.5)
        found["a timeout"] = await silent(beat)
        task = asyncio.ensure_future(session.run(start + "while True: time.sleep(1)"))
        await asyncio.sleep(0.3)
        await session.cancel()
        await task
        found["a cancellation"] = await silent(beat)
        await attempt(session, start + "time.sleep(0.1)")
        await session.rollback(mark)
        found["a rollback"] = await silent(beat)
        await attempt(session, start + "time.sleep(0.1)")
        await session.restart()
        found["a restart"] = await silent(beat)
        await attempt(session, start + "time.sleep(0.1); os._exit(0)")
        found["the process"] = await silent(beat)
        await attempt(session, start + "time.sleep(0.1)")
        await session.close()
        await asyncio.sleep(0.2)
        found["a session"] = await silent(beat)
        await attempt(sandbox, start + "time.sleep(0.1)")
        await asyncio.sleep(0.2)
        found["a run"] = await silent(beat)
        assert await still_works(sandbox)
        session = sandbox.session()
        await attempt(session, start + "time.sleep(0.1)")
    found["the sandbox"] = await silent(beat)
    found["ran"] = beat.exists() and beat.stat().st_size > 0
    return found


async def escapes(wall: str, folder: str) -> dict[str, Any]:
    few = asyncio.Semaphore(3)

    async def one(number: int, code: str) -> dict[str, Any]:
        async with few:
            return await escape(wall, Path(folder, str(number)), code)

    found = await asyncio.gather(*(one(number, code) for number, code in enumerate(ESCAPES.values())))
    return {"found": dict(zip(ESCAPES, found, strict=True)), "left": await all_gone(5)}


def test_nobody_outlives_it(caged_once: Caged, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    told = caged_once(escapes, str(tmp_path), seconds=100)
    assert told["left"] == []
    for name, found in told["found"].items():
        assert found.pop("ran"), f"{name} was no attack"
        assert all(found.values()), (name, found)
