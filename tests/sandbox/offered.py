"""What the tests of functions of the host offer, and how they run code that calls it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from coderoom.sandbox import ExecutionResult, Sandbox

__all__ = ["RELEASED", "aadd", "add", "block", "echo", "error_of", "hang", "later", "plus", "run", "value_of"]

RELEASED = threading.Event()


async def run(sandbox: Sandbox, code: str, *functions: Any) -> ExecutionResult:
    async with sandbox.session(functions=functions) as session:
        return await session.run(code)


async def value_of(sandbox: Sandbox, code: str, *functions: Any) -> Any:
    result = await run(sandbox, code, *functions)
    assert result.success, result.output
    return result.value


def add(a: int, b: int = 2, *, times: float = 1.0) -> float:
    """Add two numbers.

    And multiply.
    """
    return (a + b) * times


async def later(text: str) -> str:
    """Answer a little later."""
    await asyncio.sleep(0)
    return text + "!"


def echo(value: Any) -> Any:
    """Return it."""
    return value


def plus(a: int, b: int) -> int:
    return a + b


plus.__name__ = "add"


async def aadd(a: int, b: int) -> int:
    return a + b


def block() -> None:
    RELEASED.wait(30)


async def hang() -> None:
    await asyncio.sleep(3600)


def error_of(result: ExecutionResult) -> tuple[str, str]:
    assert result.error is not None, result
    return result.error.type, result.error.message
