"""What the drivers share: a sandbox, what is told of a result, and whether the sandbox still works."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from coderoom.sandbox import ExecutionResult, Sandbox

__all__ = ["all_gone", "attempt", "living", "open_files", "resident", "still_works", "told", "watched"]


def told(result: ExecutionResult, seconds: float | None = None) -> dict[str, Any]:
    """What a test may want to know of a result."""
    return {
        "outcome": result.outcome.value,
        "exit_code": result.exit_code,
        "limit": result.limit,
        "error": None if result.error is None else result.error.type,
        "message": "" if result.error is None else result.error.message[:500],
        "output": result.output[:4000],
        "value": result.value
        if isinstance(result.value, (bool, int, float, str, type(None), list, tuple, dict))
        else "?",
        "lost": result.state_lost,
        "seconds": result.duration if seconds is None else seconds,
    }


async def attempt(sandbox: Any, code: str, timeout: float | None = None, **arguments: Any) -> dict[str, Any]:
    """Run code in a sandbox or a session, and tell what came of it and how long it took to be told."""
    begin = time.monotonic()
    result = await sandbox.run(code, timeout=timeout, **arguments)
    return told(result, time.monotonic() - begin)


async def still_works(sandbox: Sandbox) -> bool:
    """Whether a sandbox runs code and sessions as if nothing had happened."""
    async with sandbox.session() as session:
        await session.run("x = 40")
        later = await session.run("x + 2")
    return (await sandbox.run("print(6 * 7)")).stdout == "42\n" and later.value == 42


def living() -> list[str]:
    """All processes of the cage that live but its first, which is the driver."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != "1":
            try:
                if (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200])
            except OSError:
                continue
    return found


async def all_gone(seconds: float = 10) -> list[str]:
    """Those that still live when all should have ended, which takes the kernel a moment."""
    end = time.monotonic() + seconds
    while living() and time.monotonic() < end:
        await asyncio.sleep(0.02)
    return living()


def open_files() -> int:
    """How many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def resident() -> int:
    """How many MiB of this process are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


async def watched(work: Coroutine[Any, Any, Any]) -> tuple[Any, float, int]:
    """What came of it, how long the event loop stood still at most, and how many MiB this process grew by at most."""
    before, most, longest = resident(), 0, 0.0
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    while not task.done():
        last = loop.time()
        await asyncio.sleep(0.01)
        longest = max(longest, loop.time() - last)
        most = max(most, resident() - before)
    return await task, longest, most
