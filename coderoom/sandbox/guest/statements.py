"""Cells whose code comes statement by statement, while its author still writes it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

_following: List[Callable[..., Dict[str, Any]]] = []


def follow(get: Callable[..., Dict[str, Any]]) -> None:
    """Have the running cell go on with the code that `get` returns, piece by piece.

    A piece has its `code`, and `last` says whether it is the last one. If all of the code together is none, `get` is
    called with that message, and the cell ends with the error.
    """
    _following.append(get)


def take() -> Callable[..., Dict[str, Any]] | None:
    """What the running cell goes on with."""
    return _following.pop() if _following else None
