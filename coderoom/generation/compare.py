"""Compares actual with expected values, outside of the process that ran the code.

Both sides are tagged data, and what came was made by code that may lie: nothing of it becomes an object here, and
nothing of it decides how it is compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from coderoom.generation.guest.values import place
from coderoom.generation.values import canonical, fields_of, show, tag_of

__all__ = [
    "Comparison",
    "compare",
    "is_sound",
]

_MOST_NODES = 400_000
_DEEPEST = 200
_MOST_PAIRED = 60  # Items of sets that are equal only within a tolerance.
_EXACT = 2**53

_MOMENTS: dict[str, Any] = {"$datetime": datetime, "$date": date, "$time": time}
_NAMES = {"$float": "float", "None": "None", "$str": "str", "$int": "int"}


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison.

    Attributes:
        equal: Whether both are equal.
        why: The first place where they differ, and how; empty if they are equal.
    """

    equal: bool
    why: str = ""


def compare(
    expected: Any, actual: Any, *, rel: float = 1e-9, abs: float = 1e-12, exact_types: bool = True
) -> Comparison:
    """Compare tagged data.

    Numbers are equal within the tolerances if one of them is a float, and exactly otherwise; NaN equals NaN. `True` is
    not 1. The order of sets and dicts does not count. Objects are equal if their classes have the same name and their
    fields are equal. What cannot be compared equals nothing.

    Args:
        expected: What was expected.
        actual: What came.
        rel: How far floats may be apart, as a part of the larger one.
        abs: How far they may always be apart.
        exact_types: Whether a list that was expected has to be a list. If not, a tuple, a named tuple or an array with
            the same items will do, a named tuple for a tuple, and a `frozenset` for a set: whoever writes JSON can
            hardly say which. A tuple that was expected is never a list.
    """
    if not (is_sound(expected) and is_sound(actual)):
        return Comparison(False, "result: it is too large, nested too deeply, or no JSON, and cannot be compared")
    why = next(_Differences(rel, abs, exact_types).between(expected, actual), None)
    return Comparison(True) if why is None else Comparison(False, why)


def is_sound(data: Any) -> bool:
    """Whether it is JSON of a size that can be looked through."""
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
            elif not _is_leaf(item):
                return False
        count += len(below)
        if not below:
            return True
        if count > _MOST_NODES:
            return False
        level = below
    return False


def _is_leaf(item: Any) -> bool:
    if type(item) is str:
        return _is_text(item)
    return item is None or type(item) in (bool, int) or (type(item) is float and math.isfinite(item))


