# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Code that does not end and does not let itself be interrupted."""

from __future__ import annotations

import asyncio
import platform
from typing import Any

import pytest

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, still_works

LOOPS = {
    "python": "while True: pass",
    "python that catches": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "a regular expression": "import re\nre.match(r'(a*)*b', 'a' * 60)",
    "sleep without signals": "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\ntime.sleep(1000)",
    "signals that are ignored": "import signal\nfor n in signal.valid_signals():\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\nwhile True: pass",
    "a lock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "it stops itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "it is stopped": "import os, signal, time\nif not os.fork():\n    os.kill(os.getppid(), signal.SIGSTOP)\n    while True: time.sleep(1)\nwhile True: pass",
    "it waits for a child": "import os, time\nif not os.fork(): time.sleep(1000)\nos.wait()",
    "a finalizer": "class C:\n    def __del__(self):\n        while True: pass\nC()",
    "the value's repr": "class C:\n    def __repr__(self):\n        while True: pass\nC()",
    "the exception's text": "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E",
    "a tracer": "import sys\ndef trace(*_):\n    while True: pass\nsys.settrace(trace)\n(lambda: 0)()",
    "a descent": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): f()\nwhile True:\n    try: f()\n    except RecursionError: pass",
    "vfork": "import ctypes\nif ctypes.CDLL(None).vfork() == 0:\n    while True: pass",
    "a cell that is a fork": "import os\nif os.fork():\n    os._exit(0)\nwhile True: pass",
}
if platform.machine() == "x86_64":
    LOOPS["machine code"] = (
        "import ctypes, mmap\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(b'\\xeb\\xfe')\n"
        "ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()"
    )
OTHERS = {
    "sh": ("while :; do :; done", "sh"),
    "sh that traps": ("trap '' INT TERM HUP QUIT; while :; do sleep 100; done", "sh"),
    "sh in the background": ("(trap '' INT TERM; while :; do :; done) & wait", "sh"),
}


async def loop(wall: str, code: str, language: str) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox:
        async with sandbox.session() as session:
            await session.run("x = 1")
            mark = await session.checkpoint()
            once, kept = await asyncio.gather(
                attempt(sandbox, code, 0.5, language=language), attempt(session, code, 0.5, language=language)
            )
            await session.rollback(mark)
            back = (await attempt(session, "x", 10))["value"]
        return {"once": once, "kept": kept, "back": back, "works": await still_works(sandbox)}


@pytest.mark.parametrize("name", [*LOOPS, *OTHERS])
def test_it_ends_at_its_time(caged_once: Caged, name: str) -> None:
    code, language = OTHERS[name] if name in OTHERS else (LOOPS[name], "python")
    found = caged_once(loop, code, language)
    assert found["works"]
    assert found["back"] == 1
    for which in ("once", "kept"):
        # Some of them meet another limit before.
        assert found[which]["outcome"] in ("timeout", "memory", "error", "ok"), found
        assert found[which]["seconds"] < 10, found
