"""Test data: JSON, with tags for types that JSON lacks.

Most tags are described in `coderoom.sandbox.guest.encoding`. These are only for tests:

    {"$int": "0x1f"}                      an integer of thousands of digits
    {"$bigint": "5"}, {"$map": [["a", 1]]}                a `BigInt` and a `Map` of JavaScript
    {"$object": {"type": "Point", "fields": {"x": 1}}}    and {"$namedtuple": ...} likewise
    {"$enum": {"type": "Color", "name": "RED", "value": 1}}
    {"$opaque": {"type": "generator", "why": "..."}}      what cannot be compared

Values are compared on the host, outside of the process that ran the code. Both sides are tagged data. The actual value
is untrusted: it never becomes an object here, and it does not decide how it is compared.
"""

from __future__ import annotations

import builtins
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coderoom.judge.guest.values import Encoder, Record, decode
from coderoom.sandbox.guest.decoding import TaggedError
from coderoom.sandbox.guest.encoding import place

__all__ = [
    "Comparison",
    "Record",
    "TaggedError",
    "canonical",
    "compare",
    "decode",
    "encode",
    "error_matches",
    "fields_of",
    "is_sound",
    "parts",
    "show",
    "tag_of",
]

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


_MOST_NODES = 1_000_000
_DEEPEST = 200
_MOST_PAIRED = 60  # The most items of sets that are matched within a tolerance.
_EXACT = 2**53
_REL = 1e-9
_ABS_OF_ZERO = 1e-12

_NUMBERS = ("int", "float", "$float", "$int")
_NAMES = {"$float": "float", "None": "None", "$str": "str", "$int": "int"}


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        equal: Whether both values are equal.
        why: The first difference and its place; empty if they are equal.
    """

    equal: bool
    why: str = ""


def compare(
    expected: Any, actual: Any, *, rel: float | None = None, abs: float | None = None, exact_types: bool = True
) -> Comparison:
    """Compare tagged data.

    An expected integer equals only the same number, an expected float one within a relative tolerance of 1e-9, and 0.0
    one within 1e-12. Tolerances that are given hold instead, also for integers, unless both sides are integers. NaN
    equals NaN. `True` does not equal 1. The order of sets and dicts does not matter. Objects are equal if their class
    names and their fields are equal. Opaque data equals nothing.

    Args:
        expected: The expected value.
        actual: The actual value.
        rel: The relative tolerance; `None`: see above.
        abs: The absolute tolerance; `None`: see above.
        exact_types: Whether an expected list must be a list. Otherwise it also matches a tuple, a named tuple or an
            array with the same items, an expected tuple matches a named tuple, and a set a `frozenset`, since authors
            of JSON can hardly express these types. An expected tuple never matches a list.
    """
    if not (is_sound(expected) and is_sound(actual)):
        return Comparison(False, "result: it is too large, nested too deeply, or not JSON, and cannot be compared")
    why = next(_Differences(rel, abs, exact_types).between(expected, actual), None)
    return Comparison(True) if why is None else Comparison(False, why)


def is_sound(data: Any) -> bool:
    """Whether data is JSON of a size that can be compared."""
    level = [data]
    count = 0
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                if not all(type(key) is str and _is_text(key) for key in item):
                    return False
                below += item.values()
            elif type(item) is list:
                below += item
            elif type(item) is str:
                if not _is_text(item):
                    return False
            elif not (item is None or type(item) in (bool, int) or (type(item) is float and math.isfinite(item))):
                return False
        count += len(below)
        if not below:
            return True
        if count > _MOST_NODES:
            return False
        level = below
    return False


def _is_text(text: str) -> bool:
    """Whether text can be encoded: JSON can contain lone surrogates."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


