"""Waits that survive cancellation, for work that must be finished or cleaned up, and waits between requests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

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


class RateLimiter(AbstractAsyncContextManager[None]):
    """Spaces requests evenly, without bursts, across event loops and threads.

    Two requests start at least `60 / per_minute` seconds apart, so no more than `per_minute` start within a minute.
    Delays in the network may bring them closer together at the server.
    """

    def __init__(self, per_minute: float) -> None:
        self._seconds = 60 / per_minute
        self._lock = threading.Lock()
        self._last = -math.inf

    async def __aenter__(self) -> None:
        await self.begin()
        _CURRENT.set(self)

    async def __aexit__(self, *_: object) -> None:
        _CURRENT.set(None)

    async def begin(self) -> None:
        """Wait until the next request may start."""
        while (wait := self._take()) > 0:  # noqa: ASYNC110 (an event belongs to one event loop)
            await asyncio.sleep(wait)

    def _take(self) -> float:
        """Start a request if it may start now; return the remaining seconds otherwise."""
        with self._lock:
            now = time.monotonic()
            wait = self._last + self._seconds - now
            if wait <= 0:
                self._last = now
            return wait


_CURRENT: Final[ContextVar[RateLimiter | None]] = ContextVar("rate_limiter", default=None)


async def one_more() -> None:
    """Wait for the rate limiter that the current request passed, if any, before a second attempt."""
    limiter = _CURRENT.get()
    if limiter is not None:
        await limiter.begin()
