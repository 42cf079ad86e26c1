"""Values as data: a cell's value for the host, what is data and what is not, and the plain form of what is not.

Used by the interpreter, and on both sides of the wall for arguments and results of host functions.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Optional

from .encoding import MOST_BITS, ValueEncoder

_CONTAINERS = (list, dict)
_DEEPEST = 200
_REPR = 20_000

_UNCHANGED = (str, int, float, bool, type(None))
Convert = Callable[[Any], Any]


def describe(value: Any, limit: int, to_text: Callable[[Any], str] = repr) -> dict[str, Any]:
    """The `value` of a cell if it is JSON of up to `limit` bytes, or `tagged` data, and its text as `value_repr`.

    Of one that is only too large, `value_too_large` instead; of `None`, nothing.
    """
    if value is None:
        return {}
    try:
        text = to_text(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    if len(text) > _REPR:
        text = text[:_REPR] + f"... ({len(text):,} characters)"
    described: dict[str, Any] = {"value_repr": text}
    name, fits = "value", _is_data(value, limit)
    if fits is False:
        encoder = ValueEncoder(limit, limit)
        try:
            name, value, fits = "tagged", encoder.encode(value), True
        except Exception:  # Methods of the value may raise anything.
            fits = None if encoder.is_full else False
    if fits:
        try:
            fits = len(json.dumps(value)) <= limit or None
        except (TypeError, ValueError, RecursionError):  # The code may have lowered the recursion limit.
            fits = False
    if fits:
        described[name] = value
    elif fits is None:
        described["value_too_large"] = True
    return described


def _is_data(value: Any, room: int) -> bool | None:
    """Whether JSON can represent it; `None`: as far as it was checked, but it has more than `room` items."""
    level = [value]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for item in level:
            # Exact types, since subclasses may behave in any way.
            kind = type(item)
            if kind is dict and not all(type(key) is str for key in item):
                return False
            if kind is int and item.bit_length() > MOST_BITS:
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
    return type(value) in _UNCHANGED or type(value) in _CONTAINERS


def why_not_data(value: Any, deep: int = _DEEPEST) -> str | None:
    """Why a value cannot be JSON; `None` if it can. A tuple becomes a list."""
    if value is None or isinstance(value, (str, float)):
        return None
    if isinstance(value, int):
        bits = value.bit_length()
        return f"is or holds an integer of {bits:,} bits, which is too large" if bits > MOST_BITS else None
    if deep == 0:
        return "is nested too deeply"
    if isinstance(value, (list, tuple)):
        items = value
    elif isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"has the key {key!r:.100}, and JSON knows only text as keys"
        items = list(value.values())
    else:
        return f"is or holds a {type(value).__qualname__}, which JSON cannot carry"
    for item in items:
        why = why_not_data(item, deep - 1)
        if why:
            return why
    return None


def as_argument(name: str, which: Any, value: Any) -> Any:
    """An argument of a call as data; `which` is its name or its number."""
    if why_not_data(value) is None:
        return value
    value = as_plain(value)
    why = why_not_data(value)
    if why:
        raise TypeError(f"{name}(): argument {which!r} {why}; pass text, numbers, booleans, None, lists and dicts")
    return value


def as_plain(value: Any, model: Optional[Convert] = None) -> Any:
    """Convert a copy of a value, and all that it contains, to plain form; what has none stays as it is.

    `model` makes a dict of a data class or of a pydantic model.
    """
    try:
        return _plain(value, model or _fields, _DEEPEST)
    except RecursionError:  # The caller's next check reports it.
        return value


def _plain(value: Any, model: Convert, deep: int) -> Any:
    if type(value) in _UNCHANGED:
        return value
    if deep == 0:
        raise RecursionError
    # By name, to import nothing.
    names = (f"{base.__module__.partition('.')[0]}.{base.__qualname__}" for base in type(value).__mro__)
    convert = next((_CONVERTERS[name] for name in names if name in _CONVERTERS), None)
    if convert is not None:
        return _plain(convert(value), model, deep - 1)
    if isinstance(value, dict):
        return {key: _plain(item, model, deep - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, model, deep - 1) for item in value]
    if hasattr(type(value), "__dataclass_fields__") or callable(getattr(type(value), "model_dump", None)):
        return _plain(model(value), model, deep - 1)
    return value


def _fields(value: Any) -> Any:
    if callable(getattr(type(value), "model_dump", None)):
        return value.model_dump(mode="json")
    return {name: getattr(value, name) for name in value.__dataclass_fields__ if hasattr(value, name)}


def _duration(value: Any) -> str:
    whole = abs(value)
    return f"{'-' if whole != value else ''}P{whole.days}DT{whole.seconds}.{whole.microseconds:06}S"


_CONVERTERS: Dict[str, Optional[Convert]] = {
    "datetime.date": lambda value: value.isoformat(),
    "datetime.time": lambda value: value.isoformat(),
    "datetime.timedelta": _duration,
    "decimal.Decimal": str,
    "enum.Enum": lambda value: value.value,
    "numpy.datetime64": str,
    "numpy.timedelta64": None,  # Its number does not include the unit.
    "numpy.generic": lambda value: value.item(),
    "pathlib.PurePath": str,
    "uuid.UUID": str,
}
