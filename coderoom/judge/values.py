"""Test data: JSON, with tags for types that JSON lacks.

Most tags are described in `coderoom.sandbox.guest.encoding`. These are only for tests:

    {"$int": "0x1f"}                      an integer of thousands of digits
    {"$bigint": "5"}, {"$map": [["a", 1]]}                a `BigInt` and a `Map` of JavaScript
    {"$object": {"type": "Point", "fields": {"x": 1}}}    and {"$namedtuple": ...} likewise
    {"$enum": {"type": "Color", "name": "RED", "value": 1}}
    {"$opaque": {"type": "generator", "why": "..."}}      what cannot be compared
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from coderoom.judge.guest.values import Encoder, Record, decode
from coderoom.sandbox.guest.decoding import TaggedError
from coderoom.sandbox.guest.encoding import place

__all__ = ["Record", "TaggedError", "canonical", "decode", "encode", "fields_of", "parts", "show", "tag_of"]

_SHOWN = 200
_WRAPPED = {
    "list": ("[", "]"),
    "$tuple": ("(", ")"),
    "$set": ("{", "}"),
    "$frozenset": ("frozenset({", "})"),
}


def encode(value: Any, root: str = "value") -> Any:
    """Convert a value to tagged data.

    Args:
        value: The value. `decode` returns objects of unknown classes as a `Record`.
        root: The name of the whole value in error messages.

    Raises:
        TaggedError: It has no tagged form, or is too large or too deep; the message names the place.
    """

    def refuse(kind: str, why: str, path: list[tuple[str, Any]]) -> Any:
        raise TaggedError(f"{place(root, path)}: a {kind} cannot be test data: {why}")

    return Encoder(refuse).encode(value)


def canonical(data: Any) -> str:
    """JSON-like data as JSON text in canonical form."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def tag_of(data: Any) -> tuple[str, Any]:
    """The tag and the content of tagged data; for plain data, the name of its JSON type and the data."""
    if type(data) is dict:
        if len(data) == 1:
            tag, content = next(iter(data.items()))
            if tag.startswith("$"):
                return tag, content
        return "$dict", [[key, item] for key, item in data.items()]
    names = {bool: "bool", int: "int", float: "float", str: "str", list: "list", type(None): "None"}
    return names.get(type(data), "?"), data


def parts(data: Any) -> Iterator[Any]:
    """Tagged data and all that is in it."""
    left = [data]
    for item in left:
        yield item
        left += item.values() if isinstance(item, dict) else item if isinstance(item, list | tuple) else ()


def fields_of(content: Any) -> list[list[Any]]:
    """The fields of an object as pairs."""
    fields = content.get("fields") if isinstance(content, Mapping) else None
    if isinstance(fields, Mapping):
        return [[name, item] for name, item in fields.items()]
    pairs = fields if isinstance(fields, list) else []
    return [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)]


def show(data: Any, most: int = _SHOWN) -> str:
    """Show tagged data like Python's `repr`, truncated if long."""
    text = _text(data, most) if most > 0 else ""
    return text[:most] + "..." if len(text) > max(most, 0) else text


def _text(data: Any, room: int) -> str:
    """The text of data; what does not fit into the room may be missing at its end."""
    if room < 0:
        return ""
    tag, content = tag_of(data)
    if tag in _WRAPPED and isinstance(content, list):
        opening, closing = _WRAPPED[tag]
        closing = ",)" if tag == "$tuple" and len(content) == 1 else closing
        return _enclosed(opening, (("", item) for item in content), closing, room)
    if tag in ("$dict", "$map") and isinstance(content, list):
        return _enclosed("{" if tag == "$dict" else "Map{", (_entry(each, room) for each in content), "}", room)
    if tag in ("$object", "$namedtuple"):
        kind = content.get("type") if isinstance(content, dict) else "?"
        return _enclosed(f"{kind}(", ((f"{name}=", item) for name, item in fields_of(content)), ")", room)
    return _leaf(tag, content, room)


def _entry(entry: Any, room: int) -> tuple[str, Any]:
    if isinstance(entry, list) and len(entry) == 2:
        return f"{_text(entry[0], room)}: ", entry[1]
    return "", entry


def _enclosed(opening: str, items: Iterable[tuple[str, Any]], closing: str, room: int) -> str:
    text = opening
    for number, (before, item) in enumerate(items):
        text += (", " if number else "") + before
        text += _text(item, room - len(text))
        if len(text) > room:
            break
    return text + closing


def _leaf(tag: str, content: Any, room: int) -> str:
    if tag == "str":
        return ascii(content[: room + 1]) if not content.isprintable() else repr(content[: room + 1])
    if tag == "int":
        return str(content) if content.bit_length() < 4 * room + 64 else f"an integer of {content.bit_length():,} bits"
    if not tag.startswith("$"):
        return repr(content)
    if isinstance(content, dict):
        kind = str(content.get("type", content.get("dtype", "")))[:80]
        if tag == "$enum":
            return f"{kind}.{str(content.get('name'))[:80]}"
        if tag == "$opaque":
            return f"a {kind} that cannot be compared: {str(content.get('why'))[:160]}"
        if tag == "$array":
            return f"array({show(content.get('items'), room - len(tag))}, {kind})"
    if tag == "$bigint":
        return f"{str(content)[: room + 1]}n"
    if tag == "$float":
        return str(content)[:10]
    return f"{tag[1:]}({show(content, room - len(tag))})"
