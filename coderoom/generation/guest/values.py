"""Encodes and decodes the values of tests; `coderoom.generation.values` describes the format."""

from __future__ import annotations

import sys

from coderoom.sandbox.guest.decoding import TAGS, Decoder, as_text
from coderoom.sandbox.guest.encoding import MOST_BITS, UNKNOWN, ValueEncoder

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Optional

    from coderoom.sandbox.guest.encoding import Path

__all__ = ["Encoder", "Record", "decode", "name_of"]

_MOST_ITEMS = 200_000
_MOST_CHARACTERS = 2_000_000
_WHY = {
    "async_generator": "it can be iterated only once; return a list",
    "coroutine": "it was not awaited",
    "function": "functions have no value to compare; return what it computes",
    "builtin_function_or_method": "functions have no value to compare; return what it computes",
    "method": "functions have no value to compare; return what it computes",
    "partial": "functions have no value to compare; return what it computes",
    "module": "modules have no value to compare",
    "TextIOWrapper": "it is an open file; return its content",
    "BufferedReader": "it is an open file; return its content",
    "BufferedWriter": "it is an open file; return its content",
}

_ITERATED = frozenset(map(id, (range, map, filter, zip, enumerate, reversed, *map(type, (
    {}.keys(), {}.values(), {}.items(), iter([]), iter(()), iter({}), iter(set()), iter(""), iter(range(0)),
    (lambda: (yield))(), reversed([]), iter({}.items()), iter({}.values()),
)))))  # fmt: skip
"""The types that become a list of their items: generators, iterators and views. A metaclass may define equality."""

name_of = type.__dict__["__name__"].__get__  # A metaclass may say something else.


class Record:
    """Stands for an object whose class is not available: its fields as attributes.

    Args:
        kind: The name of its class.
        fields: Its fields.
    """

    __slots__ = ("__dict__", "_kind_of_record")

    def __init__(self, kind: str, fields: Dict[str, Any]) -> None:
        self._kind_of_record = kind
        self.__dict__.update(fields)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Record:
            return NotImplemented
        return self._kind_of_record == other._kind_of_record and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self._kind_of_record, tuple(self.__dict__)))

    def __repr__(self) -> str:
        shown = ", ".join("%s=%r" % item for item in self.__dict__.items())
        return "%s(%s)" % (self._kind_of_record, shown)


