"""Locations in a document, and how messages show them. Used by all of `coderoom.configs`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Location", "Mark", "did_you_mean", "in_a_line", "nearest", "show", "show_key", "value_at", "walk"]

Location = tuple[str | int, ...]
"""The keys and indices that lead from the top of a document to a value."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")
_SHOWN_LENGTH = 80


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A position in the text of a file; lines and columns count from 1."""

    line: int
    column: int


def value_at(data: Any, path: Location) -> Any:
    """The value at a location; `None` if there is none."""
    for step in path:
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def walk(data: Any, path: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Yield each value in a document, with its location."""
    yield path, data
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from walk(value, (*path, key))


def show(path: Location) -> str:
    """Format a location: `config.participants[0].config.name`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{show_key(step)}]"
    return text


def show_key(text: str) -> str:
    """Quote a text on one line, and shorten a long one."""
    return repr(text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 3] + "...")


def in_a_line(error: BaseException) -> str:
    """An exception's type and message without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def nearest(name: str, names: Iterable[str], count: int = 1) -> list[str]:
    """The known names that `name` may be a misspelling of, nearest first."""
    known = list(names)
    close = difflib.get_close_matches(name, known, n=count, cutoff=0.6)
    if close:
        return close
    folded = {known_name.casefold(): known_name for known_name in known}
    return [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=count, cutoff=0.6)]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?` if a known name is near, otherwise nothing."""
    close = nearest(name, names)
    return f"; did you mean {close[0]!r}?" if close else ""
