"""What the drivers share: a sandbox, what is told of a result, and whether the sandbox still works."""

from __future__ import annotations

import time
from typing import Any

from coderoom.sandbox import ExecutionResult, Sandbox

__all__ = ["attempt", "still_works", "told"]


def told(result: ExecutionResult, seconds: float | None = None) -> dict[str, Any]:
    """What a test may want to know of a result."""
    return {
        "outcome": result.outcome.value,
        "exit_code": result.exit_code,
        "limit": result.limit,
        "error": None if result.error is None else result.error.type,
        "message": "" if result.error is None else result.error.message[:500],
        "output": result.output[:4000],
        "value": result.value if isinstance(result.value, (bool, int, float, str, type(None), list, dict)) else "?",
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
