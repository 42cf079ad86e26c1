"""Waiting for what must not be left half done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["call_in_loop", "ended", "to_its_end"]

T = TypeVar("T")


async def to_its_end(work: Awaitable[T]) -> T:
    """Wait for `work` to its end, also when told to end meanwhile: what is half done could not be taken up.

    Only for what is done in bounded time.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled; the work is done all the same.
    """
    task = asyncio.ensure_future(work)
    told: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            told = error
    if told is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # Nobody is there to hear of it.
    try:
        raise told
    finally:
        del told  # Else it would hold this frame, and this frame it.


async def ended(task: asyncio.Future[Any]) -> None:
    """Cancel a task, if it is not done, and wait for its end; told twice, it is told twice.

    Raises:
        asyncio.CancelledError: The surrounding task was cancelled meanwhile; the other one has ended all the same.
    """
    told: asyncio.CancelledError | None = None
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            told = error
    if not task.cancelled():
        task.exception()  # Nobody is there to hear of it.
    if told is not None:
        try:
            raise told
        finally:
            del told


def call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    """Call something in an event loop, for finalizers, which run in any thread and at any time."""
    with contextlib.suppress(RuntimeError):  # The loop is closed, and nothing of it needs to be ended any more.
        loop.call_soon_threadsafe(call, *arguments)
