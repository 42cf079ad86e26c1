"""The annotations of Python's functions: as pydantic checks them, and as a model is shown them."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
import warnings
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typing_extensions
from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from coderoom.sandbox.functions.shapes import Shapes
from coderoom.sandbox.guest.plain import as_plain
from coderoom.sandbox.guest.stubs import Shown, why_not_data

__all__ = ["CONFIG", "default_of", "packer", "resolve", "show", "without_remarks"]

CONFIG = ConfigDict(arbitrary_types_allowed=True)
"""How arguments are checked."""

_SIMPLE = (str, int, float, bool, list, dict, tuple, type(None), Any, None)


def resolve(function: Callable[..., Any], signature: inspect.Signature) -> inspect.Signature:
    """The signature with types instead of their names; what cannot be used is `Any` and checked by nobody."""
    scope = _scope(function)
    parameters = [
        each.replace(annotation=_usable(_evaluate(each.annotation, scope))) for each in signature.parameters.values()
    ]
    returns = _usable(_evaluate(signature.return_annotation, scope))
    return signature.replace(parameters=parameters, return_annotation=returns)


def _is_checked(hint: Any) -> bool:
    """Whether pydantic can check it."""
    try:
        TypeAdapter(hint, config=CONFIG)
    except PydanticUserError as error:
        return error.code == "type-adapter-config-unused" and _has_own_config(hint)
    except Exception:
        return False
    return True


def without_remarks(signature: inspect.Signature, resolved: inspect.Signature) -> inspect.Signature:
    """The signature with the types alone where they are `Annotated` with something."""
    parameters = [
        given.replace(annotation=_base(known.annotation)) if get_origin(known.annotation) is Annotated else given
        for given, known in zip(signature.parameters.values(), resolved.parameters.values(), strict=True)
    ]
    returns = resolved.return_annotation
    if get_origin(returns) is not Annotated:
        returns = signature.return_annotation
    return signature.replace(parameters=parameters, return_annotation=_base(returns))


def _has_own_config(hint: Any) -> bool:
    """Whether it is a class of fields that can be checked, which is taken without another configuration."""
    try:
        TypeAdapter(hint)
    except Exception:
        return False
    return True


def packer(resolved: inspect.Signature) -> Callable[[Any], Any] | None:
    """What makes data of a result as its annotation says; `None`: it says no more than the result itself."""
    hint = resolved.return_annotation
    if _is_simple(hint):
        return None
    try:
        adapter = TypeAdapter(hint)
    except Exception:  # It says nothing to pydantic.
        return None
    return lambda value: adapter.dump_python(value, mode="json", warnings="error")


def show(signature: inspect.Signature, resolved: inspect.Signature) -> tuple[inspect.Signature, tuple[str, ...]]:
    """The signature as a model is shown it, and what there is to say of its types."""
    shapes = Shapes()
    parameters = []
    for given, known in zip(signature.parameters.values(), resolved.parameters.values(), strict=True):
        hint, default = known.annotation, default_of(given)
        if isinstance(given.default, FieldInfo):
            hint = Annotated[Any if hint is known.empty else hint, given.default]
        annotation = _shown(given.annotation, hint, given.name, shapes, "validation")
        if default is not given.empty:
            default = _shown_default(default)
        parameters.append(given.replace(annotation=annotation, default=default))
    returns = _shown(signature.return_annotation, resolved.return_annotation, "returns", shapes, "serialization")
    return signature.replace(parameters=parameters, return_annotation=returns), shapes.told()


def default_of(parameter: inspect.Parameter) -> Any:
    """A parameter's default; one that is given as pydantic's `Field` is in there."""
    default = parameter.default
    if not isinstance(default, FieldInfo):
        return default
    if default.default_factory is not None:
        return Shown("...")
    return parameter.empty if default.default in (PydanticUndefined, ...) else default.default


def _shown_default(default: Any) -> Any:
    """A default as it could be passed."""
    try:
        plain = as_plain(default, to_jsonable_python)
        return default if isinstance(default, Shown) else Shown("...") if why_not_data(plain) else plain
    except Exception:  # It may be anything.
        return Shown("...")


def _shown(given: Any, hint: Any, name: str, shapes: Shapes, mode: Literal["validation", "serialization"]) -> Any:
    if given is inspect.Parameter.empty and hint is inspect.Parameter.empty:
        return given
    if _is_simple(hint):
        return _text(given)
    try:
        with warnings.catch_warnings():  # Of defaults that have no JSON form.
            warnings.simplefilter("ignore")
            schema = TypeAdapter(hint).json_schema(mode=mode)
    except Exception:  # Its JSON form is not known; it may have none.
        return _text(_base(given))
    shapes.use(schema)
    described = _description(hint)
    shapes.note(name, {"description": described, **schema} if described else schema, bounds=mode == "validation")
    return Shown(shapes.type_of(schema))


def _text(annotation: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return annotation
    return Shown(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


def _base(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _description(hint: Any) -> str:
    """A text that an `Annotated` has besides its type, as AutoGen's tools are described."""
    if get_origin(hint) is not Annotated:
        return ""
    return next((each for each in get_args(hint)[1:] if isinstance(each, str)), "")


def _is_simple(hint: Any) -> bool:
    """Whether it reads the same as JSON."""
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
        except ValueError:  # Nothing is in it yet.
            continue
    return known


def _evaluate(annotation: Any, scope: dict[str, Any]) -> Any:
    if annotation is inspect.Parameter.empty:
        return annotation
    if annotation is None:
        return type(None)

    def named() -> None:
        """Has the annotation."""

    named.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(named, globalns=scope, include_extras=True)["it"]
    except Exception:  # A name may mean nothing here, or anything.
        return Any


def _usable(hint: Any) -> Any:
    if hint is inspect.Parameter.empty:
        return hint
    if _is_checked(hint):
        return hint
    hint = _newer(hint)
    return hint if _is_checked(hint) else Any


def _newer(hint: Any) -> Any:
    """With each `TypedDict` as pydantic can use it, which Python 3.11's own is not."""
    if typing.is_typeddict(hint):
        fields = {name: _newer(each) for name, each in typing.get_type_hints(hint, include_extras=True).items()}
        return typing_extensions.TypedDict(hint.__name__, fields, total=hint.__total__)  # type: ignore[operator]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (list, dict, tuple):
        return origin[tuple(_newer(each) for each in inner)]
    if origin in (Union, types.UnionType):
        return Union[tuple(_newer(each) for each in inner)]  # noqa: UP007
    return hint