def _is_text(text: str) -> bool:
    """Whether it can be written: JSON can name halves of characters."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


class _Differences:
    """Finds differences, the first one first."""

    def __init__(self, rel: float, abs: float, exact_types: bool) -> None:
        self._rel = rel
        self._abs = abs
        self._exact = exact_types
        self._path: list[tuple[str, Any]] = []

    def between(self, expected: Any, actual: Any) -> Iterator[str]:
        """Each place where they differ."""
        tag, wanted = tag_of(expected)
        other, came = tag_of(actual)
        if other == "$opaque":
            yield self._say(f"{show(expected)} was expected, {show(actual)} came")
            return
        if _is_number(tag) and _is_number(other):
            if not self._close(_number(tag, wanted), _number(other, came)):
                yield self._differ(expected, actual)
            return
        if other == "$enum" and tag != "$enum" and _get(came, "mixed") is True:
            yield from self.between(expected, _get(came, "value"))
            return
        if tag != other:
            loose = None if self._exact else _as_items(tag, other, came)
            if loose is None:
                yield self._say(self._of_types(expected, actual, tag, other))
                return
            tag, came = ("$set" if tag == "$set" else "list"), loose
        yield from self._alike(tag, wanted, came, expected, actual)

    def _alike(self, tag: str, wanted: Any, came: Any, expected: Any, actual: Any) -> Iterator[str]:
        if tag in ("list", "$tuple"):
            yield from self._items(wanted, came)
        elif tag in ("$set", "$frozenset"):
            yield from self._members(wanted, came)
        elif tag == "$dict":
            yield from self._entries(wanted, came, "key")
        elif tag in ("$object", "$namedtuple"):
            yield from self._objects(wanted, came)
        elif tag == "$array":
            yield from self._arrays(wanted, came)
        elif tag == "$complex" and _is_pair(wanted) and _is_pair(came):
            if not all(
                self._close(_number(*tag_of(a)), _number(*tag_of(b))) for a, b in zip(wanted, came, strict=True)
            ):
                yield self._differ(expected, actual)
        elif not _same(tag, wanted, came):
            yield self._differ(expected, actual)

    def _items(self, wanted: Any, came: Any) -> Iterator[str]:
        if not isinstance(wanted, list) or not isinstance(came, list):
            yield self._say("it has no items")
            return
        for index, (one, other) in enumerate(zip(wanted, came, strict=False)):
            yield from self._at("index", index, one, other)
        if len(wanted) != len(came):
            number = min(len(wanted), len(came))
            beyond = wanted[number] if len(wanted) > number else came[number]
            word = "is missing" if len(wanted) > number else "is too many"
            yield self._say(
                f"{len(wanted)} items were expected, {len(came)} came; item {number}, {show(beyond)}, {word}"
            )

    def _members(self, wanted: Any, came: Any) -> Iterator[str]:
        if not isinstance(wanted, list) or not isinstance(came, list):
            yield self._say("it has no items")
            return
        missing, extra = _unpaired([(_key(item), item) for item in wanted], [(_key(item), item) for item in came])
        missing, extra = self._paired(missing, extra)
        if missing:
            yield self._say(f"{show(missing[0])} was expected to be in it and is not")
        elif extra:
            yield self._say(f"{show(extra[0])} is in it and was not expected")

    def _paired(self, missing: list[Any], extra: list[Any]) -> tuple[list[Any], list[Any]]:
        """What is left when those are taken away that are equal within the tolerances."""
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

    def _entries(self, wanted: Any, came: Any, kind: str) -> Iterator[str]:
        ours, theirs = _by_key(wanted), _by_key(came)
        if ours is None or theirs is None:
            yield self._say("its keys are not sound")
            return
        for key, (name, item) in ours.items():
            if key in theirs:
                yield from self._at(kind, _Key(name) if kind == "key" else name, item, theirs[key][1])
            else:
                yield self._say(f"the {_word(kind)} {show(name)} was expected and is not there")
        for key, (name, item) in theirs.items():
            if key not in ours:
                yield self._say(f"the {_word(kind)} {show(name)} was not expected; its value is {show(item)}")

    def _objects(self, wanted: Any, came: Any) -> Iterator[str]:
        one, other = (str(_get(side, "type"))[:80] for side in (wanted, came))
        if one != other:
            yield self._say(f"a {one} was expected, a {other} came")
            return
        yield from self._entries(fields_of(wanted), fields_of(came), "field")

    def _arrays(self, wanted: Any, came: Any) -> Iterator[str]:
        for name in ("shape", "dtype"):
            one, other = _get(wanted, name), _get(came, name)
            if one is not None and one != other:
                yield self._say(f"an array of the {name} {show(one)} was expected, one of {show(other)} came")
                return
        yield from self.between(_get(wanted, "items"), _get(came, "items"))

    def _at(self, kind: str, key: Any, expected: Any, actual: Any) -> Iterator[str]:
        self._path.append((kind, key))
        yield from self.between(expected, actual)
        self._path.pop()  # Who stops at the first difference asks for no other place.

    def _close(self, wanted: Any, came: Any) -> bool:
        if isinstance(wanted, int) and isinstance(came, int):
            return bool(wanted == came)
        if wanted != wanted or came != came:
            return bool(wanted != wanted and came != came)
        try:
            return math.isclose(wanted, came, rel_tol=self._rel, abs_tol=self._abs)
        except OverflowError:  # An integer that no float is near.
            return bool(wanted == came)

    def _say(self, what: str) -> str:
        return f"{place('result', self._path)}: {what}"

    def _differ(self, expected: Any, actual: Any) -> str:
        one, other = show(expected), show(actual)
        if one == other and one.endswith("..."):
            return self._say(f"another value than the expected one came; both begin with {one}")
        return self._say(f"{one} was expected, {other} came")

    def _of_types(self, expected: Any, actual: Any, tag: str, other: str) -> str:
        text = f"{show(expected)} was expected, {show(actual)} came"
        if {tag, other} <= {"list", "$tuple"} and self._equal(
            *({"$tuple": tag_of(side)[1]} for side in (expected, actual))
        ):
            return f"a {_name(tag)} was expected, a {_name(other)} came; their items are equal: {show(actual)}"
        return f"{text}, which is a {_name(other)} and no {_name(tag)}"


class _Key:
    """A key of a dict, as Python would show it."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def __repr__(self) -> str:
        return show(self._data, 60)


