"""Arguments, results and exceptions of host functions as data, and the log of a cell's calls."""

from __future__ import annotations

import builtins
import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from coderoom.outcome import Outcome
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.guest.stubs import why_not_data
from coderoom.sandbox.guest.values import as_plain
from coderoom.sandbox.result import FunctionCall

LONGEST = 2_000
"""How many characters of an argument or of an error are kept."""

_UNFIT = (StopIteration, StopAsyncIteration)  # They would end the coroutine or generator that raises them.

_ROOM = 1024 * 1024
_LEAST = 60
_MOST_NAMES = 20
_LONGEST_NAME = 100


class DescribedError(Exception):
    """An exception that is known only as data."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.description = description


def as_data(name: str, value: Any, pack: Callable[[Any], Any] | None = None) -> Any:
    """A function's result as data: pydantic models and data classes become dicts, dates become text.

    `pack` turns it into data where nothing else does.
    """
    if why_not_data(value) is None:
        return value
    try:
        plain = as_plain(value, to_jsonable_python)
        if why_not_data(plain) and pack is not None:
            plain = pack(value)
    except (PydanticSerializationError, UnicodeDecodeError) as error:
        raise TypeError(f"{name}(): its result cannot be made data: {error}") from None
    why = why_not_data(plain)
    if why:
        raise TypeError(f"{name}(): its result {why}")
    return plain


def error_data(error: BaseException) -> dict[str, Any]:
    """An exception as data: its nearest built-in class, and its message."""
    kind = next(kind for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind)
    if isinstance(error, DescribedError):
        return error.description
    text = _text(error)
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if not issubclass(kind, Exception) or kind in _UNFIT:
        kind, args = RuntimeError, [message]
    elif kind is not type(error):
        args = [message]
    else:
        args = _args(error, text)
    return {"type": kind.__name__, "args": args, "message": message}


def shorten(value: Any, most: int = LONGEST) -> Any:
    """A copy of a value, or the beginning of its text if that is long."""
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}... ({len(value):,} characters)"
    try:
        text = repr(value)
        return copy.deepcopy(value) if len(text) <= most else f"{text[:most]}..."
    except (RecursionError, ValueError):  # It is nested too deeply, or has a too large integer.
        return "..."


def _text(error: BaseException) -> str:
    try:
        return str(shorten(str(error)))
    except Exception:
        return "its text could not be made"


def _args(error: BaseException, text: str) -> list[Any]:
    own = list(error.args)
    if isinstance(error, OSError) and error.filename is not None:
        own = [error.errno, error.strerror, str(error.filename)]
    try:
        sound = why_not_data(own) is None and len(repr(own)) <= LONGEST and str(type(error)(*own)) == text
    except Exception:
        sound = False
    return own if sound else [text]


class CallLog:
    """The calls of a cell in their order, each with its outcome.

    All arguments and errors together have about a million characters; later ones are cut.
    """

    def __init__(self) -> None:
        self._calls: list[FunctionCall] = []
        self._begun: dict[int, float] = {}
        self._room = _ROOM

    def __len__(self) -> int:
        return len(self._calls)

    def open(self, function: HostFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """Add a call; return its index."""
        arguments = _brief(function.name_arguments(args, kwargs), self._most())
        self._room -= sum(len(name) + len(repr(value)) for name, value in arguments.items())
        place = len(self._calls)
        self._calls.append(FunctionCall(function.name, arguments, Outcome.CANCELLED, 0.0))
        self._begun[place] = time.monotonic()
        return place

    def write(self, place: int, outcome: Outcome, error: str | None) -> None:
        """Set the outcome of a call; only the first time counts."""
        begun = self._begun.pop(place, None)
        if begun is not None:
            error = None if error is None else shorten(error, self._most())
            self._room -= len(error or "")
            duration = time.monotonic() - begun
            self._calls[place] = replace(self._calls[place], outcome=outcome, duration=duration, error=error)

    def close(self, error: str) -> tuple[FunctionCall, ...]:
        """All calls; those without an outcome were cancelled, and `error` says why."""
        for place in list(self._begun):
            self.write(place, Outcome.CANCELLED, error)
        return tuple(self._calls)

    def _most(self) -> int:
        return min(LONGEST, max(_LEAST, self._room))


def _brief(arguments: Mapping[str, Any], most: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if len(found) == _MOST_NAMES or most <= 0:
            found["..."] = f"{len(arguments) - len(found)} more"
            break
        kept = shorten(value, most)  # A copy: the function may change its arguments.
        found[shorten(name, _LONGEST_NAME)] = kept
        most -= len(repr(kept))
    return found
