"""Python's own functions as functions of the host, and the functions that a session offers to its code.

Arguments are checked with pydantic, and types are shown to a model.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
import typing
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import metadata
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typing_extensions
from pydantic import ConfigDict, TypeAdapter, ValidationError, validate_call
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from coderoom.errors import RequestError
from coderoom.sandbox.functions.effects import Effect, declared_effect
from coderoom.sandbox.functions.function import Arguments, HostFunction, as_text, bind_arguments, check_name, default_of
from coderoom.sandbox.functions.schemas import Shapes, Signed
from coderoom.sandbox.guest.functions import Shown
from coderoom.sandbox.guest.values import as_plain, why_not_data

_MOST_ERRORS = 10

Check = Callable[[Sequence[Any], Mapping[str, Any]], Arguments]

_CONFIG = ConfigDict(arbitrary_types_allowed=True)  # How arguments are checked.
_SIMPLE = (str, int, float, bool, list, dict, tuple, type(None), Any, None)

Offered = Any
"""What a user can offer: a function, plain or async, a `HostFunction`, or a tool or a workbench of AutoGen."""
LateFunctions = Callable[[], Awaitable[Sequence[HostFunction]]]
"""Functions that must be asked for, such as the tools of a workbench."""


def from_callable(
    function: Callable[..., Any], given: Mapping[str, Callable[[], Any]] = MappingProxyType({})
) -> HostFunction:
    """Make a host function of a function, a method, or any callable that has a name.

    `given` has parameters that code neither sees nor passes, and the functions that make their values.
    """
    layers: list[Any] = [function]
    while isinstance(layers[-1], functools.partial):
        layers.append(layers[-1].func)
    plain = layers[-1]
    name = next((each.__name__ for each in layers if isinstance(getattr(each, "__name__", None), str)), "<lambda>")
    if name == "<lambda>":
        raise RequestError(f"{function!r} cannot be offered as a function, since it has no name; use a def.")
    try:
        whole = inspect.signature(function)
    except (TypeError, ValueError):  # Some functions written in C.
        whole = inspect.signature(lambda *args, **kwargs: None)
    signature = whole.replace(parameters=[each for name, each in whole.parameters.items() if name not in given])
    resolved, (inside, shown, notes) = read_signature(function, signature)
    is_async = inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(type(plain).__call__)

    def run(arguments: Arguments) -> Any:
        if not given:
            return function(*arguments.args, **arguments.kwargs)
        bound = inspect.BoundArguments(whole, signature.bind(*arguments.args, **arguments.kwargs).arguments)
        bound.arguments.update({name: make() for name, make in given.items()})
        return function(*bound.args, **bound.kwargs)

    return HostFunction(
        name=check_name(name),
        signature=inside,
        doc=inspect.getdoc(plain) or "",
        is_async=is_async,
        in_thread=not is_async,
        check=_make_check(name, resolved),
        run=run,
        shown=shown,
        notes=notes,
        pack=_packer(resolved.return_annotation),
        effect=effect_of(function, signature),
    )


def effect_of(function: Callable[..., Any], signature: inspect.Signature) -> Effect | None:
    """The effect that a function with this signature declares."""
    annotations = {each.name: each.annotation for each in signature.parameters.values()}
    return declared_effect(function, {**annotations, "return": signature.return_annotation}, _scope(function))


def misfit(name: str, error: ValidationError, signature: inspect.Signature) -> TypeError:
    """The error that says what is wrong with a call's arguments."""
    if error.error_count() > _MOST_ERRORS:
        return TypeError(f"{name}(): {error.error_count():,} values in the arguments are of wrong types")
    found = []
    names = list(signature.parameters)
    for item in error.errors(include_url=False, include_context=False):
        first, *rest = item["loc"] or ("",)
        if isinstance(first, int):  # A positional argument.
            first = names[first] if first < len(names) else f"argument {first + 1}"
        where = ".".join(str(part) for part in (first, *rest))
        found.append(f"{where}: {item['msg']}" if where else item["msg"])
    return TypeError(f"{name}(): {'; '.join(found)}")


