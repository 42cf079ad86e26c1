# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Forks and threads without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coderoom.sandbox import Limits, Sandbox

from .conftest import Caged
from .hostside import all_gone, attempt, living, still_works

BOMBS = {
    "forks": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "forks that wait": "import os, time\nn = 0\ntry:\n    while True:\n        if not os.fork(): time.sleep(100)\n        n += 1\nexcept OSError: pass\nn",
    "forks that end": "import os\nwhile True:\n    try:\n        if not os.fork(): os._exit(0)\n    except OSError: pass",
    "forks in sessions": "import os\nwhile True:\n    try:\n        if not os.fork(): os.setsid()\n    except OSError: pass",
    "threads": "import threading, time\nn = 0\ntry:\n    while True: threading.Thread(target=time.sleep, args=(100,), daemon=True).start(); n += 1\nexcept RuntimeError: pass\nn",
    "threads of forks": "import os, threading, time\nfor _ in range(10):\n    if not os.fork(): break\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(100,)).start()\n    except RuntimeError: pass",
    "a shell's": ":(){ :|:& };:\nwait",
    "programs": "import subprocess\nkeep = []\nwhile True:\n    try: keep.append(subprocess.Popen(['sleep', '100']))\n    except OSError: pass",
    "raw clones": "import ctypes\nlibc = ctypes.CDLL(None)\nwhile True: libc.syscall(56, 17, 0, 0, 0, 0)",
    "clones in families": "import ctypes\nlibc = ctypes.CDLL(None)\nfor flags in (0x8000, 0x8011, 0x10000000, 0x20000000, 0x2000000):\n    assert libc.syscall(56, flags | 17, 0, 0, 0, 0) == -1\nwhile True: pass",
}


async def burst(wall: str, code: str, language: str) -> dict[str, Any]:
    idle = len(living())
    async with Sandbox(wall, limits=Limits(processes=40, wall_seconds=2)) as sandbox, sandbox.session() as innocent:
        await innocent.run("x = 41")
        started = len(living()) - idle
        async with sandbox.session() as session:
            await session.run("y = 1")
            mark = await session.checkpoint()
            task = asyncio.ensure_future(attempt(session, code, language=language))
            most = 0
            while not task.done():
                await asyncio.sleep(0.02)
                most = max(most, len(living()) - idle - started)
            kept = await task
            await session.rollback(mark)
            back = (await attempt(session, "y"))["value"]
            other = (await attempt(innocent, "x + 1"))["value"]
        once = await attempt(sandbox, code, language=language)
        works = await still_works(sandbox)
    left = await all_gone()
    return {"kept": kept, "once": once, "most": most, "back": back, "other": other, "works": works, "left": left}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_stay_small(caged_once: Caged, name: str) -> None:
    found = caged_once(burst, BOMBS[name], "sh" if name == "a shell's" else "python")
    assert found["works"]
    assert found["other"] == 42
    assert found["back"] == 1
    assert found["left"] == []
    assert found["most"] < 40 + 20, found
