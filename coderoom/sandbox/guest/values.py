"""Turns the value of a cell into data that can be sent to the host. Used by the interpreter."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["describe"]

_SCALARS = (bool, int, float, str)
_CONTAINERS = (list, tuple, dict)
_DEEPEST = 200
_MOST_BITS = 14_000  # The host's Python may refuse to parse integers of more digits.
_REPR = 20_000


def describe(value: Any, limit: int) -> dict[str, Any]:
    """Describe a value.

    Args:
        value: The value.
        limit: The most bytes that its JSON may have.

    Returns:
        Its `value` if JSON can represent it exactly, and its `value_repr`; `value_too_large` if it is only too large;
        an empty dictionary for `None`.
    """
    if value is None:
        return {}
    described: dict[str, Any] = {"value_repr": _repr(value)}
    data = _is_data(value, limit)
    if data:
        try:
            data = len(json.dumps(value)) <= limit or None
        except (ValueError, RecursionError):  # The code may have lowered the recursion limit.
            data = False
    if data:
        described["value"] = value
    elif data is None:
        described["value_too_large"] = True
    return described


def _is_data(value: Any, room: int) -> bool | None:
    """Whether JSON can represent it; `None`: as far as it was checked, but it has more than `room` items."""
    level = [value]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for item in level:
            # Exact types, since subclasses may behave in any way. A tuple becomes a list.
            kind = type(item)
            if kind is dict and not all(type(key) is str for key in item):
                return False
            if kind is int and item.bit_length() > _MOST_BITS:
                return False
            if kind in _CONTAINERS:
                items = item.values() if kind is dict else item
                room -= len(items)
                if room < 0:
                    return None if all(_may_be_data(each) for each in items) else False
                below.extend(items)
            elif not _may_be_data(item):
                return False
        if not below:
            return True
        level = below
    return False


def _may_be_data(value: Any) -> bool:
    return value is None or type(value) in _SCALARS or type(value) in _CONTAINERS


def _repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= _REPR else text[:_REPR] + f"... ({len(text):,} characters)"
