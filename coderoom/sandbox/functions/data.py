"""Results and exceptions of host functions, as data that crosses the wall."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from coderoom.sandbox.guest.plain import as_plain
from coderoom.sandbox.guest.stubs import why_not_data

__all__ = ["LONGEST", "Told", "as_data", "shorten", "tell"]

LONGEST = 2_000
"""How many characters of an argument or of an error are told."""

_DEEPEST = 20
_UNFIT = (StopIteration, StopAsyncIteration)  # Whoever runs a coroutine or a generator takes them for its end.


class Told(Exception):  # noqa: N818
    """Something was raised elsewhere, and only what is told of it is here."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told


def as_data(name: str, value: Any, pack: Callable[[Any], Any] | None = None) -> Any:
    """A function's result; models of pydantic and data classes become dicts, dates and the like become text.

    Args:
        name: The function's name.
        value: The result.
        pack: Makes data of it, if it is none otherwise.

    Raises:
        TypeError: JSON cannot carry it.
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


def tell(error: BaseException) -> dict[str, Any]:
    """An exception, as code is told it: the nearest one that Python itself has, and what this one said."""
    kind = next(kind for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind)
    if isinstance(error, Told):
        return error.told
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
    """A value, or the beginning of its text if that is long or nested deeply."""
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}... ({len(value):,} characters)"
    text, whole = _begin(value, most)
    return value if whole else f"{text[:most]}..."


def _begin(value: Any, most: int, deep: int = _DEEPEST) -> tuple[str, bool]:
    """The beginning of a value's text, which may be somewhat longer than asked for, and whether that is all."""
    if isinstance(value, int) and value.bit_length() > 3 * most:
        return f"an integer of {value.bit_length():,} bits", False
    if isinstance(value, str):
        return repr(value[:most]), len(value) <= most
    if not isinstance(value, list | tuple | dict):
        return repr(value), True
    if deep == 0:
        return "...", False
    opening, closing = "{}" if isinstance(value, dict) else "()" if isinstance(value, tuple) else "[]"
    text, whole = opening, True
    for item in value:
        if len(text) > most:
            return text, False
        key, key_whole = "", True
        if isinstance(value, dict):
            key, key_whole = _begin(item, most)
            key, item = f"{key}: ", value[item]
        told, item_whole = _begin(item, most - len(text), deep - 1)
        text += f"{key}{told}, "
        whole = whole and key_whole and item_whole
    return text.removesuffix(", ") + closing, whole and len(text) <= most


def _text(error: BaseException) -> str:
    try:
        return str(shorten(str(error)))
    except Exception:
        return "its text could not be made"


def _args(error: BaseException, text: str) -> list[Any]:
    """What makes the same exception again, which says the same."""
    own = list(error.args)
    if isinstance(error, OSError) and error.filename is not None:
        own = [error.errno, error.strerror, str(error.filename)]
    try:
        sound = why_not_data(own) is None and _begin(own, LONGEST)[1] and str(type(error)(*own)) == text
    except Exception:
        sound = False
    return own if sound else [text]
