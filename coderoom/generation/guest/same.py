"""Helpers for exported pytest files. Each file contains those definitions that it uses.

They compare values with the same rules as `coderoom.generation.compare` compares tagged data.
"""

from __future__ import annotations

import asyncio
import collections
import enum
import functools
import inspect
import math
import sys
from typing import Any


class Record:
    """Stands for an object: the name of its class, and its fields as attributes."""

    def __init__(self, kind: Any, fields: Any) -> None:
        vars(self).update(fields, _kind=kind)

    def _kind_and_parts(self) -> Any:
        fields = dict(vars(self))
        return "object", (fields.pop("_kind"), fields)

    def __eq__(self, other: Any) -> bool:
        return type(other) is Record and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self)))

    def __repr__(self) -> str:
        kind, fields = self._kind_and_parts()[1]
        return f"{kind}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


class Member:
    """Stands for a member of an enum."""

    def __init__(self, kind: Any, name: Any) -> None:
        self.names = kind, name

    def _kind_and_parts(self) -> Any:
        return "enum", self.names

    def __repr__(self) -> str:
        return ".".join(self.names)


class Array:
    """Stands for a NumPy array, as nested lists. A `dtype` or `shape` of `None` matches any."""

    def __init__(self, items: Any, dtype: Any = None, shape: Any = None) -> None:
        self.parts = items, dtype, shape

    def _kind_and_parts(self) -> Any:
        return "array", self.parts

    def __repr__(self) -> str:
        return f"array({self.parts[0]!r})"


def same(result: Any, expected: Any, rel: Any = None, abs: Any = None, exact: bool = False) -> bool:
    """Whether a result equals the expected value.

    An expected integer equals only the same number, and an expected float one within a relative tolerance of 1e-9 (0.0
    one within 1e-12), unless there is a `rel` or an `abs`. NaN equals NaN, and True does not equal 1. Objects are equal
    if their class names and fields are equal. Unless `exact`, a tuple or an array matches a list, a named tuple matches
    a tuple, and a frozenset matches a set.
    """
    again = functools.partial(same, rel=rel, abs=abs, exact=exact)
    kind, parts = kind_and_parts(result)
    wanted, needed = kind_and_parts(expected)
    if kind == "enum" and wanted != "enum" and isinstance(result, (int, float, str)):
        return again(result._value_, expected)  # type: ignore[union-attr]
    if kind != wanted and not exact:
        kind, parts = loosened(kind, parts, wanted)
    if kind != wanted or kind == "nothing":
        return False
    if kind == "number":
        return close(needed, parts, rel, abs)
    if kind == "complex":
        return close(needed.real, parts.real, rel, abs) and close(needed.imag, parts.imag, rel, abs)
    if kind in ("list", "tuple"):
        return len(parts) == len(needed) and all(map(again, parts, needed))
    if kind in ("set", "frozenset"):
        return same_members(parts, needed, again)
    if kind == "dict":
        return same_entries(parts, needed, again)
    if kind in ("object", "named tuple"):
        return bool(parts[0] == needed[0]) and same_entries(parts[1].items(), needed[1].items(), again)
    if kind == "array":
        facts = zip(parts[1:], needed[1:])  # noqa: B905 (not in every Python)
        return all(other in (None, one) for one, other in facts) and again(parts[0], needed[0])
    return bool(parts == needed or (kind == "Decimal" and parts.is_nan() and needed.is_nan()))


