"""The log of a cell's calls, which stays small whatever the code calls with."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from coderoom.outcome import Outcome
from coderoom.sandbox.functions.data import LONGEST, shorten
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.result import FunctionCall

__all__ = ["CallLog"]

_ROOM = 1024 * 1024
_LEAST = 60
_MOST_NAMES = 20
_LONGEST_NAME = 100


class CallLog:
    """What came of each call, in the order in which they came.

    All arguments and errors together have about a million characters; those of later calls are cut to a few.
    """

    def __init__(self) -> None:
        self._calls: list[FunctionCall] = []
        self._begun: dict[int, float] = {}
        self._room = _ROOM

    def __len__(self) -> int:
        return len(self._calls)

    def open(self, function: HostFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """Note that a call has come; returns its place."""
        arguments = _brief(function.name_arguments(args, kwargs), self._most())
        self._room -= sum(len(name) + len(repr(value)) for name, value in arguments.items())
        place = len(self._calls)
        self._calls.append(FunctionCall(function.name, arguments, Outcome.CANCELLED, 0.0))
        self._begun[place] = time.monotonic()
        return place

    def write(self, place: int, outcome: Outcome, error: str | None) -> None:
        """Note what came of it; only the first time counts."""
        begun = self._begun.pop(place, None)
        if begun is not None:
            error = None if error is None else shorten(error, self._most())
            self._room -= len(error or "")
            duration = time.monotonic() - begun
            self._calls[place] = replace(self._calls[place], outcome=outcome, duration=duration, error=error)

    def close(self, error: str) -> tuple[FunctionCall, ...]:
        """All calls; those that nothing has come of were cancelled, and `error` says why."""
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
        kept = shorten(value, most)
        # The function may change what it has got.
        found[shorten(name, _LONGEST_NAME)] = copy.deepcopy(kept) if isinstance(kept, list | dict | tuple) else kept
        most -= len(repr(kept))
    return found
