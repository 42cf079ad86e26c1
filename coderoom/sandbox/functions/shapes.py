"""What a JSON Schema says, in words that a model reads as Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Shapes"]

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
    """Names the types that schemas describe, and keeps what is to be said of them.

    Attributes:
        notes: What there is to say: of parameters by their names, and once of each type that has fields.
    """

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self._definitions: dict[str, Any] = {}

    def use(self, schema: Mapping[str, Any]) -> None:
        """Take the definitions that the next schemas refer to."""
        self._definitions = {}
        for place in ("$defs", "definitions"):
            found = schema.get(place)
            if isinstance(found, Mapping):
                self._definitions |= {f"#/{place}/{name}": told for name, told in found.items()}

    def type_of(self, schema: Any) -> str:
        """The type as it stands in a signature."""
        return self._type(schema, _DEEPEST, inline=False)

    def note(self, name: str, schema: Any, *, bounds: bool = True) -> None:
        """Say of a parameter what its type does not say, with the bounds that it has if they are wanted."""
        if isinstance(schema, Mapping):
            whole = self._type(schema, _DEEPEST, inline=True)
            found = [whole] if "{" in whole else []
            if said := "; ".join([*found, *_remarks(name, schema, bounds)]):
                self.notes[name] = said[:_LONGEST]

    def told(self) -> tuple[str, ...]:
        """All that there is to say, a line each."""
        return tuple(f"{name}: {said}" for name, said in self.notes.items())

    def _type(self, schema: Any, deep: int, inline: bool) -> str:
        if not isinstance(schema, Mapping) or deep == 0:
            return "Any"
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema["$ref"], deep, inline)
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
        return self._of_kind(schema, str(kind), deep, inline)

    def _of_kind(self, schema: Mapping[str, Any], kind: str, deep: int, inline: bool) -> str:
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            return f"list[{self._type(schema['items'], deep - 1, inline)}]"
        if kind == "object" and inline and isinstance(schema.get("properties"), Mapping) and schema["properties"]:
            return self._fields(schema, deep)
        values = schema.get("additionalProperties")
        if kind == "object" and isinstance(values, Mapping) and values and not schema.get("properties"):
            return f"dict[str, {self._type(values, deep - 1, inline)}]"
        return _TYPES.get(kind, "Any")

    def _reference(self, reference: str, deep: int, inline: bool) -> str:
        told = self._definitions.get(reference)
        if not isinstance(told, Mapping):
            return "Any"
        if not told.get("properties"):
            return self._type(told, deep - 1, inline)
        name = re.sub(r"\W+", "_", str(reference.rpartition("/")[2]))
        if name not in self.notes:
            self.notes[name] = "a dict"  # It may hold others of its kind.
            self.notes[name] = f"a dict {self._fields(told, deep)}"[:_LONGEST]
        return name

    def _fields(self, schema: Mapping[str, Any], deep: int) -> str:
        required = schema.get("required") or ()
        found = []
        for name, told in schema["properties"].items():
            told = told if isinstance(told, Mapping) else {}
            text = f"{name!r}: {self._type(told, deep - 1, inline=True)}"
            if "default" in told:
                text += f" = {told['default']!r}"
            elif name not in required:
                text += " (may be left out)"
            remarks = "; ".join(_remarks(name, told))
            found.append(f"{text} ({remarks})" if remarks else text)
        return f"{{{', '.join(found)}}}"


def _remarks(name: str, schema: Mapping[str, Any], bounds: bool = True) -> list[str]:
    """What it is for, how it is written and what bounds it has."""
    found = []
    said = " ".join(str(schema.get("description") or "").split())
    # AutoGen describes a parameter that nobody described by its name.
    if said and said.lower() != name.lower():
        found.append(said[:_LONGEST])
    found += [_FORMATS[form] for form in _formats(schema)]
    return found + [text.format(schema[key]) for key, text in _BOUNDS.items() if bounds and key in schema]


def _formats(schema: Any, deep: int = _DEEPEST) -> list[str]:
    """The ways in which its texts are written."""
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
