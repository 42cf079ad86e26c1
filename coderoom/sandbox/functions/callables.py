"""Python's own functions as functions of the host."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError, validate_call

from coderoom.errors import RequestError
from coderoom.sandbox.functions.function import Arguments, HostFunction, check_name
from coderoom.sandbox.functions.hints import CONFIG, packer, resolve, show, without_remarks

__all__ = ["bind_arguments", "from_callable", "misfit"]

_MOST_ERRORS = 10

Check = Callable[[Sequence[Any], Mapping[str, Any]], Arguments]


def from_callable(
    function: Callable[..., Any], given: Mapping[str, Callable[[], Any]] = MappingProxyType({})
) -> HostFunction:
    """A function, a method, or whatever else can be called and has a name.

    Args:
        function: The function.
        given: Parameters that code neither sees nor passes, and what makes their values.

    Raises:
        RequestError: It has no name that code could call.
    """
    plain: Any = function
    while isinstance(plain, functools.partial) and not isinstance(getattr(plain, "__name__", None), str):
        plain = plain.func
    name, doc = getattr(plain, "__name__", None), inspect.getdoc(plain)
    while isinstance(plain, functools.partial):
        plain = plain.func
        doc = inspect.getdoc(plain)
    if not isinstance(name, str) or name == "<lambda>":
        raise RequestError(f"{function!r} cannot be offered as a function, since it has no name; use a def.")
    whole = _signature_of(function)
    seen = [each for name, each in whole.parameters.items() if name not in given]
    signature = whole.replace(parameters=seen) if given else whole
    resolved = resolve(function, signature)
    shown, notes = show(signature, resolved)
    is_async = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(type(plain).__call__)
    return HostFunction(
        name=check_name(name),
        signature=without_remarks(signature, resolved),
        doc=doc or "",
        is_async=is_async,
        in_thread=not is_async,
        check=_make_check(name, resolved),
        run=_make_run(function, signature, whole, given),
        shown=shown,
        notes=notes,
        pack=packer(resolved),
    )


def _make_run(
    function: Callable[..., Any],
    signature: inspect.Signature,
    whole: inspect.Signature,
    given: Mapping[str, Callable[[], Any]],
) -> Callable[[Arguments], Any]:
    def run(arguments: Arguments) -> Any:
        return function(*arguments.args, **arguments.kwargs)

    def run_with_given(arguments: Arguments) -> Any:
        passed = signature.bind(*arguments.args, **arguments.kwargs).arguments
        values = passed | {name: make() for name, make in given.items()}
        ordered = {name: values[name] for name in whole.parameters if name in values}
        bound = inspect.BoundArguments(whole, OrderedDict(ordered))
        return function(*bound.args, **bound.kwargs)

    return run_with_given if given else run


def _signature_of(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # Some that are written in C.
        return inspect.Signature(
            [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        )


def misfit(name: str, error: ValidationError, signature: inspect.Signature) -> TypeError:
    """What is wrong with a call's arguments."""
    if error.error_count() > _MOST_ERRORS:
        return TypeError(f"{name}(): {error.error_count():,} values in the arguments are of wrong types")
    found = []
    names = list(signature.parameters)
    for item in error.errors(include_url=False, include_context=False):
        first, *rest = item["loc"] or ("",)
        if isinstance(first, int):  # An argument by position.
            first = names[first] if first < len(names) else f"argument {first + 1}"
        where = ".".join(str(part) for part in (first, *rest))
        found.append(f"{where}: {item['msg']}" if where else item["msg"])
    return TypeError(f"{name}(): {'; '.join(found)}")


def _make_check(name: str, signature: inspect.Signature) -> Check:
    def take(*args: Any, **kwargs: Any) -> Arguments:
        return Arguments(args, kwargs)

    def bind(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        bind_arguments(name, signature, args, kwargs)
        return Arguments(args, kwargs)

    take.__name__ = name
    take.__signature__ = signature  # type: ignore[attr-defined]
    take.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    try:
        validated = validate_call(config=CONFIG)(take)
    except Exception:  # Together they may say something that none of them says by itself.
        return bind

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        bind(args, kwargs)
        try:
            return validated(*args, **kwargs)
        except ValidationError as error:
            raise misfit(name, error, signature) from None

    return check


def bind_arguments(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by their names.

    Raises:
        TypeError: There is one too many or too few, or one of another name.
    """
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise TypeError(f"{name}(): {error}") from None