def _make_check(name: str, signature: inspect.Signature) -> Check:
    def take(*args: Any, **kwargs: Any) -> Arguments:
        return Arguments(args, kwargs)

    @functools.cache
    def validated() -> Callable[..., Arguments]:
        """Made by the first call: it takes longer than all else, and of hundreds of functions few are called."""
        take.__name__ = name
        take.__signature__ = signature  # type: ignore[attr-defined]
        take.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        try:
            return validate_call(config=_CONFIG)(take)
        except Exception:  # The annotations may be valid one by one, but not together.
            return take

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        bind_arguments(name, signature, args, kwargs)
        try:
            return validated()(*args, **kwargs)
        except ValidationError as error:
            raise misfit(name, error, signature) from error

    return check


def read_signature(function: Callable[..., Any], signature: inspect.Signature) -> tuple[inspect.Signature, Signed]:
    """The signature with types instead of their names, and what code and a model see of it.

    In the former, an annotation that pydantic cannot check becomes `Any`.
    """
    scope, shapes = _scope(function), Shapes()
    resolved, inside, shown = [], [], []
    for each in signature.parameters.values():
        hint = _resolve(each.annotation, scope)
        resolved.append(each.replace(annotation=hint))
        inside.append(each.replace(annotation=_without_remarks(each.annotation, hint)))
        if isinstance(each.default, FieldInfo):
            hint = Annotated[Any if hint is each.empty else hint, each.default]
        annotation = _shown(each.annotation, hint, each.name, shapes, "validation")
        shown.append(each.replace(annotation=annotation, default=_shown_default(default_of(each))))
    returns = signature.return_annotation
    hint = _resolve(returns, scope)
    return signature.replace(parameters=resolved, return_annotation=hint), (
        signature.replace(parameters=inside, return_annotation=_without_remarks(returns, hint)),
        signature.replace(
            parameters=shown, return_annotation=_shown(returns, hint, "returns", shapes, "serialization")
        ),
        shapes.lines(),
    )


def _resolve(annotation: Any, scope: dict[str, Any]) -> Any:
    """The type that an annotation means, or `Any` if that is unknown or pydantic cannot check it."""
    if annotation is inspect.Parameter.empty or any(annotation is each for each in _SIMPLE):
        return type(None) if annotation is None else annotation

    def named() -> None:
        """Carries the annotation."""

    named.__annotations__ = {"it": annotation}
    try:
        hint = typing.get_type_hints(named, globalns=scope, include_extras=True)["it"]
    except Exception:  # A name may be undefined here, or evaluating it may fail in any way.
        return Any
    if not (_is_simple(hint) or _is_checked(hint)):
        hint = _newer(hint)
        return hint if _is_checked(hint) else Any
    return hint


def _is_checked(hint: Any) -> bool:
    """Whether pydantic can check it; a class such as a model only with its own configuration."""
    for config in (_CONFIG, None):
        with contextlib.suppress(Exception):
            TypeAdapter(hint, config=config)
            return True
    return False


def _without_remarks(given: Any, hint: Any) -> Any:
    """The annotation as it was written; of an `Annotated` one the plain type."""
    return _base(hint if get_origin(hint) is Annotated else given)


def _packer(hint: Any) -> Callable[[Any], Any] | None:
    """Turns a result into data as its annotation says; `None` where the annotation adds nothing."""
    if _is_simple(hint):
        return None
    try:
        adapter = TypeAdapter(hint)
    except Exception:  # Pydantic cannot use it.
        return None
    return lambda value: adapter.dump_python(value, mode="json", warnings="error")


