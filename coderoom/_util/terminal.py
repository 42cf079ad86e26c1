"""The terminal: a display that refreshes itself pauses while a person is asked, and the log for `--debug`."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Pause = Callable[[], AbstractAsyncContextManager[None]]

_pauses: list[Pause] = []


@contextmanager
def pausing_for_questions(pause: Pause) -> Iterator[None]:
    """While this lasts, `pause()` is entered around each question."""
    _pauses.append(pause)
    try:
        yield
    finally:
        _pauses.remove(pause)


@asynccontextmanager
async def asking() -> AsyncIterator[None]:
    """Pause all displays, for a question at the terminal."""
    async with AsyncExitStack() as stack:
        for pause in _pauses:
            await stack.enter_async_context(pause())
        yield


class PlainConsole:
    """Stands for Rich's console where Rich is not installed: text as it is, without colours and what moves.

    Args:
        stderr: Whether to write to standard error.
        quiet: Whether nothing is shown.
    """

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        self.quiet = quiet
        self.file = sys.stderr if stderr else sys.stdout

    def print(self, text: str = "") -> None:
        """Write a line."""
        if not self.quiet:
            self.file.write(f"{text}\n")
            self.file.flush()

    def rule(self, title: str = "") -> None:
        """Write a line across the terminal that begins with a title."""
        self.print(f"{title} ".lstrip().ljust(shutil.get_terminal_size().columns, "-"))


def make_console(*, stderr: bool = False, quiet: bool = False) -> Console | PlainConsole:
    """Rich's console, or a plain one where Rich is not installed, in `coderoom-slim`."""
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return PlainConsole(stderr=stderr, quiet=quiet)
    return Console(stderr=stderr, quiet=quiet)


_NAME = "coderoom"


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """Write what is logged to standard error, steps too."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    logger = logging.getLogger(_NAME)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def is_logging_steps() -> bool:
    """Whether steps are logged."""
    return logging.getLogger(_NAME).isEnabledFor(logging.DEBUG)
