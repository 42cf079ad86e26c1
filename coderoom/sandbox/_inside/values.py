"""The value of a cell, as data that can cross the wall."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["describe"]

_SCALARS = (bool, int, float, str)
_REPR = 20_000


def describe(value: Any, limit: int) -> dict[str, Any]:
    """Describe a value.

    Args:
        value: The value.
        limit: The most bytes that its JSON may have.

    Returns:
        Its `value` if JSON can carry it as it is, and its `value_repr`; nothing for `None`.
    """
    if value is None:
        return {}
    described = {"value_repr": _repr(value)}
    if _is_data(value, 1000):
        try:
            text = json.dumps(value)
        except (ValueError, RecursionError):  # An integer with too many digits, a list that holds itself.
            return described
        if len(text) <= limit:
            described["value"] = value
    return described


def _is_data(value: Any, deep: int) -> bool:
    # Exact types: what is derived from them may behave in any way. A tuple comes out as a list.
    kind = type(value)
    if value is None or kind in _SCALARS:
        return True
    if deep == 0:
        return False
    if kind in (list, tuple):
        return all(_is_data(item, deep - 1) for item in value)
    if kind is dict:
        return all(type(key) is str and _is_data(item, deep - 1) for key, item in value.items())
    return False


def _repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= _REPR else text[:_REPR] + f"... ({len(text):,} characters)"
