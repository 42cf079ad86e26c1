"""Detects whether setup code has replaced builtins or the code of functions."""

from __future__ import annotations

import builtins
import os
import sys
import types
from typing import Any, Dict, Iterator, List, Tuple

__all__ = ["Guard"]

_PACKAGE = __name__.rpartition(".")[0]
_ASKING = frozenset(["input", "open", "print", "_"])  # Whoever tests what these are for has to replace them.
_WRITING = ("write", "_exit", "fork")
_none = object()


class Guard:
    """Finds out whether something else does the work than what was loaded.

    Setup code was read before, and reaches none of this; what the program's own functions change is theirs.

    Args:
        names: The program's namespace.
    """

    def __init__(self, names: Dict[str, Any]) -> None:
        self._builtins = {**builtins.__dict__}
        self._writing = [getattr(os, name) for name in _WRITING]
        self._codes = [*_codes_of(names), *(each for names in _runners() for each in _codes_of(names))]

    def broken(self) -> str:
        """What was changed; empty if nothing was."""
        now = builtins.__dict__
        for name in {**self._builtins, **now}:
            if name not in _ASKING and now.get(name, _none) is not self._builtins.get(name, _none):
                return "what is built in"
        if any(function.__code__ is not code for function, code in self._codes):
            return "what functions do"
        return "" if self._writing == [getattr(os, name) for name in _WRITING] else "how answers are told"


def _runners() -> Iterator[Dict[str, Any]]:
    """The names of the modules that run the program here."""
    for name, module in {**sys.modules}.items():
        if type(name) is str and name.startswith(_PACKAGE + "."):
            yield vars(module)
            yield from [{**vars(each)} for each in vars(module).values() if type(each) is type]


def _codes_of(names: Dict[str, Any]) -> List[Tuple[Any, Any]]:
    return [(each, each.__code__) for each in names.values() if type(each) is types.FunctionType]
