"""Converts plain JSON in tests to the declared types, for example a list to a set and text to a date.

A value is converted only if it is not of the declared type and there is exactly one possible conversion.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from coderoom.judge import TaggedError, decode, encode
from coderoom.judge.source import UNREADABLE, named, parsed_expression
from coderoom.judge.values import canonical, parts, tag_of

_LONGEST = 500
_LONGEST_KEY = 200
_RESULT = "float_of_result"
_UNCLEAR = "$unclear"  # An internal tag that replaces an ambiguous value.
_ANY = ast.Name("Any")
_WORDS = {"null": "None", "true": "True", "false": "False"}
_RATIO = re.compile(r"[-+]?\d{1,1000}([/.]\d{1,1000})?")
_ENDLESS = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)

# The tags that values of each type may have. A list is converted to the first one.
_ITEMS = {
    "list": ("list",),
    "tuple": ("$tuple", "$namedtuple"),
    "set": ("$set",),
    "frozenset": ("$frozenset",),
    "AbstractSet": ("$set", "$frozenset"),
    "Sequence": ("list", "$tuple", "$namedtuple", "str"),
    "Iterable": ("list", "$tuple", "$namedtuple", "$set", "$frozenset", "$dict", "str"),
}
_DICTS = frozenset(["dict", "Dict", "Mapping", "MutableMapping", "defaultdict", "DefaultDict", "OrderedDict"])
_ALIASES = {
    "List": "list",
    "MutableSequence": "list",
    "Tuple": "tuple",
    "Set": "set",
    "MutableSet": "set",
    "FrozenSet": "frozenset",
    "Collection": "Iterable",
}
_PLAIN = {
    "None": ("None",),
    "bool": ("bool",),
    "int": ("int", "bool"),
    "float": ("float", "int", "bool"),
    _RESULT: ("float", "bool"),
    "complex": ("float", "int", "bool"),
    "str": ("str",),
}

_Made = tuple[Any, bool]
"""Data, and whether it is now of the type as far as known."""


def as_declared(data: Any, declared: str, *, result: bool = False) -> Any:
    """See `Language.as_declared`; data that cannot be converted, or is ambiguous, stays the same."""
    found = _read(data, re.sub(r"\bfloat\b", _RESULT, declared) if result else declared)
    return found[0] if found is not None and not _unclear_in(found[0]) else data


def fits(data: Any, declared: str) -> bool:
    """See `Language.fits`; true if the type is not a valid annotation."""
    found = _read(data, declared)
    return found is None or found[1]


def unclear(data: Any, declared: str) -> str:
    """See `Language.unclear`."""
    found = _read(data, declared)
    texts = _unclear_in(found[0]) if found is not None else []
    if not texts:
        return ""
    text = texts[0]
    letters = base64.b64encode(text.encode("ascii")).decode()
    return (
        f"{text!r} is ambiguous for the type {declared}, plain text or base64: write "
        f'{{"$bytes": "{letters}"}} for the text, {{"$bytes": "{text}"}} for the base64'
    )


def _read(data: Any, declared: str) -> _Made | None:
    """The converted data; `None` if the data or the type is invalid."""
    if len(declared) > _LONGEST:
        return None
    try:
        decode(data)
        made, fits = _made(data, parsed_expression(declared.partition("=")[0].strip()))
        if not _unclear_in(made):
            decode(made)
    except (*UNREADABLE, ArithmeticError, TypeError):
        return None
    return made, fits


def _unclear_in(data: Any) -> list[str]:
    return [each[_UNCLEAR] for each in parts(data) if isinstance(each, dict) and _UNCLEAR in each]


def _made(data: Any, kind: ast.expr) -> _Made:
    name, parts = named(kind)
    if name == "Union":
        return _one_of(data, parts)
    if name == "Annotated" and parts:
        return _made(data, parts[0])
    tag, content = tag_of(data)
    name = _ALIASES.get(name, name)
    if name in _ITEMS:
        return _items(data, tag, content, name, parts)
    if name in _DICTS:
        return _entries(data, content, parts) if tag == "$dict" else (data, False)
    if tag.startswith("$") and tag != "$dict":
        return data, True  # The author used tags, so the type is intended.
    if tag in _PLAIN.get(name, ()):
        return data, True
    types, read = _READERS.get(name, ((), None))
    if read is None or type(data) not in types:
        return data, read is None and name not in _PLAIN
    try:
        return encode(read(data)), True
    except _UnclearError:
        return {_UNCLEAR: data}, True
    except (ValueError, TypeError, ArithmeticError, SyntaxError):
        return data, False


def _one_of(data: Any, kinds: Sequence[ast.expr]) -> _Made:
    found = {canonical(made): made for made, fits in (_made(data, kind) for kind in kinds) if fits}
    if canonical(data) in found:
        return data, True
    return (found.popitem()[1], True) if len(found) == 1 else (data, False)


def _items(data: Any, tag: str, content: Any, name: str, parts: Sequence[ast.expr]) -> _Made:
    fitting = _ITEMS[name]
    if tag not in ("list", "$tuple", "$set", "$frozenset"):
        return data, tag in fitting
    kinds = _kinds(name, parts, len(content))
    if kinds is None:
        return data, False
    made = [_made(item, each) for item, each in zip(content, kinds, strict=True)]
    items, fits = [item for item, _ in made], all(fits for _, fits in made)
    if fitting[0] in ("$set", "$frozenset"):
        items = [*{canonical(item): item for item in items}.values()]  # Without duplicates.
    if tag != "list":
        return {tag: items}, fits and tag in fitting
    return (items if fitting[0] == "list" else {fitting[0]: items}), fits


def _kinds(name: str, parts: Sequence[ast.expr], count: int) -> list[ast.expr] | None:
    """The types of the items; `None` if the type has another number of items."""
    if name != "tuple" or not parts:
        return [parts[0] if parts else _ANY] * count
    if len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is ...:
        return [parts[0]] * count
    if len(parts) == 1 and isinstance(parts[0], ast.Tuple) and not parts[0].elts:
        parts = ()
    return list(parts) if len(parts) == count else None


def _entries(data: Any, pairs: Any, parts: Sequence[ast.expr]) -> _Made:
    of_key, of_item = parts if len(parts) == 2 else (_ANY, _ANY)
    plain = "$dict" not in data
    keys = [_key(key, of_key) if plain else _made(key, of_key) for key, _ in pairs]
    items = [_made(item, of_item) for _, item in pairs]
    fits = all(fits for _, fits in (*keys, *items))
    found = [[key, item] for (key, _), (item, _) in zip(keys, items, strict=True)]
    if plain and all(isinstance(key, str) for key, _ in found):
        return dict(found), fits
    return {"$dict": found}, fits


def _key(text: str, kind: ast.expr) -> _Made:
    """Convert a key: in JSON all keys are strings, even those that represent numbers."""
    made, fits = _made(text, kind)
    if fits or len(text) > _LONGEST_KEY:
        return made, fits
    try:
        made, fits = _made(encode(literal(text)), kind)
    except (*UNREADABLE, TypeError):
        return text, False
    return (made, True) if fits else (text, False)


def literal(text: str) -> Any:
    """The value of a Python literal, which may have JSON's words for its constants."""
    try:
        return ast.literal_eval(parsed_expression(text))
    except (ValueError, SyntaxError):
        text = re.sub(r"\b(null|true|false)\b", lambda found: _WORDS[found[0]], text)
        return ast.literal_eval(parsed_expression(text))


