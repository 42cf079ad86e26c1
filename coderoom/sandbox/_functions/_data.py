"""Results and exceptions of host functions, as data that crosses the wall."""

from __future__ import annotations

import builtins
import dataclasses
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from coderoom.sandbox._inside.functions import why_not_data

__all__ = ["as_data", "as_exception", "shorten", "tell"]

_LONGEST = 2_000


def as_data(name: str, value: Any) -> Any:
    """A function's result; models of pydantic and data classes become dicts.

    Raises:
        TypeError: JSON cannot carry it.
    """
    if isinstance(value, BaseModel) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        value = to_jsonable_python(value)
    why = why_not_data(value)
    if why:
        raise TypeError(f"{name}(): its result {why}")
    return value


def tell(error: BaseException) -> dict[str, Any]:
    """An exception, as code is told it: the nearest one that Python itself has, and what this one said."""
    kind = next(kind for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind)
    text = shorten(str(error))
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if kind is not type(error):
        args: list[Any] = [message]
    else:
        own = list(error.args)
        args = own if why_not_data(own) is None and len(repr(own)) <= _LONGEST else [text]
    return {"type": kind.__name__, "args": args, "message": message}


def as_exception(told: dict[str, Any]) -> Exception:
    """The exception that was told."""
    kind = getattr(builtins, str(told["type"]), None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(*told["args"])
        except TypeError:  # One that wants other arguments.
            pass
    return RuntimeError(told["message"])


def shorten(value: Any) -> Any:
    """A value, or the beginning of its text if that is long."""
    if len(text := repr(value)) <= _LONGEST:
        return value
    return f"{text[:_LONGEST]}... ({len(text):,} characters)"