def _shown_default(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return default
    try:
        plain = as_plain(default, to_jsonable_python)
        return default if isinstance(default, Shown) else Shown("...") if why_not_data(plain) else plain
    except Exception:  # Any object can be a default.
        return Shown("...")


def _shown(given: Any, hint: Any, name: str, shapes: Shapes, mode: Literal["validation", "serialization"]) -> Any:
    if given is inspect.Parameter.empty and hint is inspect.Parameter.empty:
        return given
    if _is_simple(hint):
        return as_text(given)
    try:
        with warnings.catch_warnings():  # About defaults that have no JSON form.
            warnings.simplefilter("ignore")
            schema = TypeAdapter(hint).json_schema(mode=mode)
    except Exception:  # It has no JSON form.
        return as_text(_base(given))
    shapes.use(schema)
    noted = get_args(hint)[1:] if get_origin(hint) is Annotated else ()  # AutoGen describes parameters of tools so.
    described = next((each for each in noted if isinstance(each, str)), "")
    shapes.note(name, {"description": described, **schema} if described else schema, bounds=mode == "validation")
    return Shown(shapes.type_of(schema))


def _base(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _is_simple(hint: Any) -> bool:
    """Whether JSON has the same type."""
    if hint is inspect.Parameter.empty or any(hint is each for each in _SIMPLE):
        return True
    origin = get_origin(hint)
    if origin is Literal:
        return all(each is None or type(each) in (str, int, bool) for each in get_args(hint))
    if origin in (list, dict, tuple, Union, types.UnionType):
        return all(each is ... or _is_simple(each) for each in get_args(hint))
    return False


def _scope(function: Any) -> dict[str, Any]:
    """The names that a function's annotations may use."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return dict(vars(sys.modules.get(function.__module__, typing)))
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not hasattr(function, "__globals__"):
        function = getattr(type(function).__call__, "__func__", type(function).__call__)
    known = dict(getattr(function, "__globals__", {}))
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True) if known else ()
    for name, cell in cells:
        try:
            known[name] = cell.cell_contents
        except ValueError:  # It has no value yet.
            continue
    return known


def _newer(hint: Any) -> Any:
    """The type with each `TypedDict` as one of typing_extensions: pydantic cannot use those of Python 3.11."""
    if typing.is_typeddict(hint):
        fields = {name: _newer(each) for name, each in typing.get_type_hints(hint, include_extras=True).items()}
        return typing_extensions.TypedDict(hint.__name__, fields, total=hint.__total__)  # type: ignore[operator]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (list, dict, tuple):
        return origin[tuple(_newer(each) for each in inner)]
    if origin in (Union, types.UnionType):
        return Union[tuple(_newer(each) for each in inner)]  # noqa: UP007
    return hint


class Offer:
    """An allow-list of functions of the host; `argument` is the caller's name for it, for messages."""

    def __init__(self, functions: Sequence[Offered] = (), argument: str = "functions") -> None:
        if not isinstance(functions, list | tuple):
            raise RequestError(f"{argument}={functions!r} must be a list of functions, tools and workbenches.")
        self._items = [_prepare(item) for item in functions]
        self.known = tuple(_by_name(item for item in self._items if isinstance(item, HostFunction)).values())

    def __bool__(self) -> bool:
        return bool(self._items)

    async def list(self) -> dict[str, HostFunction]:
        """All functions by their names, those of workbenches included."""
        found: list[HostFunction] = []
        for item in self._items:
            found += [item] if isinstance(item, HostFunction) else await item()
        return _by_name(found)


async def host_functions(functions: Sequence[Offered]) -> tuple[HostFunction, ...]:
    """The host functions that a session offers for functions, tools and workbenches.

    Args:
        functions: As for `Sandbox.session`, which also accepts what this returns.

    Raises:
        RequestError: Something cannot be offered, or a name is taken twice.
    """
    return tuple((await Offer(functions).list()).values())


def check_functions(functions: Sequence[Offered], argument: str = "functions") -> tuple[HostFunction, ...]:
    """Check functions, tools and workbenches, without asking workbenches for their tools.

    Args:
        functions: As for `Sandbox.session`.
        argument: The caller's name for `functions`, for messages.

    Returns:
        The host functions, without those of workbenches.

    Raises:
        RequestError: Something cannot be offered, or a name is taken twice.
    """
    return Offer(functions, argument).known


def _prepare(item: Any) -> HostFunction | LateFunctions:
    if isinstance(item, HostFunction):
        return item
    for package, adapter in _adapters().items():
        if package in sys.modules:  # Else it cannot be an object of that package.
            adapted: HostFunction | LateFunctions | None = adapter.load()(item)
            if adapted is not None:
                return adapted
    if callable(item):
        return from_callable(item)
    raise RequestError(f"{item!r} cannot be offered: it is not a function, a tool or a workbench.")


@functools.cache
def _adapters() -> dict[str, EntryPoint]:
    """What makes functions of the tools of other packages, by the names of these packages."""
    return {point.name: point for point in metadata.entry_points(group="coderoom.adapters")}


def _by_name(functions: Iterable[HostFunction]) -> dict[str, HostFunction]:
    found: dict[str, HostFunction] = {}
    for function in functions:
        if function.name in found:
            raise RequestError(f"Two functions are offered under the name {function.name!r}; rename one of them.")
        found[function.name] = function
    return found
