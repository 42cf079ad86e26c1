# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Code whose end is the attack: hooks, threads and finalizers that hang, fail, or go on."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, living, still_works

HANG = "def hang(*_, **__):\n    while True:\n        try: time.sleep(1000)\n        except BaseException: pass\n"
EXITS = {
    "a hook": "import atexit\natexit.register(hang)",
    "hooks without end": "import atexit\ndef again(): atexit.register(again)\natexit.register(again)",
    "a thread": "import threading\nthreading.Thread(target=hang).start()",
    "a thread of a thread": "import threading\ndef more():\n    while True:\n        try: threading.Thread(target=more).start()\n        except RuntimeError: time.sleep(0.01)\nmore()",
    "a pool": "import concurrent.futures\npool = concurrent.futures.ThreadPoolExecutor(4)\nfor _ in range(8): pool.submit(hang)",
    "a finalizer": "import weakref\nclass C: pass\nc = C()\nweakref.finalize(c, hang)",
    "a destructor": "class C:\n    def __del__(self): hang()\nc = C()",
    "the shutdown": "import threading\nthreading._shutdown = hang",
    "the hooks' runner": "import atexit\natexit._run_exitfuncs = hang\natexit.register(print)",
    "the counter": "import threading\nthreading.active_count = hang",
    "the hook for exceptions": "import sys\nsys.excepthook = hang\nraise ValueError",
    "the hook for threads": "import threading\nthreading.excepthook = hang\nthreading.Thread(target=lambda: 1 / 0).start()",
    "an audit hook": "import sys\nsys.addaudithook(lambda name, _: hang() if name not in ('time.sleep',) else None)",
    "a stop with a strange code": "class I(int):\n    def __and__(self, other): hang()\nraise SystemExit(I(3))",
    "a stop with a text": "class T:\n    def __str__(self): hang()\nraise SystemExit(T())",
    "a huge code": "raise SystemExit(10 ** 100)",
    "a fork": "import os\nos.fork()\nraise SystemExit(0)",
    "forks that stay": "import os\nif not os.fork(): hang()",
    "a loop of events": "import asyncio\nasync def f():\n    try: await asyncio.sleep(1000)\n    finally: hang()\nt = asyncio.new_event_loop().create_task(f())",
    "the exit itself": "import os\nos._exit = hang",
    "a hook for forks": "import os\nos.register_at_fork(before=hang, after_in_child=hang, after_in_parent=hang)",
}


async def leave(wall: str, code: str) -> dict[str, Any]:
    before = len(living())
    async with Sandbox(wall) as sandbox:
        once = await attempt(sandbox, f"import time\n{HANG}{code}", 0.5)
        async with sandbox.session() as session:
            kept = await attempt(session, f"import time\n{HANG}{code}", 0.5)
            again = await attempt(session, "1 + 1", 0.5)
            afresh = await attempt(session, "1 + 1", 5)
            await session.restart()
            restarted = await attempt(session, "1 + 1", 5)
        works = await still_works(sandbox)
    left = living()[before:]
    return {
        "once": once,
        "kept": kept,
        "again": again,
        "afresh": afresh,
        "restarted": restarted,
        "works": works,
        "left": left,
    }


@pytest.mark.parametrize("name", EXITS)
def test_the_end_comes_all_the_same(caged_once: Caged, name: str) -> None:
    found = caged_once(leave, EXITS[name])
    assert found["works"]
    assert found["restarted"]["value"] == 2, found
    for which in ("once", "kept", "again", "afresh"):
        assert found[which]["seconds"] < 15, found
