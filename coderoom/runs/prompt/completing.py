"""What Tab completes at the prompt of `coderoom chat`: commands, their arguments, and files after `@`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coderoom.configs import shipped_teams

if TYPE_CHECKING:
    from coderoom.runs.prompt.command import Command

_MOST_PATHS: Final = 500
_FILE: Final = re.compile(r"(?:^|\s)@(\S*)$")


@dataclass(frozen=True)
class Candidate:
    """A text that may take the place of the last `replaced` characters before the cursor."""

    text: str
    replaced: int
    help: str = ""


def candidates(before: str, commands: Mapping[str, Command]) -> Iterator[Candidate]:
    """What the text before the cursor may go on with.

    Args:
        before: The text.
        commands: The commands by their names, such as `/file`.
    """
    name, space, argument = before.partition(" ")
    command = commands.get(name)
    if space and command is not None and command.complete is not None:
        for text in command.complete(argument):
            yield Candidate(text, len(argument))
    elif match := _FILE.search(before):
        for text in paths(match[1]):
            yield Candidate(text, len(match[1]))
    elif before.startswith("/") and not space:
        for name, command in commands.items():
            if name.startswith(before):
                yield Candidate(name, len(before), command.help)


def paths(begin: str) -> Iterator[str]:
    """The files and folders whose path begins so, hidden ones only after a dot; a folder ends with a slash."""
    folder, slash, name = begin.rpartition("/")
    try:
        with os.scandir(Path(folder + slash).expanduser()) as entries:
            found = sorted(
                entry.name + "/" * entry.is_dir()
                for entry in entries
                if entry.name.startswith(name) and entry.name.isprintable() and (name or not entry.name.startswith("."))
            )
    except (OSError, RuntimeError, ValueError):  # No such folder, or no such user after `~`.
        return
    for each in found[:_MOST_PATHS]:
        yield folder + slash + each


def teams(begin: str) -> Iterator[str]:
    """The shipped teams whose name begins so, and files that may be teams."""
    yield from (name for name in shipped_teams() if name.startswith(begin))
    yield from (path for path in paths(begin) if path.endswith(("/", ".yaml", ".yml", ".json")))
