"""What a function of the host is, what code behind the wall learns about it, and its results and errors as data."""

from __future__ import annotations

import asyncio
import builtins
import copy
import inspect
import keyword
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, PydanticUndefined, to_jsonable_python

from coderoom.errors import RequestError
from coderoom.sandbox.functions.effects import Effect
from coderoom.sandbox.guest.functions import Shown
from coderoom.sandbox.guest.values import as_plain, why_not_data

_LONGEST_DEFAULT = 200
LONGEST = 2_000
"""How many characters of an argument or of an error are kept."""
_UNFIT = (StopIteration, StopAsyncIteration)  # They would end the coroutine or generator that raises them.


@dataclass(frozen=True)
class Arguments:
    """Checked arguments of a call.

    Attributes:
        args: The positional ones, for `HostFunction.run`.
        kwargs: The named ones.
        seen: The named ones as the function gets them, if `run` still converts them.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    seen: Mapping[str, Any] | None = None


class InverseCall(NamedTuple):
    """The call that undoes another one, but for what that has returned.

    Attributes:
        name: The function.
        arguments: All arguments of the other call, by their names, as data.
    """

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class HostFunction:
    """A function that runs on the host when code in a session calls it.

    Attributes:
        name: Its name inside.
        signature: Its parameters and result.
        doc: What it is for.
        is_async: Whether code has to `await` it.
        in_thread: Whether `run` blocks, so that it must run in a thread.
        check: Turns arguments that came as data into those of `run`; raises `TypeError` if they do not fit.
        run: Does the work. It returns an awaitable, or, if `in_thread`, either the result or an awaitable.
        shown: The signature for a model, if it differs.
        notes: More about its parameters and result, for a model.
        pack: Turns a result that is not data into data, as the function's annotation says.
        gives_text: Whether numbers and lists come back as text.
        inside: The source of a module for the session, whose `wrap` makes of the stub and of the session's variables
            what code calls; for the engine `cpython`.
        effect: What its calls do; `None` if that is not declared.
        to_undo: Says of the arguments of a call that was made what undoes it; `None`: nothing does.
        as_edited: Says of the arguments of a call which ones it was made with, by their names, if it was edited.
        asks: Whether somebody may decide about its calls before they are made.
        relay: Does the work in place of `run`: it hands the result, which is data, to its second argument, at once or
            later. Its calls cost less than others: they are not logged, and end with their cell only.
    """

    name: str
    signature: inspect.Signature
    doc: str
    is_async: bool
    in_thread: bool
    check: Callable[[Sequence[Any], Mapping[str, Any]], Arguments]
    run: Callable[[Arguments], Any | Awaitable[Any]]
    shown: inspect.Signature | None = None
    notes: tuple[str, ...] = ()
    pack: Callable[[Any], Any] | None = None
    gives_text: bool = False
    inside: str = ""
    effect: Effect | None = None
    asks: bool = False
    to_undo: Callable[[Arguments], InverseCall] | None = None
    as_edited: Callable[[Arguments], dict[str, Any] | None] | None = None
    relay: Callable[[Arguments, Callable[[Any], None]], None] | None = None

    @property
    def header(self) -> str:
        """Its `def` line, for a model."""
        shown = self.signature if self.shown is None else self.shown
        parameters = [each.replace(annotation=as_text(each.annotation)) for each in shown.parameters.values()]
        shown = shown.replace(parameters=parameters, return_annotation=as_text(shown.return_annotation))
        return f"{'async ' if self.is_async else ''}def {self.name}{shown}"

    def describe(self) -> str:
        """Its `def` line and docstring, for a model."""
        lines = self._help().splitlines()
        indented = "\n".join(f"    {line}".rstrip() for line in lines)
        closing = "" if len(lines) == 1 else "\n    "
        return f'{self.header}:\n    """{indented.strip()}{closing}"""'

    def _help(self) -> str:
        doc = self.doc.strip() or "No description."
        return "\n".join([doc, "", *self.notes]) if self.notes else doc

    def to_offer(self) -> dict[str, Any]:
        """What the guest makes its stub from."""
        returns = self.signature.return_annotation
        offer: dict[str, Any] = {
            "name": self.name,
            "doc": self._help() if self.notes else self.doc,
            "is_async": self.is_async,
            "parameters": [_describe(parameter) for parameter in self.signature.parameters.values()],
        }
        if returns is not inspect.Signature.empty:
            offer["returns"] = _annotation(returns)
        if self.inside:
            offer["inside"] = self.inside
        return offer

    def name_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by parameter names, or by numbers if they do not fit."""
        try:
            return dict(self.signature.bind_partial(*args, **kwargs).arguments)
        except TypeError:
            return {**{str(number): value for number, value in enumerate(args, 1)}, **kwargs}


