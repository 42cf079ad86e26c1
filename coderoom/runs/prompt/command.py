"""What a command of a chat is. Used where the commands are, and where the prompt completes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coderoom.runs.record import RunRecord


@dataclass(frozen=True)
class Command:
    """A command of a chat.

    Attributes:
        argument: What follows it, in words; empty if nothing does. In brackets it may be left out.
        help: What it does, in a line.
        do: Does it in a `Chat`; returns the record of a task, if it runs one.
        complete: What the argument may be that begins so.
        at_once: Whether it only looks, so that it need not wait until the team has ended.
    """

    argument: str
    help: str
    do: Callable[[Any, str], Awaitable[RunRecord | None]]
    complete: Callable[[str], Iterable[str]] | None = None
    at_once: bool = False
