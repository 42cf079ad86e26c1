"""Ctrl-C, and its like, for code that runs in a session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from coderoom.runs.catching import signals_go_to
from coderoom.sandbox import Session

__all__ = ["Interrupt"]

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

    def caught(self) -> AbstractContextManager[None]:
        """While this lasts, Ctrl-C, SIGTERM and the terminal's end are taken for the wish."""
        return signals_go_to(self._ask)

    @contextmanager
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
