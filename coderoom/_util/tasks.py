"""Waiting for work: what a token ends, what must be finished, and what takes long.

What work has opened is closed here where nobody else closes it: AutoGen Studio, for instance, makes a team for each run
and does not close it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol, TypeVar
from weakref import ref

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


LARGE: Final = 50_000
"""Characters that are looked at in the event loop; more of them would stop it for too long."""


def is_large(*data: Any) -> bool:
    """Whether texts, data of texts, or messages with texts have more characters than the event loop may look at."""
    left, size = [*data], 0
    while left and size <= LARGE:
        each = left.pop()
        if isinstance(each, str | bytes):
            size += len(each)
        elif isinstance(each, Mapping):
            left += each.values()
            size += len(each)
        elif isinstance(each, list | tuple):
            left += each
            size += len(each)
        elif (content := getattr(each, "content", None)) is not None:
            left.append(content)
    return size > LARGE


async def aside(work: Callable[..., T], *arguments: Any, large: bool = False) -> T:
    """Do something that takes a while with much text: in a thread if an argument, or what it works on, is `large`."""
    if large or is_large(*arguments):
        return await run_uncancellable(in_thread(work, *arguments))
    return work(*arguments)


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Do something in a thread, to its end even if the caller is cancelled; here if there can be no more threads."""
    try:
        done = asyncio.get_running_loop().run_in_executor(None, partial(copy_context().run, work, *arguments))
    except RuntimeError:
        return work(*arguments)
    return await asyncio.shield(done)


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


# --- Closing what calls have opened ---

Open = dict[ref[Any], list[Any]]

_open: dict[asyncio.AbstractEventLoop, tuple[AsyncGenerator[None, None], Open]] = {}


async def close_with_loop(model_client: Any, transports_of: Callable[[Any], list[Any]]) -> None:
    """Close a client's connections when the running event loop ends. The client can still be used in another loop.

    AutoGen's teams do not close clients. Open connections cause warnings when the interpreter ends, and an error when
    the client is used in a second event loop.
    """
    loop = asyncio.get_running_loop()
    if loop not in _open:
        for old in [old for old in _open if old.is_closed()]:
            del _open[old]
        opened: Open = {}
        # Asynchronous generators are closed when a loop ends.
        at_end = _close_at_end(loop, opened)
        _open[loop] = at_end, opened
        await anext(at_end)
    opened = _open[loop][1]
    if ref(model_client) not in opened:
        for dead in [client for client in opened if client() is None]:
            await _close(opened.pop(dead))
        opened[ref(model_client)] = transports_of(model_client)


async def _close_at_end(loop: asyncio.AbstractEventLoop, opened: Open) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _open.pop(loop, None)
        for transports in list(opened.values()):
            await _close(transports)


async def _close(transports: list[Any]) -> None:
    for transport in transports:
        with suppress(Exception):
            await transport.aclose()


Close = Callable[[], Awaitable[None]]

_opened: ContextVar[list[Close] | None] = ContextVar("_opened", default=None)
_requests: set[asyncio.Task[None]] = set()


@asynccontextmanager
async def closing_what_opens() -> AsyncIterator[None]:
    """Close everything that is passed to `at_end_of_run` inside, at the end."""
    opened: list[Close] = []
    _opened.set(opened)
    try:
        yield
    finally:
        await run_uncancellable(_close_all(opened))


def at_end_of_run(close: Close) -> None:
    """Close something at the end of the surrounding run. Does nothing if the run's caller closes its components."""
    opened = _opened.get()
    if opened is not None and close not in opened:
        opened.append(close)


def note_run() -> None:
    """Detect runs of `autogenstudio serve`, which creates a team in the task of each request. Components call this."""
    if "autogenstudio.web.serve" not in sys.modules or _opened.get() is not None:
        return
    try:
        request: asyncio.Task[Any] | None = asyncio.current_task()
    except RuntimeError:  # There is no event loop.
        return
    if request is not None:
        opened: list[Close] = []
        _opened.set(opened)
        request.add_done_callback(lambda _: _close_later(opened))


def _close_later(opened: list[Close]) -> None:
    closing = asyncio.get_running_loop().create_task(_close_all(opened))
    _requests.add(closing)
    closing.add_done_callback(_requests.discard)


async def _close_all(opened: list[Close]) -> None:
    await asyncio.gather(*(close() for close in opened), return_exceptions=True)