def _word(kind: str) -> str:
    return "key" if kind == "key" else "field"


def _name(tag: str) -> str:
    return _NAMES.get(tag, tag.removeprefix("$"))


def _get(content: Any, name: str) -> Any:
    return content.get(name) if isinstance(content, dict) else None


def _is_number(tag: str) -> bool:
    return tag in ("int", "float", "$float", "$int")


def _number(tag: str, content: Any) -> int | float:
    try:
        if tag == "$float":
            return float(content) if content in ("nan", "inf", "-inf") else math.nan
        return int(content, 16) if tag == "$int" else content
    except (TypeError, ValueError):
        return math.nan


def _is_pair(content: Any) -> bool:
    return isinstance(content, list) and len(content) == 2 and all(_is_number(tag_of(part)[0]) for part in content)


def _same(tag: str, wanted: Any, came: Any) -> bool:
    """Whether what has no parts is equal."""
    try:
        if tag == "$decimal":
            one, other = Decimal(wanted), Decimal(came)
            return bool(one == other) or (one.is_nan() and other.is_nan())
        if tag in _MOMENTS:
            return bool(_MOMENTS[tag].fromisoformat(wanted) == _MOMENTS[tag].fromisoformat(came))
    except (TypeError, ValueError, ArithmeticError):
        return False
    if tag == "$enum":
        return all(
            _get(wanted, name) is not None and _get(wanted, name) == _get(came, name) for name in ("type", "name")
        )
    return type(wanted) is type(came) and bool(wanted == came)


def _as_items(tag: str, other: str, came: Any) -> list[Any] | None:
    """What came as a list, if it is one of the kinds that will do for what was expected."""
    if tag == "$set" and other == "$frozenset" and isinstance(came, list):
        return came
    if tag != "list" and not (tag == "$tuple" and other == "$namedtuple"):
        return None
    if other == "$tuple" and isinstance(came, list):
        return came
    if other == "$namedtuple":
        return [item for _, item in fields_of(came)]
    items = _get(came, "items") if other == "$array" else None
    return items if isinstance(items, list) else None


def _key(data: Any) -> str:
    """A text that is the same for what Python holds for the same key."""
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


def _unpaired(wanted: list[tuple[str, Any]], came: list[tuple[str, Any]]) -> tuple[list[Any], list[Any]]:
    there, here = Counter(key for key, _ in came), Counter(key for key, _ in wanted)
    missing: list[Any] = []
    extra: list[Any] = []
    for rest, pairs, found in ((missing, wanted, there), (extra, came, here)):
        for key, item in pairs:
            if found[key] > 0:
                found[key] -= 1
            else:
                rest.append(item)
    return missing, extra
