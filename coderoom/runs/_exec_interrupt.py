"""Ctrl-C, and its like, for code that runs in a session."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import Final

from coderoom.sandbox import Session

__all__ = ["Interrupt"]

_SIGNALS: Final = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_AGAIN_SECONDS: Final = 0.1


class Interrupt:
    """Whether a person or a program wants an end.

    While a cell runs it is asked to end, so that what it has printed is not lost. Else the task is cancelled that made
    this; so it is when somebody asks a second time.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._asked = asyncio.Event()
        self._in_cell = False

    @property
    def asked(self) -> bool:
        """Whether somebody has asked."""
        return self._asked.is_set()

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """While this lasts, Ctrl-C, SIGTERM and the terminal's end are taken for the wish."""
        loop = asyncio.get_running_loop()
        caught = []
        for number in _SIGNALS:
            # Not in the main thread, or not on this system: then the caller's own ways apply.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self._ask)
                caught.append(number)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    @contextlib.contextmanager
    def ends_cell(self, session: Session) -> Iterator[None]:
        """While this lasts, the wish ends the cell that runs in the session."""
        ending = asyncio.ensure_future(self._end(session))
        self._in_cell = True
        try:
            yield
        finally:
            self._in_cell = False
            ending.cancel()

    def _ask(self) -> None:
        gently = self._in_cell and not self.asked
        self._asked.set()
        if not gently and self._task is not None:
            self._task.cancel()

    async def _end(self, session: Session) -> None:
        await self._asked.wait()
        while True:  # The cell may not have begun yet, so it is asked more than once.
            await session.cancel()
            await asyncio.sleep(_AGAIN_SECONDS)
