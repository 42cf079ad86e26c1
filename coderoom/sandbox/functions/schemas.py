"""Signatures of what is described by a JSON Schema."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from coderoom.errors import RequestError
from coderoom.sandbox.functions.callables import bind_arguments
from coderoom.sandbox.functions.function import check_name
from coderoom.sandbox.functions.shapes import Shapes

__all__ = ["Signed", "bind", "sign", "tool_name"]

Signed = tuple[inspect.Signature, inspect.Signature, tuple[str, ...]]
"""A signature, how a model is shown it, and what else there is to say of it."""

_FOR_ANYTHING = inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)


def tool_name(name: str) -> str:
    """The name under which code calls a tool.

    Raises:
        RequestError: It cannot be made one of Python's.
    """
    return check_name(re.sub(r"\W", "_", name))


def sign(schema: Mapping[str, Any]) -> Signed:
    """The signature that the schema of the parameters describes."""
    shapes = Shapes()
    shapes.use(schema)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    required = list(schema.get("required") or ())
    for name, told in properties.items():
        shapes.note(str(name), told)
    if not all(_is_parameter(name) for name in properties):
        signature = inspect.Signature([_FOR_ANYTHING])
        return signature, signature, shapes.told()
    parameters = [_parameter(name, told, name in required, shapes) for name, told in properties.items()]
    parameters.sort(key=lambda parameter: parameter.default is not parameter.empty)
    signature = inspect.Signature(parameters)
    return signature, signature, shapes.told()


def _is_parameter(name: str) -> bool:
    try:
        return check_name(name) == name
    except RequestError:
        return False


def _parameter(name: str, told: Any, required: bool, shapes: Shapes) -> inspect.Parameter:
    told = told if isinstance(told, Mapping) else {}
    default = inspect.Parameter.empty if required else told.get("default")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=default, annotation=shapes.type_of(told))


def bind(name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by their names.

    Raises:
        TypeError: They are not those of the signature.
    """
    bound = bind_arguments(name, signature, args, kwargs)
    return bound.get(_FOR_ANYTHING.name, {}) if _FOR_ANYTHING in signature.parameters.values() else bound
