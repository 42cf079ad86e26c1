"""Processes that do not want to end: with their cell, their session, or their sandbox."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, still_works

DAEMON = """
import ctypes, os, signal, time
if os.fork() == 0:
    os.setsid()
    for number in signal.valid_signals():
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
        while True: time.sleep(0.05); open(BEAT, "a").write("x")
    os._exit(0)
time.sleep(0.3)
"""
CHAINS = """
import os, time
try:
    for _ in range(20):
        if os.fork() == 0:
            while True:
                try:
                    if os.fork(): os._exit(0)
                except OSError: pass
except OSError: pass
while True:
    try: time.sleep(1)
    except BaseException: pass
"""
# Those that have ended wait a moment for their supervisor.
COUNT = """
import os
def is_alive(pid):
    try: return b") Z" not in open(f"/proc/{pid}/stat", "rb").read()
    except OSError: return False
len([1 for name in os.listdir("/proc") if name.isdigit() and is_alive(name)])
"""
STOP = "import os, signal\nos.kill(-1, signal.SIGSTOP)\n'stopped'"
KILL = "import os, signal\nos.kill(-1, signal.SIGKILL)\n'killed'"


def living() -> list[str]:
    """All processes of the cage but the driver's own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name not in ("1",):
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if " Z " not in stat:
                found.append(
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200] or stat[:60]
                )
    return found


async def linger(wall: str, folder: str) -> dict[str, Any]:
    beat = Path(folder) / "beat"
    async with Sandbox(wall, workspace=folder) as sandbox:
        async with sandbox.session() as session:
            await session.run(f"BEAT = '/workspace/beat'\n{DAEMON}")
            assert beat.exists()
            mark = await session.checkpoint()
            await session.rollback(mark)
            size = beat.stat().st_size
            time.sleep(0.5)
            rolled = beat.stat().st_size - size
            await session.run(f"BEAT = '/workspace/beat'\n{DAEMON}")
        assert await still_works(sandbox)
        size = beat.stat().st_size
        time.sleep(0.5)
        closed = beat.stat().st_size - size
        await sandbox.run(f"BEAT = '/workspace/beat'\n{DAEMON}")
        assert await still_works(sandbox)
        size = beat.stat().st_size
        time.sleep(0.5)
        once = beat.stat().st_size - size
    time.sleep(0.3)
    return {"after a rollback": rolled, "after a session": closed, "after a run": once, "left": living()}


def test_nothing_outlives_what_it_was_started_in(caged: Caged, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert caged(linger, str(tmp_path)) == {"after a rollback": 0, "after a session": 0, "after a run": 0, "left": []}


async def race(wall: str, code: str, keep: bool) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox:
        async with sandbox.session() as session:
            await session.run("x = 1")
            mark = await session.checkpoint() if keep else None
            first = await attempt(session, code, 2)
            alive = await attempt(session, COUNT, 5)
            back = None
            if mark is not None:
                await session.rollback(mark)
                back = (await attempt(session, "x", 5))["value"]
        return {"first": first, "alive": alive, "back": back, "works": await still_works(sandbox)}


@pytest.mark.parametrize("keep", [False, True], ids=["alone", "with a checkpoint"])
def test_chains_of_forks_are_ended(caged: Caged, keep: bool) -> None:
    found = caged(race, CHAINS, keep)
    assert found["works"]
    assert found["alive"]["value"] <= 4, found
    if keep:
        assert found["back"] == 1


async def tamper(wall: str, code: str) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox:
        async with sandbox.session() as session:
            await session.run("x = 1")
            mark = await session.checkpoint()
            await session.rollback(mark)
            found = await attempt(session, code, 10)
            try:
                await session.rollback(mark)
                back: Any = (await attempt(session, "x", 5))["value"]
            except (RequestError, SandboxUnavailable) as error:
                back = str(error)
            again = await attempt(session, "1 + 1", 5)
        return {
            "found": found,
            "back": back,
            "again": again["value"],
            "works": await still_works(sandbox),
        }


@pytest.mark.parametrize("code", [STOP, KILL], ids=["stopped", "killed"])
def test_checkpoints_that_are_tampered_with(caged: Caged, code: str) -> None:
    found = caged(tamper, code)
    assert found["works"]
    assert found["again"] == 2
    assert found["found"]["outcome"] in ("ok", "error")
