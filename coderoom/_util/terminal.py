"""Shares the terminal: a display that refreshes itself pauses while a person is asked.

Used by what asks at the terminal, and by the display of `coderoom run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

Pause = Callable[[], AbstractContextManager[None]]

_pauses: list[Pause] = []


@contextmanager
def pausing_for_questions(pause: Pause) -> Iterator[None]:
    """While this lasts, `pause()` is entered around each question."""
    _pauses.append(pause)
    try:
        yield
    finally:
        _pauses.remove(pause)


@contextmanager
def asking() -> Iterator[None]:
    """Pause all displays, for a question at the terminal."""
    with ExitStack() as stack:
        for pause in _pauses:
            stack.enter_context(pause())
        yield
