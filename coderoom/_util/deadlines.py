"""Time limits that do not run while a person decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Final

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
