"""Where something stands in a document, and how a person is told about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Location", "Mark", "did_you_mean", "in_a_line", "nearest", "show", "show_key"]

Location = tuple[str | int, ...]
"""The keys and indices that lead from the top of a document to a value."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")
_SHOWN_LENGTH = 80


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in the text of a file; lines and columns count from 1."""

    line: int
    column: int


def show(path: Location) -> str:
    """Write a path the way a person would: `config.participants[0].config.name`."""
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
    """Quote a text on one line, cut where it is longer than a person would read."""
    return repr(text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 3] + "...")


def in_a_line(error: BaseException) -> str:
    """Give an exception's type and message without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def nearest(name: str, names: Iterable[str], count: int = 1) -> list[str]:
    """Give the names that a person who wrote `name` may have meant, nearest first."""
    known = list(names)
    close = difflib.get_close_matches(name, known, n=count, cutoff=0.6)
    if close:
        return close
    folded = {known_name.casefold(): known_name for known_name in known}
    return [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=count, cutoff=0.6)]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Give `; did you mean 'x'?` where a name is near, otherwise nothing."""
    close = nearest(name, names)
    return f"; did you mean {close[0]!r}?" if close else ""
