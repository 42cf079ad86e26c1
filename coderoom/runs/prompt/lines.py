"""Where the tasks of a chat come from: a person at a terminal, or lines of standard input."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Console, RenderableType

from coderoom._util.terminal import pausing_for_questions
from coderoom.approval.human import input_descriptor, read_line
from coderoom.runs.view import Region

if TYPE_CHECKING:
    from coderoom.runs.prompt.command import Command

_PROMPT: Final = "> "
_NO_TERMINALS: Final = ("", "dumb", "unknown")


class Reader(Protocol):
    """Reads tasks.

    Attributes:
        how: How a task is entered, in words.
        looks: Does a line that is entered while the team works, if it is a command that only looks; else `None`.
        gives: Gives such a line to the team at once, if it is not a command and the team works on a task; else `None`.
    """

    how: str
    looks: Callable[[str], Awaitable[None] | None] | None
    gives: Callable[[str], Awaitable[None] | None] | None

    @property
    def region(self) -> Callable[[Callable[[], RenderableType]], Region] | None:
        """Makes the region for what changes while the team works, for `RunView`."""

    async def read(self) -> str | None:
        """Wait for a task; `None`: there is none any more."""

    def got(self, words: str) -> None:
        """The team has got a line that was given to it, so that it is not a task."""

    def put(self, words: Sequence[str]) -> None:
        """Have words that the team has not got wait as tasks, if they do not wait already."""

    def take_back(self) -> None:
        """Do not go on with tasks that were entered before a task was ended."""


class Lines:
    """Reads a task from each line of standard input; an empty line is the end."""

    how: str = (
        "Each line is a task; /help lists the commands. Ctrl-C ends a task; an empty line, exit or Ctrl-D the chat."
    )
    looks: Callable[[str], Awaitable[None] | None] | None = None
    gives: Callable[[str], Awaitable[None] | None] | None = None
    region: Callable[[Callable[[], RenderableType]], Region] | None = None

    def __init__(self, console: Console) -> None:
        self._console = console
        self._left: deque[str] = deque()

    async def read(self) -> str | None:
        """Wait for a line."""
        if self._left:
            return self._left.popleft()
        descriptor = input_descriptor()
        if descriptor is None:
            return None
        if sys.stdin.isatty():
            self._console.print(f"\n{_PROMPT}", end="", style="bold")
        return (await read_line(descriptor) or "").strip() or None

    def got(self, words: str) -> None:
        """No line is given to the team while it works."""

    def put(self, words: Sequence[str]) -> None:
        """Have words that the team has not got wait as tasks."""
        self._left += words

    def take_back(self) -> None:
        """A line is read when the one before is done."""
        self._left.clear()


@asynccontextmanager
async def reading_tasks(
    console: Console, commands: Mapping[str, Command], *, remembers: bool = True
) -> AsyncIterator[Reader]:
    """What reads the tasks of a chat, while this lasts.

    Args:
        console: Where everything else is shown.
        commands: The commands, for completion.
        remembers: Whether tasks are kept for the next chat.
    """
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "") in _NO_TERMINALS:
        yield Lines(console)
        return
    from coderoom.runs.prompt.history import history_file
    from coderoom.runs.prompt.reading import Prompt

    prompt = Prompt(console, commands=commands, history=history_file() if remembers else None)
    prompt.start()
    try:
        with pausing_for_questions(prompt.aside):
            yield prompt
    finally:
        await prompt.close()