def _float(text: str) -> float:
    if not _ENDLESS.fullmatch(text):
        raise ValueError
    return float(text)


def _float_of_result(data: Any) -> float:
    if isinstance(data, int) and int(float(data)) != data:
        raise ValueError  # It cannot be a float.
    return _float(data) if isinstance(data, str) else float(data)


def _complex(data: Any) -> complex:
    return complex(data) if isinstance(data, str) else complex(decode({"$complex": data}))


def _fraction(data: Any) -> Fraction:
    if isinstance(data, str) and not _RATIO.fullmatch(data):
        raise ValueError  # A large exponent would take too long.
    return Fraction(decode({"$fraction": data}) if isinstance(data, list) else data)


class _UnclearError(ValueError):
    """The text may be plain or base64."""


def _bytes(data: Any) -> bytes:
    if isinstance(data, list):
        return bytes(data)
    if re.match("b['\"]", data):
        return bytes(literal(data))
    with contextlib.suppress(TaggedError):
        if decode({"$bytes": data}):
            raise _UnclearError
    return bytes(data, "ascii")


_READERS: dict[str, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    "float": ((str,), _float),
    _RESULT: ((str, int), _float_of_result),
    "complex": ((str, list), _complex),
    "Decimal": ((str, int, float), lambda data: Decimal(str(data))),
    "Fraction": ((str, int, list), _fraction),
    "date": ((str,), lambda data: decode({"$date": data})),
    "datetime": ((str,), lambda data: decode({"$datetime": data})),
    "time": ((str,), lambda data: decode({"$time": data})),
    "timedelta": ((list,), lambda data: decode({"$timedelta": data})),
    "bytes": ((str, list), _bytes),
    "bytearray": ((str, list), lambda data: bytearray(_bytes(data))),
}
"""For each type, the types of data that it is read from, and what reads them."""
