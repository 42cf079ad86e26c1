"""Waiting for work: what a token ends, what must be finished, what is cancelled, and time limits; and work in threads.

Work that takes a while with much text is done in a thread, so that the event loop goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import fields, is_dataclass
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol, TypeVar, cast

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


async def all_of(works: Iterable[Callable[[], Awaitable[T]]], at_once: int) -> list[T]:
    """Do some works, a few at a time; the first failure is raised when all of them have ended."""
    free = asyncio.Semaphore(at_once)

    async def do(work: Callable[[], Awaitable[T]]) -> T:
        async with free:
            return await work()

    done = await asyncio.gather(*map(do, works), return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return cast(list[T], done)


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do some works at the same time; the first failure ends the others, and is raised when all of them have ended."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            await cancel_and_wait(task)


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


def resolve(future: asyncio.Future[None]) -> None:
    """Set the result of a future, if it has none."""
    if not future.done():
        future.set_result(None)


# --- Work in threads ---

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
        elif (picture := getattr(each, "image", None)) is not None:  # AutoGen encodes it whenever it is dumped.
            size += picture.width * picture.height
        elif is_dataclass(each):
            left += [getattr(each, each_field.name) for each_field in fields(each)]
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


_around: Final[ContextVar[tuple[Deadline, ...]]] = ContextVar("coderoom_deadlines", default=())


class Deadline:
    """A time limit that does not run while it is paused.

    Args:
        seconds: How long it takes, without pauses.
        late: Called at its end.
    """

    def __init__(self, seconds: float, late: Callable[[], object]) -> None:
        self._left, self._late = seconds, late
        self._pauses = 0
        self._loop = asyncio.get_running_loop()
        self._go_on()

    def _go_on(self) -> None:
        self._begun = self._loop.time()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(self._left, self._late)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the time for as long as this lasts."""
        if self._timer is not None and not self._pauses:
            self._timer.cancel()
            self._left -= self._loop.time() - self._begun
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._timer is not None and not self._pauses:
                self._go_on()

    def cancel(self) -> None:
        """End the limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@contextmanager
def within(deadline: Deadline) -> Iterator[None]:
    """Have `pausing_deadlines` pause this one too, if it is called in this context."""
    token = _around.set((*_around.get(), deadline))
    try:
        yield
    finally:
        _around.reset(token)
        deadline.cancel()


@contextmanager
def pausing_deadlines() -> Iterator[None]:
    """Pause the time limits around this context for as long as this lasts."""
    with ExitStack() as stack:
        for each in _around.get():
            stack.enter_context(each.paused())
        yield
