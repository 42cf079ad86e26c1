"""Converts tagged data for Node, and for comparison with JavaScript's values."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from coderoom.generation.testing.values import tag_of

__all__ = ["as_expected", "as_told", "for_judge", "for_node"]

_SAFE = 2**53
_KINDS = {"$tuple": "list", "$frozenset": "$set", "$bytearray": "$bytes", "$namedtuple": "$object"}
_WITH_ITEMS = ("$tuple", "$set", "$frozenset")
_WITH_FIELDS = ("$object", "$namedtuple")


def for_node(data: Any) -> Any:
    """Tagged data without what its reader there does not know: large integers, halves of characters, dates."""
    tag, content = tag_of(data)
    if tag == "int" and abs(content) > _SAFE:
        return {"$int": hex(content)}
    if tag == "$str":
        return base64.b64decode(content).decode("utf-8", "surrogatepass")
    return _moment(tag, content) or _deeper(data, for_node)


def as_expected(data: Any) -> Any:
    """What is expected, as far as JavaScript can have it: it has one kind of list, of set, of bytes and of moment."""
    tag, content = tag_of(data)
    if tag == "$enum" and content.get("mixed") is True:
        return as_expected(content["value"])
    found = _moment(tag, content)
    if found is not None:
        return found
    found = _deeper(data, as_expected)
    kind = _KINDS.get(tag)
    if kind is not None:
        found = found[tag] if kind == "list" else {kind: found[tag]}
    return found


def as_told(data: Any) -> Any:
    """What came. A whole number is an integer, so that where one is expected it has to be that one."""
    if type(data) is float and data.is_integer():
        return int(data)
    return _deeper(data, as_told)


def for_judge(data: Any, *, hashed: bool = False) -> Any:
    """What came, as Python can have it: in a set, and as a key, a list is a tuple and a set a frozen one."""
    tag, content = tag_of(data)
    if tag == "$set" and isinstance(content, list):
        return {"$frozenset" if hashed else "$set": [for_judge(item, hashed=True) for item in content]}
    if tag == "$dict" and type(data) is dict and "$dict" in data and isinstance(content, list):
        pairs = [pair for pair in content if isinstance(pair, list) and len(pair) == 2]
        return {"$dict": [[for_judge(key, hashed=True), for_judge(item)] for key, item in pairs]}
    found = _deeper(data, lambda item: for_judge(item, hashed=hashed))
    return {"$tuple": found} if hashed and tag == "list" else found


def _moment(tag: str, content: Any) -> dict[str, str] | None:
    """A moment in UTC, which is what one without a zone is taken for."""
    if tag not in ("$date", "$datetime") or not isinstance(content, str):
        return None
    moment = datetime.fromisoformat(content)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return {"$datetime": moment.isoformat()}


def _deeper(data: Any, change: Callable[[Any], Any]) -> Any:
    """The data with everything in it changed."""
    if type(data) is list:
        return [change(item) for item in data]
    if type(data) is not dict:
        return data
    tag, content = tag_of(data)
    if tag == "$dict":
        if "$dict" not in data:
            return {key: change(item) for key, item in data.items()}
        if not isinstance(content, list):
            return data
        return {tag: [[change(part) for part in pair] if isinstance(pair, list) else pair for pair in content]}
    if tag in _WITH_ITEMS and isinstance(content, list):
        return {tag: [change(item) for item in content]}
    if tag in _WITH_FIELDS and isinstance(content, dict):
        fields = content.get("fields")
        if isinstance(fields, dict):
            changed: Any = {name: change(item) for name, item in fields.items()}
        else:
            changed = [[pair[0], change(pair[1])] for pair in fields or () if isinstance(pair, list) and len(pair) == 2]
        return {tag: {**content, "fields": changed}}
    return data
