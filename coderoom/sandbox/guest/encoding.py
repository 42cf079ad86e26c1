"""Encodes values as tagged data; `coderoom.generation.values` describes the format."""

from __future__ import annotations

import binascii
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Path = List[Tuple[str, Any]]

__all__ = ["DEEPEST", "MOST_CHARACTERS", "MOST_ITEMS", "Encoder", "Record", "name_of", "place"]


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


MOST_ITEMS = 200_000
MOST_CHARACTERS = 2_000_000
DEEPEST = 60

_MOST_BITS = 13_000  # By default, Python parses decimal integers of at most 4,300 digits.
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


def place(root: str, path: Path) -> str:
    """A place in a value, as a Python expression."""
    text = root
    for kind, key in path:
        text += ".%s" % key if kind == "field" else "[%s]" % (repr(key) if kind == "key" else key)
    return text[:300]


class Encoder:
    """Turns a value into tagged data.

    Args:
        refuse: Called for a value without tagged form, with its type, the reason and the place; its result is put into
            the data. `None`: such a value becomes `$opaque`.
        most_items: The most items in total.
        most_characters: The most characters of text in total.
    """

    def __init__(
        self,
        refuse: Optional[Callable[[str, str, Path], Any]] = None,
        most_items: int = MOST_ITEMS,
        most_characters: int = MOST_CHARACTERS,
    ) -> None:
        self._refuse = refuse
        self._items = self._most_items = most_items
        self._characters = self._most_characters = most_characters
        self._path: Path = []
        self._above: List[int] = []
        self._exact: Dict[type, Callable[[Any], Any]] = {
            bool: lambda value: value,
            int: self._int,
            float: _float,
            str: self._str,
            list: self._list,
            dict: self._dict,
            tuple: lambda value: {"$tuple": self._list(value)},
            set: lambda value: {"$set": self._list(value)},
            frozenset: lambda value: {"$frozenset": self._list(value)},
            bytes: lambda value: {"$bytes": self._bytes(value)},
            bytearray: lambda value: {"$bytearray": self._bytes(value)},
            complex: lambda value: {"$complex": [_float(value.real), _float(value.imag)]},
            Record: lambda value: self._object(value._kind_of_record, value.__dict__),
        }

    def encode(self, value: Any) -> Any:
        """The tagged data of a value or of a part of one."""
        if value is None:
            return None
        kind = type(value)
        exact = self._exact.get(kind)
        if exact is not None and kind in (bool, int, float, str):
            return exact(value)
        if id(value) in self._above:
            return self._opaque(value, "it contains itself")
        if len(self._above) >= DEEPEST:
            return self._opaque(value, "it is nested more than %d levels deep" % DEEPEST)
        self._above.append(id(value))
        try:
            return exact(value) if exact is not None else self._derived(value, kind)
        finally:
            self._above.pop()

    def _opaque(self, value: Any, why: str = "") -> Any:
        kind = type(value).__name__
        why = why or _WHY.get(kind, "it has no tagged form; return plain data")
        if self._refuse is not None:
            return self._refuse(kind, why, self._path)
        return {"$opaque": {"type": self._cut(kind), "why": why}}

    def _at(self, kind: str, key: Any, value: Any) -> Any:
        self._path.append((kind, key))
        try:
            return self.encode(value)
        finally:
            self._path.pop()

    def _take_items(self, value: Any, count: int) -> Any:
        self._items -= count
        if self._items < 0:
            return self._opaque(value, "there are more than %d items in total" % self._most_items)
        return None

    def _int(self, value: int) -> Any:
        bits = value.bit_length()
        if bits <= _MOST_BITS:
            return value
        too_much = self._take_characters(value, bits // 4)
        return too_much if too_much is not None else {"$int": hex(value)}

    def _take_characters(self, value: Any, count: int) -> Any:
        self._characters -= count
        if self._characters < 0:
            return self._opaque(value, "there are more than %d characters in total" % self._most_characters)
        return None

    def _str(self, value: str) -> Any:
        too_much = self._take_characters(value, len(value))
        if too_much is not None:
            return too_much
        try:
            value.encode()
        except UnicodeEncodeError:
            return {"$str": self._bytes(value.encode("utf-8", "surrogatepass"))}
        return value

    def _bytes(self, value: Any) -> Any:
        too_much = self._take_characters(value, len(value))
        return too_much if too_much is not None else binascii.b2a_base64(value, newline=False).decode()

    def _list(self, value: Any) -> Any:
        too_much = self._take_items(value, len(value))
        if too_much is not None:
            return too_much
        return [self._at("index", index, item) for index, item in enumerate(value)]

    def _dict(self, value: Dict[Any, Any]) -> Any:
        too_much = self._take_items(value, len(value))
        if too_much is not None:
            return too_much
        pairs = [[self._at("index", "a key", key), self._at("key", key, item)] for key, item in value.items()]
        plain = all(type(key) is str and not key.startswith("$") for key, _ in pairs)
        return dict(pairs) if plain else {"$dict": pairs}

    def _cut(self, name: str) -> str:
        return name.encode("ascii", "backslashreplace").decode()[:200]

    def _object(self, kind: str, fields: Dict[Any, Any], tag: str = "$object", **more: Any) -> Any:
        too_much = self._take_items(fields, len(fields))
        if too_much is not None:
            return too_much
        pairs = [[self._cut(str(name)), self._at("field", name, item)] for name, item in fields.items()]
        return {tag: {"type": self._cut(kind), "fields": pairs, **more}}

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
        for find in (self._enum, self._numpy, self._named, self._of_library):
            found = find(value, kind)
            if found is not None:
                return found
        for base in (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex):
            if issubclass(kind, base):
                return self._exact[base](_plain(value, base))
        return self._of_fields(value, kind)

    def _enum(self, value: Any, kind: type) -> Any:
        enum = sys.modules.get("enum")
        if enum is None or not issubclass(kind, enum.Enum):
            return None
        bases = [base for base in (int, str, float) if issubclass(kind, base)]
        content = {"type": self._cut(kind.__name__), "name": self._cut(str(value._name_)), "mixed": bool(bases)}
        plain = _plain(value, bases[0]) if bases else value._value_  # Comparisons with a mixed one see its base.
        return {"$enum": {**content, "value": self._at("field", "value", plain)}}

    def _numpy(self, value: Any, kind: type) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is None or not hasattr(numpy, "ndarray"):
            return None
        if issubclass(kind, numpy.generic):
            plain = value.item()
            return self._opaque(value) if type(plain) is kind else self.encode(plain)
        if not issubclass(kind, numpy.ndarray):
            return None
        if value.size > self._items:
            return self._opaque(value, "there are more than %d items in total" % self._most_items)
        items = self.encode(value.tolist())
        return {"$array": {"dtype": self._cut(str(value.dtype)), "shape": list(value.shape), "items": items}}

    def _named(self, value: Any, kind: type) -> Any:
        if issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple):
            items = tuple.__iter__(value)
            fields: Any = kind._fields  # type: ignore[attr-defined]
            return self._object(kind.__name__, dict(zip(fields, items)), "$namedtuple")  # noqa: B905
        names = getattr(kind, "__dataclass_fields__", None)
        if isinstance(names, dict):
            return self._object(kind.__name__, {name: getattr(value, name) for name in names if hasattr(value, name)})
        return None

    def _of_library(self, value: Any, kind: type) -> Any:
        module = kind.__module__
        if module == "decimal" and kind.__name__ == "Decimal":
            return {"$decimal": self._str(str(value))}
        if module == "fractions" and kind.__name__ == "Fraction":
            return {"$fraction": [self._int(value.numerator), self._int(value.denominator)]}
        if module == "datetime" and kind.__name__ in ("datetime", "date", "time"):
            return {"$" + kind.__name__: value.isoformat()}
        if module == "datetime" and kind.__name__ == "timedelta":
            return {"$timedelta": [value.days, value.seconds, value.microseconds]}
        if module.split(".")[0] == "pathlib":
            return self._str(str(value))
        return None

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


def _float(value: float) -> Any:
    if value != value:
        return {"$float": "nan"}
    if value in (float("inf"), float("-inf")):
        return {"$float": "inf" if value > 0 else "-inf"}
    return value


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
