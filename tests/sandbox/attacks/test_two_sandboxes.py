# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Two sandboxes, and two sessions of one, that signal, trace and look at each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, living, still_works

SIGNAL = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
mine = {os.getpid()} | {int(name) for name in os.listdir("/proc") if name.isdigit()}
reached = []
for pid in [pid for pid in range(1, 3000) if pid not in mine] + NUMBERS:
    if pid in mine: continue
    for call in (lambda: os.kill(pid, 9), lambda: os.kill(-pid, 9), lambda: os.killpg(pid, 9), lambda: os.pidfd_open(pid),
                 lambda: os.sched_setaffinity(pid, [0]), lambda: os.getpriority(os.PRIO_PROCESS, pid), lambda: os.getsid(pid)):
        try: call()
        except OSError: continue
        reached.append(pid)
    for number in (200, 234):
        if libc.syscall(number, pid, pid, 9) == 0: reached.append(pid)
info = (ctypes.c_int * 32)()
for pid in NUMBERS:
    if pid not in mine and libc.syscall(129, pid, 9, info) == 0: reached.append(pid)
reached
"""
ALL = """
import os, signal
for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
    for pid in (-1, 0):
        try: os.kill(pid, number)
        except OSError: pass
"""
OWNER = """
import fcntl, os, socket
reached = []
one, other = socket.socketpair()
for pid in NUMBERS:
    try:
        fcntl.fcntl(one, fcntl.F_SETOWN, pid)
        fcntl.fcntl(one, 10, 9)
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
        other.send(b"x")
    except OSError: continue
    reached.append(pid)
len(reached) >= 0
"""


def outside() -> list[int]:
    """All that runs in the cage, as the driver sees it."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


async def fight(wall: str, code: str, same: bool) -> dict[str, Any]:
    async with Sandbox(wall) as one, Sandbox(wall) as another:
        victims = one if same else another
        async with victims.session() as victim, one.session() as attacker:
            await victim.run("import os\nx = 41\nif not os.fork():\n    import time\n    time.sleep(60)")
            mark = await victim.checkpoint()
            await attacker.run("1")
            before = len(living())
            found = await attempt(attacker, f"NUMBERS = {outside()}\n{code}", 3 if code == ALL else 20)
            lost = before - len(living())
            after = await attempt(victim, "x + 1")
            await victim.rollback(mark)
            back = await attempt(victim, "x + 2")
        works = await still_works(one) and await still_works(another)
        return {"found": found, "after": after["value"], "back": back["value"], "lost": lost, "works": works}


@pytest.mark.parametrize("same", [True, False], ids=["one sandbox", "two"])
@pytest.mark.parametrize("code", [SIGNAL, ALL, OWNER], ids=["each", "all", "owners"])
def test_they_do_not_reach_each_other(caged: Caged, code: str, same: bool) -> None:
    found = caged(fight, code, same)
    assert found["works"]
    assert found["after"] == 42, found
    assert found["back"] == 43, found
    if code == SIGNAL:
        assert found["found"]["value"] == [], found
    if code != ALL:
        assert found["lost"] <= 0, found


SHARE = (
    "open('/tmp/mine', 'w').write('x'); open('/dev/shm/mine', 'w').write('x'); open('/workspace/mine', 'w').write('x')"
)
LOOK = """
import glob, os
found = [path for path in ("/tmp/mine", "/dev/shm/mine", "/workspace/mine") if os.path.exists(path)]
found += glob.glob("/proc/[0-9]*/root/tmp/mine") + glob.glob("/proc/[0-9]*/cwd/mine")
found + [line for line in open("/proc/locks") if " -1 " not in line] + [name for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid())]
"""


async def share(wall: str) -> Any:
    async with Sandbox(wall) as sandbox, sandbox.session() as one, sandbox.session() as other:
        await one.run(f"import fcntl\n{SHARE}\nf = open('/tmp/mine')\nfcntl.flock(f, fcntl.LOCK_EX)")
        return (await attempt(other, LOOK))["value"]


def test_sessions_share_nothing(caged: Caged) -> None:
    assert caged(share) == []
