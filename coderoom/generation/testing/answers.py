"""Parses what the process with the code under test says. None of it is trusted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from coderoom._util.text import encodable
from coderoom.generation.testing.compare import is_sound

__all__ = ["Answer", "Raised", "read_answer"]

_LONGEST = 4_000


@dataclass(frozen=True)
class Raised:
    """An exception, as it was told.

    Attributes:
        types: The names of its class and of those above it that are not the language's own.
        base: The nearest class above it that is the language's own.
        message: Its text.
        trace: File, line and function of its frames.
    """

    types: tuple[str, ...]
    base: str
    message: str
    trace: tuple[tuple[str, int, str], ...] = ()

    @property
    def name(self) -> str:
        """The name of its class."""
        return self.types[0] if self.types else self.base

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


@dataclass(frozen=True)
class Answer:
    """What came of a job, if the process is to be believed.

    Attributes:
        value: The tagged data that was returned; of a property, whether it holds.
        raised: What was raised instead; `None` if nothing was.
        stdout: What was printed, if that was asked for.
        seconds: How long it took.
        peak: The most memory that the process has had, in bytes.
        after: The arguments as the call has left them, as tagged data by their names; `None` if that was not told.
    """

    value: Any = None
    raised: Raised | None = None
    stdout: str = ""
    seconds: float = 0.0
    peak: int | None = None
    after: dict[str, Any] | None = None


def read_answer(text: Any, longest: int, about: Sequence[Any] = ("", 0.0, 0)) -> Answer | None:
    """Read an answer.

    Args:
        text: What came.
        longest: The most characters that it may have.
        about: What was printed, the seconds that it took, and the bytes of memory.

    Returns:
        The answer; `None` if this is none.
    """
    if not isinstance(text, str) or len(text) > longest:
        return None
    try:
        told = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    raised = told.get("error")
    value = told.get("value")
    after = told.get("after")
    if raised is not None:
        raised = _raised(raised)
        if raised is None:
            return None
    elif "value" not in told or not is_sound(value):
        return None
    return Answer(
        value=None if raised else value,
        raised=raised,
        stdout=_text(about[0], longest),
        seconds=_number(about[1], 86_400),
        peak=int(_number(about[2], 1 << 50)) or None,
        after=after if raised is None and isinstance(after, dict) and is_sound(after) else None,
    )


def _raised(told: Any) -> Raised | None:
    types = told.get("types") if isinstance(told, dict) else None
    if not isinstance(types, list) or not all(isinstance(each, str) for each in types):
        return None
    trace = []
    for frame in told.get("trace") or ():
        if isinstance(frame, list) and len(frame) == 3 and isinstance(frame[1], int):
            trace.append((_text(frame[0], 100), frame[1], _text(frame[2], 100)))
    names = tuple(_text(each, 100) for each in types[:20])
    return Raised(names, _text(told.get("base"), 100), _text(told.get("message"), _LONGEST), tuple(trace[:16]))


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _text(told: Any, longest: int) -> str:
    return encodable(told[:longest]) if isinstance(told, str) else ""


def _number(told: Any, most: float) -> float:
    return told if type(told) in (int, float) and 0 <= told <= most else 0
