"""Marks values of tests as BigInts and Maps where their declared type says so, since JSON has neither."""

from __future__ import annotations

import ast
import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from coderoom.judge import decode
from coderoom.judge.source import UNREADABLE, WRAPPERS, is_dots, named, parsed_expression, read_type
from coderoom.judge.values import tag_of

_LONGEST = 500
_MAPS = ("Map", "ReadonlyMap")
_DICTS = ("dict", "Dict", "Mapping", "MutableMapping", "defaultdict", "DefaultDict", "OrderedDict")
_NUMBERS = ("int", "integer", "float", "number")
_NO_TEXT = (*_NUMBERS, "bigint", "bool", "boolean")
_ANY = ast.Name("Any")
# The types of a union that need no BigInt and no Map.
_PLAIN = {"int": (*_NUMBERS, "any", "unknown"), "$dict": ("dict", "mapping", "object", "record", "any", "unknown")}


def as_declared(data: Any, declared: str, *, result: bool = False) -> Any:
    """See `Language.as_declared`; a dict is also a Map if its keys are declared as something other than text."""
    try:
        decode(data)
        return _made(data, _kind(declared))
    except UNREADABLE:
        return data


def _kind(declared: str) -> ast.expr:
    try:
        return read_type(declared[:_LONGEST])
    except UNREADABLE:  # In words.
        part = "bigint" if re.search(r"\bbigints?\b", declared, re.IGNORECASE) else "Any"
        return parsed_expression(f"Map[Any, {part}]" if re.search(r"\bMaps?\b", declared) else part)


def _made(data: Any, kind: ast.expr) -> Any:
    name, parts = named(kind)
    word = name.lower()
    tag, content = tag_of(data)
    if word == "union":
        return _one_of(data, tag, [*_alternatives(parts)])
    if word in WRAPPERS and parts:
        return _made(data, parts[0])
    if isinstance(kind, ast.Subscript) and is_dots(parts[0]):
        return _items(tag, content, [kind.value]) if tag == "list" else data
    if word == "bigint" and tag in ("int", "$int"):
        return {"$bigint": str(content)}
    if tag == "$dict":
        return _entries(data, content, kind)
    if tag in ("list", "$tuple", "$set", "$frozenset"):
        if word == "bigint" or name in _MAPS:  # As words may say it.
            parts = [kind]
        elif isinstance(kind, ast.List):
            parts = kind.elts
        return _items(tag, content, [each for each in parts if not is_dots(each)] or [_ANY])
    return data


def _items(tag: str, content: Any, kinds: Sequence[ast.expr]) -> Any:
    kinds = kinds if len(kinds) == len(content) else [kinds[0]] * len(content)
    items = [_made(item, each) for item, each in zip(content, kinds, strict=True)]
    return items if tag == "list" else {tag: items}


def _entries(data: Any, pairs: Any, kind: ast.expr) -> Any:
    if isinstance(kind, ast.Dict):
        fields = {ast.unparse(key).strip("'"): item for key, item in zip(kind.keys, kind.values, strict=True) if key}
        return {key: _made(item, fields.get(key, _ANY)) for key, item in pairs} if "$dict" not in data else data
    name, parts = named(kind)
    of_key, of_item = parts if len(parts) == 2 else (_ANY, kind if name.lower() == "bigint" else _ANY)
    plain, keys = "$dict" not in data, named(of_key)[0].lower()
    is_map = name in _MAPS or (name in _DICTS and keys in _NO_TEXT)
    found = [
        [_made(_number(key) if plain and is_map and keys in _NO_TEXT else key, of_key), _made(item, of_item)]
        for key, item in pairs
    ]
    return {"$map": found} if is_map else dict(found) if plain else {"$dict": found}


def _number(text: str) -> Any:
    """The number or truth value that a key stands for: in JSON, all keys are text."""
    if text in ("true", "false"):
        return text == "true"
    with contextlib.suppress(ValueError):
        return int(text)
    with contextlib.suppress(ValueError):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def _one_of(data: Any, tag: str, kinds: Sequence[ast.expr]) -> Any:
    plain = any(named(kind)[0].lower() in _PLAIN.get(tag, ()) for kind in kinds)
    return data if plain else next((made for kind in kinds if (made := _made(data, kind)) != data), data)


def _alternatives(kinds: Sequence[ast.expr]) -> Iterator[ast.expr]:
    for kind in kinds:
        name, parts = named(kind)
        yield from _alternatives(parts) if name == "Union" else [kind]
