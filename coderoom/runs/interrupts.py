"""Ctrl-C, SIGTERM and SIGHUP: routed to a callback, to a running cell, or to AutoGen's cancellation token."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from autogen_core import CancellationToken

    from coderoom.sandbox import Session

EXIT_INTERRUPTED = 130

_CANCEL_AGAIN_SECONDS: Final = 0.1
_END_OTHERS_SECONDS: Final = 0.8
_END_ALL_SECONDS: Final = 1.7
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def route_signals(callback: Callable[[], None]) -> Iterator[None]:
    """Route SIGINT, SIGTERM and SIGHUP to a callback in the event loop."""
    loop = asyncio.get_running_loop()
    caught = []
    for number in _SIGNALS:
        # Outside of the main thread, the caller's own handlers stay.
        with suppress(RuntimeError, ValueError):
            loop.add_signal_handler(number, callback)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


class Interrupt:
    """An interrupt of `coderoom exec` or `solve`.

    While a cell runs, the first interrupt cancels the cell, so that its output so far is kept. At any other time, and
    the second time, it cancels the task that created this object.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._requested = asyncio.Event()
        self._in_cell = False

    @property
    def requested(self) -> bool:
        """Whether there was one."""
        return self._requested.is_set()

    def caught(self) -> AbstractContextManager[None]:
        """Route signals here."""
        return route_signals(self.request)

    @contextmanager
    def ends_cell(self, session: Session) -> Iterator[None]:
        """While this lasts, an interrupt cancels the cell that runs in the session."""
        ending = asyncio.ensure_future(self._end(session))
        self._in_cell = True
        try:
            yield
        finally:
            self._in_cell = False
            ending.cancel()

    def request(self) -> None:
        """Interrupt it."""
        gently = self._in_cell and not self.requested
        self._requested.set()
        if not gently and self._task is not None:
            self._task.cancel()

    async def _end(self, session: Session) -> None:
        await self._requested.wait()
        while True:  # The cell may not have started yet.
            await session.cancel()
            await asyncio.sleep(_CANCEL_AGAIN_SECONDS)


@contextmanager
def cancel_on_signal(token: CancellationToken, *, owns_process: bool = False) -> Iterator[None]:
    """Route SIGINT, SIGTERM and SIGHUP to a cancellation token.

    `owns_process` says that the process does nothing else. Then what does not end by itself is killed: first the child
    processes, which some of AutoGen's executors wait for, and at last this process.
    """
    from coderoom.executors import end_descendants  # which needs AutoGen; `coderoom exec` does without

    def end_all() -> None:
        end_descendants()
        os._exit(EXIT_INTERRUPTED)

    # Threads, because what does not end may block the event loop.
    timers = [threading.Timer(_END_OTHERS_SECONDS, end_descendants), threading.Timer(_END_ALL_SECONDS, end_all)]

    def cancel() -> None:
        for timer in timers:
            if owns_process and timer.ident is None:
                timer.daemon = True
                timer.start()
        token.cancel()

    try:
        with route_signals(cancel):
            yield
    finally:
        if timers[0].ident is not None:  # What is left is to say how it ended; a second Ctrl-C must not cut that off.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        for timer in timers:
            timer.cancel()