def kind_and_parts(value: Any) -> Any:
    """The kind of a value for comparisons, and its parts."""
    kind = type(value)
    numpy = sys.modules.get("numpy")
    if value is None or kind is bool:
        return "constant", value
    if hasattr(kind, "_kind_and_parts"):
        return value._kind_and_parts()
    if isinstance(value, enum.Enum):
        return "enum", (kind.__name__, value._name_)
    if numpy and isinstance(value, numpy.generic):
        plain = value.item()
        return kind_and_parts(plain) if type(plain) is not kind else ("nothing", None)
    if numpy and isinstance(value, numpy.ndarray):
        return "array", (value.tolist(), str(value.dtype), list(value.shape))
    if isinstance(value, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
        return "named tuple", (kind.__name__, dict(zip(kind._fields, tuple.__iter__(value))))  # noqa: B905
    fields = getattr(kind, "__dataclass_fields__", None)
    if isinstance(fields, dict):
        return "object", (kind.__name__, {name: getattr(value, name) for name in fields if hasattr(value, name)})
    if kind.__module__ in ("datetime", "decimal", "fractions"):
        return kind.__name__, value
    for base, name in BASES:
        if isinstance(value, base):
            return name, value if kind is base else without_class(value, base)
    return object_and_fields(value, kind)


def without_class(value: Any, base: Any) -> Any:
    """The value as one of a built-in class, ignoring methods of its own class."""
    if base is dict:
        return dict(dict.items(value))
    if base in (list, tuple, set, frozenset):
        return list(base.__iter__(value))
    if base is str:
        return str.__str__(value)
    return base.__add__(value, 0) if base in (int, float, complex) else base(memoryview(value))


BASES: Any = (
    (dict, "dict"),
    (list, "list"),
    (tuple, "tuple"),
    (set, "set"),
    (frozenset, "frozenset"),
    (str, "text"),
    (bytes, "bytes"),
    (bytearray, "bytearray"),
    (int, "number"),
    (float, "number"),
    (complex, "complex"),
)


def object_and_fields(value: Any, kind: Any) -> Any:
    """The fields of an object. Functions, modules, iterators and similar objects equal nothing."""
    if isinstance(value, type) or kind.__module__.split(".")[0] == "pathlib" or kind.__name__ in WITHOUT_VALUE:
        return "nothing", None
    if isinstance(value, BaseException):
        return "object", (kind.__name__, {"args": value.args, **vars(value)})
    slots = [vars(each)["__slots__"] for each in kind.__mro__ if "__slots__" in vars(each)]
    names = [name for each in slots for name in ((each,) if isinstance(each, str) else each)]
    fields = {name: getattr(value, name) for name in names if name[:2] != "__" and hasattr(value, name)}
    if not hasattr(value, "__dict__") and not slots:
        return "nothing", None
    return "object", (kind.__name__, {**fields, **getattr(value, "__dict__", {})})


WITHOUT_VALUE = str.split(
    "generator async_generator coroutine function builtin_function_or_method method partial module range map "
    "filter zip TextIOWrapper BufferedReader BufferedWriter"
)


def loosened(kind: Any, parts: Any, wanted: Any) -> Any:
    """A value converted to the expected kind, if it is accepted for that."""
    if (kind, wanted) in (("tuple", "list"), ("frozenset", "set")):
        return wanted, parts
    if kind == "named tuple" and wanted in ("list", "tuple"):
        return wanted, list(parts[1].values())
    if kind == "array" and wanted == "list" and isinstance(parts[0], list):
        return wanted, parts[0]
    return kind, parts


def close(one: Any, other: Any, rel: Any, abs: Any) -> bool:
    """Whether a number equals the expected `one`, within the tolerances."""
    whole, given = isinstance(one, int), rel is not None or abs is not None
    if whole and (isinstance(other, int) or not given):
        return bool(one == other)
    if one != one or other != other:
        return bool(one != one and other != other)
    try:
        rel = (0.0 if whole else 1e-9) if rel is None else rel
        abs = (1e-12 if one == 0 and not given else 0.0) if abs is None else abs
        return math.isclose(one, other, rel_tol=rel, abs_tol=abs)
    except OverflowError:
        return bool(one == other)


def same_members(items: Any, needed: Any, same: Any) -> bool:
    """Whether two sets have the same items: first those that are equal, then those that are close."""
    ours, theirs = ({key(item): item for item in each} for each in (items, needed))
    left = [item for name, item in ours.items() if name not in theirs]
    missing = [item for name, item in theirs.items() if name not in ours]
    if len(left) != len(missing) or len(left) > 60:
        return False
    for item in missing:
        found = [index for index, other in enumerate(left) if same(other, item)]
        if not found:
            return False
        del left[found[0]]
    return True


def same_entries(pairs: Any, needed: Any, same: Any) -> bool:
    """Whether two dicts have the same keys and values."""
    if isinstance(pairs, dict):
        pairs, needed = dict.items(pairs), dict.items(needed)
    ours, theirs = ({key(name): item for name, item in each} for each in (pairs, needed))
    return set(ours) == set(theirs) and all(same(ours[name], theirs[name]) for name in theirs)


def key(value: Any) -> Any:
    """A value that is equal only for equal keys of a dict."""
    kind, parts = kind_and_parts(value)
    if kind == "number":
        whole = isinstance(parts, float) and parts.is_integer() and -(2**53) < parts < 2**53
        number = int(parts) if whole else parts
        return kind, type(number).__name__, number if number == number else "nan"
    if kind in ("list", "tuple"):
        return kind, tuple(map(key, parts))
    if kind in ("set", "frozenset"):
        return "set", frozenset(map(key, parts))
    if kind in ("object", "named tuple"):
        return kind, parts[0], frozenset((name, key(item)) for name, item in parts[1].items())
    if kind == "dict":
        return kind, frozenset((key(name), key(item)) for name, item in dict.items(parts))
    return kind, repr(parts)


def as_data(value: Any) -> Any:
    """A value as data: objects become records of their fields, and arrays become lists."""
    kind, parts = kind_and_parts(value)
    if kind == "nothing":
        raise TypeError(f"a {type(value).__name__} cannot be data")
    if kind == "enum":
        mixed = isinstance(value, (int, float, str))
        plain = as_data(value._value_)
        return plain if mixed else Record(parts[0], {"name": parts[1], "value": plain})
    if kind in ("list", "tuple", "set", "frozenset"):
        whole: Any = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind]
        return whole(map(as_data, parts))
    if kind == "dict":
        return {as_data(name): as_data(item) for name, item in dict.items(parts)}
    if kind in ("object", "named tuple"):
        fields = {name: as_data(item) for name, item in parts[1].items()}
        return Record(parts[0], fields) if kind == "object" else collections.namedtuple(parts[0], fields)(**fields)
    return as_data(parts[0]) if kind == "array" else parts


def finished(value: Any) -> Any:
    """The result of a coroutine; any other value is returned unchanged."""
    return asyncio.run(value) if inspect.iscoroutine(value) else value
