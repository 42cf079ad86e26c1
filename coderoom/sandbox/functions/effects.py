"""What calls of a function of the host do to the world, as its author declares it."""

from __future__ import annotations

import builtins
import functools
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, get_args

from coderoom.errors import RequestError

EffectName = Literal["read", "write", "forbidden"]
T = TypeVar("T", bound=Callable[..., Any])
_ATTRIBUTE: Final = "__coderoom_effect__"


@dataclass(frozen=True)
class Effect:
    """What calls of a function do: `Annotated[str, Effect("write")]` as its return annotation, or a decorator.

    It does nothing by itself: a `CodeActAgent` asks its `call_approval` before it makes a call that writes.

    Attributes:
        name: `read`: they change nothing, and are made without a question. `write`: they change something outside of
            the sandbox. `forbidden`: code may not make them.
        is_hint: Whether it is only what a server says of its tool. Without an approval, such a call is free.
        inverse: The name of the function that undoes a call that writes. When code is undone that has made such a call,
            it is called with those of the call's arguments that it has parameters for, and with what the call returned
            as `result`, if it has a parameter of that name.

    Raises:
        RequestError: There is no such effect, or its calls change nothing that could be undone.
    """

    name: EffectName
    is_hint: bool = False
    inverse: str = ""

    def __post_init__(self) -> None:
        if self.name not in get_args(EffectName):
            known = ", ".join(map(repr, get_args(EffectName)))
            raise RequestError(f"Effect({self.name!r}): an effect is one of {known}.")
        if self.inverse and self.name != "write":
            raise RequestError(f"Effect({self.name!r}, inverse={self.inverse!r}): only calls that write are undone.")

    def __call__(self, function: T) -> T:
        """As a decorator: `@Effect("write")`."""
        # A class or static method is called as the function in it.
        setattr(function.__func__ if isinstance(function, classmethod | staticmethod) else function, _ATTRIBUTE, self)
        return function


def declared_effect(function: Any, annotations: Mapping[str, Any], scope: dict[str, Any]) -> Effect | None:
    """The effect that a function declares, by decorator or by its return annotation.

    Args:
        function: The function, or a `functools.partial` of it.
        annotations: The annotations of its parameters, and that of its result as `return`.
        scope: The names that they may use.

    Raises:
        RequestError: There is one that cannot be used, and would be lost.
    """
    layers = [function]
    while isinstance(layers[-1], functools.partial):
        layers.append(layers[-1].func)
    plain = layers[-1]
    if not isinstance(plain, type):
        layers.append(type(plain).__call__)  # Of an object that is called.
    found = [effect for each in layers if (effect := decorated_effect(each))]
    name = getattr(plain, "__name__", "the function")
    for where, annotation in annotations.items():
        there = list(_effects_in(_hint(name, annotation, scope)))
        if there and where != "return":
            raise RequestError(
                f"The effect of {name}() belongs to its result, as in `-> Annotated[None, Effect({there[0].name!r})]`, "
                f"and not to the parameter {where!r}."
            )
        found += there
    if len(set(found)) > 1:
        raise RequestError(f"{name}() declares two effects: {found[0].name!r} and {found[1].name!r}.")
    return found[0] if found else None


def decorated_effect(decorated: object) -> Effect | None:
    """The effect that an object has by decorator."""
    found = getattr(decorated, _ATTRIBUTE, None)
    return found if isinstance(found, Effect) else None


def _hint(name: str, annotation: Any, scope: dict[str, Any]) -> Any:
    """What an annotation means; `None` if it is a text that cannot be read, and names no effect."""
    if not isinstance(annotation, str):
        return annotation
    if hasattr(builtins, annotation):  # As that of most parameters.
        return None

    def named() -> None:
        """Carries the annotation."""

    named.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(named, globalns=scope, include_extras=True)["it"]
    except Exception as error:  # Evaluating it may fail in any way.
        if Effect.__name__ not in annotation:
            return None
        raise RequestError(
            f"The annotation {annotation!r} of {name}() cannot be read ({type(error).__name__}: {error}), so that its "
            "effect is not known. Use names that its module has, or the decorator: @Effect(...)."
        ) from error


def _effects_in(hint: Any) -> Iterator[Effect]:
    if isinstance(hint, Effect):
        yield hint
    for part in get_args(hint):
        yield from _effects_in(part)
