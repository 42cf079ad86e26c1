"""Functions of the host as code sees them: stubs with a signature, results and exceptions."""

from __future__ import annotations

import builtins
from typing import Any

from .encoding import MOST_BITS

_DEEPEST = 200


class HostFunctionError(RuntimeError):
    """An exception of a host function that is not a built-in one. It is a builtin of a session."""


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


def too_large(name: str, size: int, most: int) -> ValueError:
    """The error for a call whose arguments are too large."""
    return ValueError(f"{name}(): the arguments have {size:,} bytes as JSON; {most:,} may be sent")


def too_many(name: str, most: int) -> RuntimeError:
    """The error for a call beyond the limit."""
    return RuntimeError(f"{name}(): a cell may make {most:,} calls, and this one has made them")


def result_of(answer: dict[str, Any]) -> Any:
    """Return the value of an answer, or raise its exception."""
    if "error" not in answer:
        return answer.get("value")
    raise _exception_of(answer["error"])


def _exception_of(error: dict[str, Any]) -> Exception:
    kind = getattr(builtins, str(error["type"]), None)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not Exception:
        try:
            return kind(*error["args"])
        except Exception:  # Its class needs other arguments.
            pass
    return HostFunctionError(error["message"])


def make_stub(functions: Any, offer: dict[str, Any]) -> Any:
    """Make the stub of a host function."""
    name = offer["name"]
    stub: Any
    if offer["is_async"]:

        async def stub(*args: Any, **kwargs: Any) -> Any:
            return await functions.call_async(name, args, kwargs)
    else:

        def stub(*args: Any, **kwargs: Any) -> Any:
            return functions.call(name, args, kwargs)

    signature = _signature(offer)
    stub.__name__ = stub.__qualname__ = name
    stub.__module__ = "__main__"
    stub.__doc__ = offer["doc"]
    stub.__signature__ = signature
    stub.__annotations__ = {
        parameter.name: parameter.annotation
        for parameter in signature.parameters.values()
        if parameter.annotation is not parameter.empty
    }
    if signature.return_annotation is not signature.empty:
        stub.__annotations__["return"] = signature.return_annotation
    return stub


class Shown:
    """Stands in a signature for an object that is missing here or shown differently; its `repr` is the text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(offer: dict[str, Any]) -> Any:
    import inspect

    parameters = []
    for item in offer["parameters"]:
        default: Any = inspect.Parameter.empty
        if "default" in item:
            default = item["default"]
        elif "default_text" in item:
            default = Shown(item["default_text"])
        annotation = _annotation(item.get("annotation"), inspect.Parameter.empty)
        kind = getattr(inspect.Parameter, item["kind"])
        parameters.append(inspect.Parameter(item["name"], kind, default=default, annotation=annotation))
    returns = _annotation(offer.get("returns"), inspect.Signature.empty)
    return inspect.Signature(parameters, return_annotation=returns)


def _annotation(text: str | None, empty: Any) -> Any:
    if text is None:
        return empty
    known = getattr(builtins, text, None)
    if text == "None":
        return None
    return known if isinstance(known, type) else Shown(text)
