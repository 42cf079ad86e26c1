"""Signatures of what is described by a JSON Schema, in words that a model reads as Python."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coderoom.errors import RequestError
from coderoom.sandbox.functions.function import bind_arguments, check_name

_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
_FORMATS = {
    "date": "a date as ISO text, such as '2024-05-31'",
    "date-time": "a date and time as ISO text, such as '2024-05-31T12:30:00'",
    "time": "a time as ISO text, such as '12:30:00'",
    "duration": "a duration as ISO text, such as 'PT90S'",
    "uuid": "a UUID as text",
    "path": "a path as text",
}
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "like the pattern {!r}",
}
_LONGEST = 1_000
_DEEPEST = 6


class Shapes:
    """Names the types that schemas describe, and collects notes on them."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self._definitions: dict[str, Any] = {}

    def use(self, schema: Mapping[str, Any]) -> None:
        """Use the definitions of a schema from now on."""
        self._definitions = {}
        for place in ("$defs", "definitions"):
            found = schema.get(place)
            if isinstance(found, Mapping):
                self._definitions |= {f"#/{place}/{name}": part for name, part in found.items()}

    def type_of(self, schema: Any) -> str:
        """The type for a signature."""
        return self._type(schema, _DEEPEST, inline=False)

    def note(self, name: str, schema: Any, *, bounds: bool = True) -> None:
        """Note what the type of a parameter does not say, with its bounds if `bounds` is true."""
        if isinstance(schema, Mapping):
            whole = self._type(schema, _DEEPEST, inline=True)
            found = [whole] if "{" in whole else []
            if said := "; ".join([*found, *_remarks(name, schema, bounds)]):
                self.notes[name] = said[:_LONGEST]

    def lines(self) -> tuple[str, ...]:
        """All notes, one line each."""
        return tuple(f"{name}: {said}" for name, said in self.notes.items())

    def _type(self, schema: Any, deep: int, inline: bool) -> str:
        if not isinstance(schema, Mapping) or deep == 0:
            return "Any"
        if isinstance(schema.get("$ref"), str):
            part = self._definitions.get(schema["$ref"])
            if not isinstance(part, Mapping):
                return "Any"
            if not part.get("properties"):
                return self._type(part, deep - 1, inline)
            name = re.sub(r"\W+", "_", schema["$ref"].rpartition("/")[2])
            if name not in self.notes:
                self.notes[name] = "a dict"  # It may contain itself.
                self.notes[name] = f"a dict {self._fields(part, deep)}"[:_LONGEST]
            return name
        options = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(options, list):
            return f"Literal[{', '.join(map(repr, options))}]"
        several = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(several, list):
            return _union(self._type(each, deep - 1, inline) for each in several if isinstance(each, Mapping))
        every = schema.get("allOf")
        if isinstance(every, list) and len(every) == 1:
            return self._type(every[0], deep - 1, inline)
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union(_TYPES.get(str(each), "Any") for each in kind)
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            return f"list[{self._type(schema['items'], deep - 1, inline)}]"
        if kind == "object" and inline and isinstance(schema.get("properties"), Mapping) and schema["properties"]:
            return self._fields(schema, deep)
        values = schema.get("additionalProperties")
        if kind == "object" and isinstance(values, Mapping) and values and not schema.get("properties"):
            return f"dict[str, {self._type(values, deep - 1, inline)}]"
        return _TYPES.get(str(kind), "Any")

    def _fields(self, schema: Mapping[str, Any], deep: int) -> str:
        required = schema.get("required") or ()
        found = []
        for name, part in schema["properties"].items():
            part = part if isinstance(part, Mapping) else {}
            text = f"{name!r}: {self._type(part, deep - 1, inline=True)}"
            if "default" in part:
                text += f" = {part['default']!r}"
            elif name not in required:
                text += " (may be left out)"
            remarks = "; ".join(_remarks(name, part))
            found.append(f"{text} ({remarks})" if remarks else text)
        return f"{{{', '.join(found)}}}"


def _remarks(name: str, schema: Mapping[str, Any], bounds: bool = True) -> list[str]:
    found = []
    said = " ".join(str(schema.get("description") or "").split())
    # AutoGen describes a parameter without a description by its name.
    if said and said.lower() != name.lower():
        found.append(said[:_LONGEST])
    found += [_FORMATS[form] for form in _formats(schema)]
    return found + [text.format(schema[key]) for key, text in _BOUNDS.items() if bounds and key in schema]


def _formats(schema: Any, deep: int = _DEEPEST) -> list[str]:
    if not isinstance(schema, Mapping) or deep == 0:
        return []
    found = [str(schema["format"])] if str(schema.get("format")) in _FORMATS else []
    inner = [schema.get("items"), schema.get("additionalProperties")]
    inner += [each for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list) for each in schema[key]]
    for each in inner:
        found += _formats(each, deep - 1)
    return list(dict.fromkeys(found))


def _union(names: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(names)) or "Any"


Signed = tuple[inspect.Signature, inspect.Signature, tuple[str, ...]]
"""A signature, the signature for a model, and notes."""

FOR_ANYTHING = inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)
"""The parameter of a function whose arguments have names that no parameter can have. Its own name means nothing."""


def tool_name(name: str) -> str:
    """The name by which code calls a tool."""
    return check_name(re.sub(r"\W", "_", name))


def sign(schema: Mapping[str, Any]) -> Signed:
    """The signature for a schema of parameters."""
    shapes = Shapes()
    shapes.use(schema)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        properties = {}
    required = list(schema.get("required") or ())
    for name, part in properties.items():
        shapes.note(str(name), part)
    parameters = [FOR_ANYTHING]
    if all(_is_parameter(name) for name in properties):
        kind, missing = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        parameters = []
        for name, part in properties.items():
            default = missing if name in required else part.get("default") if isinstance(part, Mapping) else None
            shown = shapes.type_of(part if isinstance(part, Mapping) else {})
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=shown))
        parameters.sort(key=lambda parameter: parameter.default is not parameter.empty)
    signature = inspect.Signature(parameters)
    return signature, signature, shapes.lines()


def unsigned_defaults(schema: Mapping[str, Any], signature: inspect.Signature) -> dict[str, Any]:
    """The defaults of a schema that its signature does not have, since a name in it cannot be a parameter's."""
    if FOR_ANYTHING not in signature.parameters.values():
        return {}
    parts = schema.get("properties")
    found = parts.items() if isinstance(parts, Mapping) else ()
    return {name: part["default"] for name, part in found if isinstance(part, Mapping) and "default" in part}


def _is_parameter(name: str) -> bool:
    try:
        return check_name(name) == name
    except RequestError:
        return False


def bind(name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by their names."""
    bound = bind_arguments(name, signature, args, kwargs)
    return bound.get(FOR_ANYTHING.name, {}) if FOR_ANYTHING in signature.parameters.values() else bound