def check_name(name: str) -> str:
    """The name, if it is an identifier that code can call."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise RequestError(
            f"The function {name!r} cannot be offered: that is not a valid identifier in Python. Give it another name, "
            "for instance with a def around it."
        )
    if name.startswith("__"):
        raise RequestError(f"The function {name!r} cannot be offered: names with two leading underscores are Python's.")
    return name


def bind_arguments(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by their names."""
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise TypeError(f"{name}(): {error}") from None


def default_of(parameter: inspect.Parameter) -> Any:
    """A parameter's default; that of a pydantic `Field` is inside it."""
    default = parameter.default
    if not isinstance(default, FieldInfo):
        return default
    if default.default_factory is not None:
        return Shown("...")
    return parameter.empty if default.default in (PydanticUndefined, ...) else default.default


def as_text(annotation: Any) -> Any:
    """An annotation that is shown as its text."""
    return annotation if annotation is inspect.Parameter.empty else Shown(_annotation(annotation))


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _describe(parameter: inspect.Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {"name": parameter.name, "kind": parameter.kind.name}
    if parameter.annotation is not parameter.empty:
        described["annotation"] = _annotation(parameter.annotation)
    default = default_of(parameter)
    if isinstance(default, Enum):
        default = default.value
    if default is not parameter.empty:
        if default is None or type(default) in (bool, int, float, str):
            described["default"] = default
        else:
            described["default_text"] = repr(default)[:_LONGEST_DEFAULT]
    return described


class NotBegun(asyncio.CancelledError):
    """A call was cancelled before its function was called: nothing is known of it, and it may be made later."""


class NotAllowedError(PermissionError):
    """Nobody has allowed a call: its function was not called. The code gets a `PermissionError`."""


class DescribedError(Exception):
    """An exception that is known only as data."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.description = description


def as_data(name: str, value: Any, pack: Callable[[Any], Any] | None = None) -> Any:
    """A function's result as data: pydantic models and data classes become dicts, dates become text.

    `pack` turns it into data where nothing else does.
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


def error_data(error: BaseException) -> dict[str, Any]:
    """An exception as data: its nearest built-in class, and its message."""
    if isinstance(error, NotAllowedError):
        error = PermissionError(*error.args)
    kind = next(kind for kind in type(error).__mro__ if getattr(builtins, kind.__name__, None) is kind)
    if isinstance(error, DescribedError):
        return error.description
    text = _text(error)
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if not issubclass(kind, Exception) or kind in _UNFIT:
        kind, args = RuntimeError, [message]
    elif kind is not type(error):
        args = [message]
    else:
        own = list(error.args)
        if isinstance(error, OSError) and error.filename is not None:
            own = [error.errno, error.strerror, str(error.filename)]
        try:
            sound = why_not_data(own) is None and len(repr(own)) <= LONGEST and str(type(error)(*own)) == text
        except Exception:
            sound = False
        args = own if sound else [text]
    return {"type": kind.__name__, "args": args, "message": message}


def shorten(value: Any, most: int = LONGEST) -> Any:
    """A copy of a value, or the beginning of its text if that is long."""
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}... ({len(value):,} characters)"
    try:
        text = repr(value)
        return copy.deepcopy(value) if len(text) <= most else f"{text[:most]}..."
    except (RecursionError, ValueError):  # It is nested too deeply, or has a too large integer.
        return "..."


def _text(error: BaseException) -> str:
    try:
        return str(shorten(str(error)))
    except Exception:
        return "its text could not be made"
