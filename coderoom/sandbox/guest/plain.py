"""The plain form of values that are not JSON but have one usual text or number: a date is its ISO text."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

__all__ = ["as_plain"]

_DEEPEST = 200
_UNCHANGED = (str, int, float, bool, type(None))

Convert = Callable[[Any], Any]


def as_plain(value: Any, model: Optional[Convert] = None) -> Any:
    """Convert a value, and all that it contains, to plain form; what has none stays as it is.

    Args:
        value: The value, which is not changed.
        model: Makes a dict of a data class or of a pydantic model.
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
    convert = _converter(type(value))
    if convert is not None:
        return _plain(convert(value), model, deep - 1)
    if isinstance(value, dict):
        return {key: _plain(item, model, deep - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, model, deep - 1) for item in value]
    if _has_fields(value):
        return _plain(model(value), model, deep - 1)
    return value


def _converter(kind: Any) -> Optional[Convert]:
    # By name, to import nothing.
    for base in kind.__mro__:
        name = f"{base.__module__.partition('.')[0]}.{base.__qualname__}"
        if name in _CONVERTERS:
            return _CONVERTERS[name]
    return None


def _has_fields(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "__dataclass_fields__") or callable(getattr(kind, "model_dump", None))


def _fields(value: Any) -> Any:
    if callable(getattr(type(value), "model_dump", None)):
        return value.model_dump(mode="json")
    return {name: getattr(value, name) for name in value.__dataclass_fields__ if hasattr(value, name)}


def _duration(value: Any) -> str:
    whole = abs(value)
    return f"{'-' if whole != value else ''}P{whole.days}DT{whole.seconds}.{whole.microseconds:06}S"


def _isoformat(value: Any) -> str:
    text: str = value.isoformat()
    return text


_CONVERTERS: Dict[str, Optional[Convert]] = {
    "datetime.date": _isoformat,
    "datetime.time": _isoformat,
    "datetime.timedelta": _duration,
    "decimal.Decimal": str,
    "enum.Enum": lambda value: value.value,
    "numpy.datetime64": str,
    "numpy.timedelta64": None,  # Its number does not include the unit.
    "numpy.generic": lambda value: value.item(),
    "pathlib.PurePath": str,
    "uuid.UUID": str,
}
