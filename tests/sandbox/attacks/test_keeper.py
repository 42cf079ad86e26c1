# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Attacks on number 1 of the room, and on what else the code finds beside it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from coderoom.sandbox import Limits, Sandbox

from .conftest import Caged
from .hostside import attempt, still_works

SIGNALS = "import os, signal\nfor number in signal.valid_signals():\n    try: os.kill({target}, number)\n    except OSError: pass\n"
ATTACKS = {
    "an interrupt": "import os, signal\nfor _ in range(100): os.kill(1, signal.SIGINT)\n'alive'",
    "every signal": SIGNALS.replace("{target}", "1") + "'alive'",
    "queued signals": """
import ctypes, signal
libc = ctypes.CDLL(None)
info = (ctypes.c_int * 32)()
for number in range(1, 65):
    info[0], info[2] = number, -1
    libc.syscall(129, 1, number, info)
'alive'""",
    "processor time": """
import resource
for limits in ((0, 0), (1, 1)):
    try: resource.prlimit(1, resource.RLIMIT_CPU, limits)
    except OSError: pass
'alive'""",
    "its other limits": """
import resource
for name in dir(resource):
    if name.startswith("RLIMIT_"):
        try: resource.prlimit(1, getattr(resource, name), (0, 0))
        except (OSError, ValueError): pass
'alive'""",
    "its priority": """
import os
changed = []
try: os.setpriority(os.PRIO_PROCESS, 1, 19)
except OSError: pass
try: os.setpriority(os.PRIO_USER, os.getuid(), 19)
except OSError: pass
try: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))
except OSError: pass
try: os.sched_setaffinity(1, [min(os.sched_getaffinity(1))])
except OSError: pass
(os.getpriority(os.PRIO_PROCESS, 1), os.sched_getscheduler(1), len(os.sched_getaffinity(1)) == len(os.sched_getaffinity(0)))
""",
}


async def drive(wall: str, code: str) -> dict[str, Any]:
    async with Sandbox(wall, limits=Limits(cpu_seconds=30)) as sandbox:
        once = await attempt(sandbox, code, 10)
        after = await still_works(sandbox)
        async with sandbox.session() as session:
            await session.run("x = 1")
            kept = await attempt(session, code, 10)
            later = await attempt(session, "x")
        return {"once": once, "kept": kept, "later": later, "works": after and await still_works(sandbox)}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_keeper_goes_on(caged: Caged, name: str) -> None:
    found = caged(drive, ATTACKS[name])
    assert found["works"]
    if name == "its priority":
        assert found["once"]["value"] == [os.getpriority(os.PRIO_PROCESS, 0), 0, True]
    else:
        assert found["once"]["value"] == found["kept"]["value"] == "alive"
    assert found["later"]["value"] == 1
