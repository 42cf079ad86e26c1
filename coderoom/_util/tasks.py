"""Waits that survive cancellation, for work that must be finished or cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def run_uncancellable(work: Awaitable[T]) -> T:
    """Finish `work` even if the surrounding task is cancelled meanwhile. Only for work of bounded time."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    retrieve_exception(task)
    try:
        raise cancelled
    finally:
        del cancelled  # Breaks the reference cycle of exception and frame.


async def cancel_and_wait(task: asyncio.Future[Any], patience: float | None = None) -> None:
    """Cancel a task if it is not done, and wait for its end; a second cancellation is passed on to it.

    A task that does not end within `patience` seconds is left to itself; `None`: unlimited.
    """
    cancelled: asyncio.CancelledError | None = None
    end = None if patience is None else time.monotonic() + patience
    while not task.done() and (end is None or time.monotonic() < end):
        task.cancel()
        try:
            await asyncio.wait((task,), timeout=None if end is None else max(0.0, end - time.monotonic()))
        except asyncio.CancelledError as error:
            cancelled = error
    task.add_done_callback(retrieve_exception)
    if cancelled is not None:
        try:
            raise cancelled
        finally:
            del cancelled


def call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    """Call something in an event loop, from any thread, and perhaps after the loop was closed."""
    with contextlib.suppress(RuntimeError):  # All that lived in a closed loop is gone.
        loop.call_soon_threadsafe(call, *arguments)


def retrieve_exception(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a done task that nobody may be waiting for, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