class _Differences:
    """Yields the differences of two values in order."""

    def __init__(self, rel: float | None, abs: float | None, exact_types: bool) -> None:
        self._rel = rel
        self._abs = abs
        self._exact = exact_types
        self._path: list[tuple[str, Any]] = []

    def between(self, expected: Any, actual: Any) -> Iterator[str]:
        """The differences between two values."""
        tag, wanted = tag_of(expected)
        other, actual_content = tag_of(actual)
        if other == "$opaque":
            yield self._say(f"expected {show(expected)}, got {show(actual)}")
            return
        if tag in _NUMBERS and other in _NUMBERS:
            if not self._close(_number(expected), _number(actual)):
                yield self._differ(expected, actual)
            return
        if other == "$enum" and tag != "$enum" and _get(actual_content, "mixed") is True:
            yield from self.between(expected, _get(actual_content, "value"))
            return
        if tag != other:
            loose = None if self._exact else _as_items(tag, other, actual_content)
            if loose is None:
                yield self._say(self._of_types(expected, actual, tag, other))
                return
            tag, actual_content = ("$set" if tag == "$set" else "list"), loose
        yield from self._alike(tag, wanted, actual_content, expected, actual)

    def _alike(self, tag: str, wanted: Any, actual_content: Any, expected: Any, actual: Any) -> Iterator[str]:
        if tag in ("list", "$tuple", "$set", "$frozenset"):
            if isinstance(wanted, list) and isinstance(actual_content, list):
                find = self._items if tag in ("list", "$tuple") else self._members
                yield from find(wanted, actual_content)
            else:
                yield self._say("it has no items")
        elif tag in ("$dict", "$map"):
            yield from self._entries(wanted, actual_content, "key")
        elif tag in ("$object", "$namedtuple"):
            one, other = (str(_get(side, "type"))[:80] for side in (wanted, actual_content))
            if one == other:
                yield from self._entries(fields_of(wanted), fields_of(actual_content), "field")
            else:
                yield self._say(f"expected the type {one}, got {other}")
        elif tag == "$array":
            yield from self._arrays(wanted, actual_content)
        elif not (self._equal(wanted, actual_content) if tag == "$complex" else _same(expected, actual)):
            yield self._differ(expected, actual)

    def _items(self, wanted: list[Any], actual_content: list[Any]) -> Iterator[str]:
        for index, (one, other) in enumerate(zip(wanted, actual_content, strict=False)):
            yield from self._at("index", index, one, other)
        if len(wanted) != len(actual_content):
            number = min(len(wanted), len(actual_content))
            beyond = wanted[number] if len(wanted) > number else actual_content[number]
            word = "is missing" if len(wanted) > number else "is one too many"
            yield self._say(
                f"expected length {len(wanted)}, got {len(actual_content)}; item {number}, {show(beyond)}, {word}"
            )

    def _members(self, wanted: list[Any], actual_content: list[Any]) -> Iterator[str]:
        missing, extra = self._paired(_without(wanted, actual_content), _without(actual_content, wanted))
        if missing:
            yield self._say(f"the item {show(missing[0])} is missing")
        elif extra:
            yield self._say(f"the item {show(extra[0])} was not expected")

    def _paired(self, missing: list[Any], extra: list[Any]) -> tuple[list[Any], list[Any]]:
        """The items that remain after removing pairs that are equal within the tolerances."""
        if max(len(missing), len(extra)) > _MOST_PAIRED:
            return missing, extra
        left = []
        extra = list(extra)
        for item in missing:
            found = next((index for index, other in enumerate(extra) if self._equal(item, other)), None)
            if found is None:
                left.append(item)
            else:
                del extra[found]
        return left, extra

    def _equal(self, expected: Any, actual: Any) -> bool:
        return next(_Differences(self._rel, self._abs, self._exact).between(expected, actual), None) is None

    def _entries(self, wanted: Any, actual_content: Any, kind: str) -> Iterator[str]:
        ours, theirs = _by_key(wanted), _by_key(actual_content)
        if ours is None or theirs is None:
            yield self._say("its keys are invalid")
            return
        for key, (name, item) in ours.items():
            if key in theirs:
                yield from self._at(kind, name, item, theirs[key][1])
            else:
                yield self._say(f"the {kind} {show(name)} is missing")
        for key, (name, item) in theirs.items():
            if key not in ours:
                yield self._say(f"the {kind} {show(name)} was not expected; its value is {show(item)}")

    def _arrays(self, wanted: Any, actual_content: Any) -> Iterator[str]:
        for name in ("shape", "dtype"):
            one, other = _get(wanted, name), _get(actual_content, name)
            if one is not None and one != other:
                yield self._say(f"expected an array with the {name} {show(one)}, got one with {show(other)}")
                return
        yield from self.between(_get(wanted, "items"), _get(actual_content, "items"))

    def _at(self, kind: str, key: Any, expected: Any, actual: Any) -> Iterator[str]:
        self._path.append((kind, key))
        yield from self.between(expected, actual)
        self._path.pop()  # Not reached if the caller stops at the first difference.

    def _close(self, wanted: Any, actual_content: Any) -> bool:
        whole, given = isinstance(wanted, int), (self._rel, self._abs) != (None, None)
        if whole and (isinstance(actual_content, int) or not given):
            return bool(wanted == actual_content)
        if wanted != wanted or actual_content != actual_content:
            return bool(wanted != wanted and actual_content != actual_content)
        try:
            rel = (0.0 if whole else _REL) if self._rel is None else self._rel
            slack = (_ABS_OF_ZERO if wanted == 0 and not given else 0.0) if self._abs is None else self._abs
            return math.isclose(wanted, actual_content, rel_tol=rel, abs_tol=slack)
        except OverflowError:  # An integer beyond the range of floats.
            return bool(wanted == actual_content)

    def _say(self, what: str) -> str:
        path = [("index", show(key, 60)) if kind == "key" else (kind, key) for kind, key in self._path]
        return f"{place('result', path)}: {what}"

    def _differ(self, expected: Any, actual: Any) -> str:
        one, other = show(expected), show(actual)
        if one == other and one.endswith("..."):
            return self._say(f"got a different value; both begin with {one}")
        return self._say(f"expected {one}, got {other}")

    def _of_types(self, expected: Any, actual: Any, tag: str, other: str) -> str:
        text = f"expected {show(expected)}, got {show(actual)}"
        if {tag, other} <= {"list", "$tuple"} and self._equal(
            *({"$tuple": tag_of(side)[1]} for side in (expected, actual))
        ):
            return f"expected the type {_name(tag)}, got {_name(other)} with equal items: {show(actual)}"
        return f"{text}, of the type {_name(other)} instead of {_name(tag)}"


