"""Waiting for work: what a token ends, what must be finished, and what is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Token(Protocol):
    """AutoGen's cancellation token."""

    def is_cancelled(self) -> bool:
        """Whether it was cancelled."""
        ...

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Have a function called when it is cancelled, or now if it was."""
        ...


async def await_with_token(call: Awaitable[T], cancellation_token: Token) -> T:
    """Wait for `call` and cancel it when the token is cancelled."""
    loop = asyncio.get_running_loop()
    future = asyncio.ensure_future(call)
    if cancellation_token.is_cancelled():
        future.cancel()
    cancellation_token.add_callback(lambda: call_in_loop(loop, future.cancel))
    return await future


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
    end = None if patience is None else monotonic() + patience
    while not task.done() and (end is None or monotonic() < end):
        task.cancel()
        try:
            await asyncio.wait((task,), timeout=None if end is None else max(0.0, end - monotonic()))
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
    with suppress(RuntimeError):  # All that lived in a closed loop is gone.
        loop.call_soon_threadsafe(call, *arguments)


def retrieve_exception(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a done task that nobody may be waiting for, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