class Encoder(ValueEncoder):
    """Turns a value into tagged data, also objects, iterators and subclasses of built-in types.

    Args:
        refuse: Called for a value without tagged form, with its type, the reason and the place; its result is put into
            the data. `None`: such a value becomes `$opaque`.
    """

    def __init__(self, refuse: Optional[Callable[[str, str, Path], Any]] = None) -> None:
        super().__init__(_MOST_ITEMS, _MOST_CHARACTERS)
        self._refuse = refuse
        self._exact[Record] = lambda value: self._object(value._kind_of_record, value.__dict__)

    def _opaque(self, value: Any, why: str = "") -> Any:
        kind = type(value).__name__
        why = why or _WHY.get(kind, "it has no tagged form; return plain data")
        if self._refuse is not None:
            return self._refuse(kind, why, self._path)
        return {"$opaque": {"type": _cut(kind), "why": why}}

    def _int(self, value: int) -> Any:
        bits = value.bit_length()
        if bits <= MOST_BITS:
            return value
        too_much = self._take_characters(value, bits // 4)
        return too_much if too_much is not None else {"$int": hex(value)}

    def _object(self, kind: str, fields: Dict[Any, Any], tag: str = "$object", **more: Any) -> Any:
        too_much = self._take_items(fields, len(fields))
        if too_much is not None:
            return too_much
        pairs = [[_cut(str(name)), self._at("field", name, item)] for name, item in fields.items()]
        return {tag: {"type": _cut(kind), "fields": pairs, **more}}

    def listed(self, value: Any) -> Any:
        """The items of a generator, iterator or view; another value unchanged."""
        kind = type(value)
        if id(kind) in _ITERATED or kind is getattr(sys.modules.get("itertools"), name_of(kind), None):
            # An endless one ends here; one item more than allowed is refused.
            return [item for item, _ in zip(value, range(max(self._items, 0) + 1))]  # noqa: B905
        return value

    def _derived(self, value: Any, kind: type) -> Any:
        items = self.listed(value)
        if items is not value:
            return self._list(items)
        for find in (self._enum, self._known, self._named):
            found = find(value, kind)
            if found is not UNKNOWN:
                return found
        for base in (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex):
            if issubclass(kind, base):
                return self._exact[base](_plain(value, base))
        return self._of_fields(value, kind)

    def _enum(self, value: Any, kind: type) -> Any:
        enum = sys.modules.get("enum")
        if enum is None or not issubclass(kind, enum.Enum):
            return UNKNOWN
        bases = [base for base in (int, str, float) if issubclass(kind, base)]
        content = {"type": _cut(kind.__name__), "name": _cut(str(value._name_)), "mixed": bool(bases)}
        plain = _plain(value, bases[0]) if bases else value._value_  # Comparisons with a mixed one see its base.
        return {"$enum": {**content, "value": self._at("field", "value", plain)}}

    def _named(self, value: Any, kind: type) -> Any:
        if issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
            items = tuple.__iter__(value)
            fields: Any = kind._fields  # type: ignore[attr-defined]
            return self._object(kind.__name__, dict(zip(fields, items)), "$namedtuple")  # noqa: B905
        names = getattr(kind, "__dataclass_fields__", None)
        if isinstance(names, dict):
            return self._object(kind.__name__, {name: getattr(value, name) for name in names if hasattr(value, name)})
        return UNKNOWN

    def _of_fields(self, value: Any, kind: type) -> Any:
        if issubclass(kind, type) or kind.__name__ in _WHY:
            return self._opaque(value, "classes have no value to compare" if issubclass(kind, type) else "")
        if issubclass(kind, BaseException):
            return self._object(kind.__name__, {"args": value.args, **value.__dict__})
        fields: Dict[Any, Any] = {}
        slots = False
        for owner in kind.__mro__:
            names = owner.__dict__.get("__slots__", ())
            slots = slots or "__slots__" in owner.__dict__
            for name in (names,) if isinstance(names, str) else names:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    fields[name] = getattr(value, name)
        try:
            fields.update(object.__getattribute__(value, "__dict__"))
        except (AttributeError, TypeError):
            if not slots:
                return self._opaque(value)
        return self._object(kind.__name__, fields)


def _cut(name: str) -> str:
    return name.encode("ascii", "backslashreplace").decode()[:200]


def _plain(value: Any, base: Any) -> Any:
    """The value as one of a built-in class, ignoring methods of its own class."""
    if base is dict:
        return dict(dict.items(value))
    if base in (list, tuple, set, frozenset):
        return list(base.__iter__(value))
    if base is str:
        return str.__str__(value)
    if base in (bytes, bytearray):
        return base(memoryview(value))
    if base is complex:
        return complex(complex.__add__(value, 0))
    return base.__add__(value, 0)


def decode(data: Any, root: str = "value", named: Optional[Callable[[str], Any]] = None) -> Any:
    """Convert tagged data to a value.

    Args:
        data: JSON-like data.
        root: The name of the whole value in error messages.
        named: Returns the object that `{"$name": NAME}` stands for; `None`: the tag is unknown.

    Raises:
        TaggedError: The data is not in the tagged form.
    """
    tags = _TAGS if named is None else {**_TAGS, "$name": lambda _, name: named(as_text(name))}
    return Decoder(root, tags).read(data)


def _int(reader: Decoder, data: Any) -> int:
    return int(as_text(data), 16)


def _fields(reader: Decoder, data: Any) -> Any:
    """The class name and the fields of an object, given as a mapping or as ordered pairs."""
    if type(data) is not dict or "type" not in data or "fields" not in data:
        raise ValueError("expected {'type': NAME, 'fields': {...}}")
    fields = data["fields"]
    pairs = list(fields.items()) if type(fields) is dict else fields
    if type(pairs) is not list or any(len(pair) != 2 or type(pair[0]) is not str for pair in pairs):
        raise ValueError("fields must be a mapping of names to values")
    return as_text(data["type"]), {name: reader.at("field", name, item) for name, item in pairs}


def _record(reader: Decoder, data: Any) -> Record:
    return Record(*_fields(reader, data))


def _namedtuple(reader: Decoder, data: Any) -> Any:
    import collections

    name, fields = _fields(reader, data)
    return collections.namedtuple(name, list(fields))(**fields)


def _enum(reader: Decoder, data: Any) -> Any:
    if type(data) is not dict or not {"type", "name", "value"} <= set(data):
        raise ValueError("expected {'type': NAME, 'name': MEMBER, 'value': VALUE}")
    value = reader.at("field", "value", data["value"])
    return value if data.get("mixed") is True else Record(as_text(data["type"]), {"name": data["name"], "value": value})


def _opaque(reader: Decoder, data: Any) -> Any:
    raise ValueError("opaque data cannot be decoded")


_TAGS: Dict[str, Callable[[Decoder, Any], Any]] = {
    **TAGS,
    "$int": _int,
    "$object": _record,
    "$namedtuple": _namedtuple,
    "$enum": _enum,
    "$opaque": _opaque,
}