def _name(tag: str) -> str:
    return _NAMES.get(tag, tag.removeprefix("$"))


def _get(content: Any, name: str) -> Any:
    return content.get(name) if isinstance(content, dict) else None


def _number(data: Any) -> Any:
    try:
        return decode(data) if type(data) is dict else data
    except TaggedError:
        return math.nan


def _same(expected: Any, actual: Any) -> bool:
    """Whether values without parts are equal; the expected one need not be normalized."""
    tag, wanted = tag_of(expected)
    if tag == "$enum":
        content = tag_of(actual)[1]
        return all(
            _get(wanted, name) is not None and _get(wanted, name) == _get(content, name) for name in ("type", "name")
        ) and _get(wanted, "value") == _get(content, "value")
    if not tag.startswith("$"):
        return type(expected) is type(actual) and bool(expected == actual)
    try:
        one, other = decode(expected), decode(actual)
        return bool(one == other or (one != one and other != other))
    except (TaggedError, ArithmeticError):
        return False


def _as_items(tag: str, other: str, actual_content: Any) -> list[Any] | None:
    """The items of an actual value whose type is accepted instead of the expected one; `None` if it is not."""
    if tag == "$set" and other == "$frozenset" and isinstance(actual_content, list):
        return actual_content
    if tag != "list" and not (tag == "$tuple" and other == "$namedtuple"):
        return None
    if other == "$tuple" and isinstance(actual_content, list):
        return actual_content
    if other == "$namedtuple":
        return [item for _, item in fields_of(actual_content)]
    items = _get(actual_content, "items") if other == "$array" else None
    return items if isinstance(items, list) else None


def _key(data: Any) -> str:
    """A text that is equal for keys that Python considers equal."""
    return canonical(_normal(data))


def _normal(data: Any) -> Any:
    if type(data) is float and data.is_integer() and -_EXACT < data < _EXACT:
        return int(data)
    if type(data) is list:
        return [_normal(item) for item in data]
    if type(data) is dict:
        tag, content = tag_of(data)
        if tag in ("$frozenset", "$set") and isinstance(content, list):
            return {"$set": sorted((_normal(item) for item in content), key=canonical)}
        return {key: _normal(item) for key, item in data.items()}
    return data


def _by_key(pairs: Any) -> dict[str, tuple[Any, Any]] | None:
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        return None
    found = {_key(name): (name, item) for name, item in pairs}
    return found if len(found) == len(pairs) else None


def _without(items: list[Any], others: list[Any]) -> list[Any]:
    """The items that are not among others; those that occur more often remain."""
    by_key = {_key(item): item for item in items}
    left = Counter(map(_key, items)) - Counter(map(_key, others))
    return [by_key[key] for key in left.elements()]


def error_matches(expected: str, types: Sequence[str], base: str) -> bool:
    """See `Language.error_matches`.

    Only the built-in base classes of `base` count: a lying process cannot claim several kinds of exceptions.
    """
    own = getattr(builtins, base, None)
    known = own.__mro__ if isinstance(own, type) and issubclass(own, BaseException) else ()
    if isinstance(getattr(builtins, expected, None), type):
        return getattr(builtins, expected) in known  # `IOError` is another name of `OSError`.
    return bool(known) and expected in types
