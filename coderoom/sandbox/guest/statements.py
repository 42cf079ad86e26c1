"""Cells whose code comes statement by statement, while its author still writes it."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List

_Get = Callable[..., Dict[str, Any]]
_following: List[_Get] = []
_known: Dict[str, _Get] = {}


def follow(name: str) -> None:
    """Have the running cell go on with the code that a function of this name returns, piece by piece.

    A piece has its `code`, and `last` says whether it is the last one. If all of the code together is none, it is
    called with that message, and the cell ends with the error. The session's names lose the function: code that finds
    it has only the pieces that it would run anyway, but nobody is to call it by mistake or to put another in its place.
    """
    if name not in _known:
        _known[name] = sys._getframe(1).f_globals.pop(name)
    _following.append(_known[name])


def take() -> _Get | None:
    """What the running cell goes on with."""
    return _following.pop() if _following else None
