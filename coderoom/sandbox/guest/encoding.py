"""Encodes values as tagged data: JSON, with tags for types that JSON lacks.

The interpreter encodes the value of a cell, and the generator's test harness what functions return. `decoding` is the
way back. Nothing is pickled, since the host does not trust what crosses the wall.

`None`, booleans, integers, finite floats, strings, lists, and dicts whose keys are strings that do not start with `$`
are written as plain JSON. Everything else is an object with one key, the tag:

    {"$tuple": [1, 2]}                    {"$set": [1, 2]}              {"$frozenset": [1, 2]}
    {"$dict": [[1, "one"], ["$x", 2]]}    a dict with other keys, or with keys that start with $
    {"$bytes": "aGk="}                    {"$bytearray": "aGk="}        base64
    {"$float": "nan"}                     "nan", "inf" or "-inf"
    {"$complex": [1.0, -2.0]}             {"$uuid": "12345678-1234-5678-1234-567812345678"}
    {"$decimal": "1.10"}                  {"$fraction": [1, 3]}
    {"$datetime": "2024-02-29T12:30:00"}  {"$date": "2024-02-29"}       {"$time": "12:30:00"}
    {"$timedelta": [1, 30, 0]}            days, seconds, microseconds
    {"$str": "7aCA"}                      text with lone surrogates, as base64 of its bytes
    {"$array": {"dtype": "int64", "shape": [2], "items": [1, 2]}}

A dict with keys that start with `$` is always written as `$dict`, so no dict is mistaken for a tag.
"""

from __future__ import annotations

import binascii
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, List, Tuple

    Path = List[Tuple[str, Any]]

DEEPEST = 60
UNKNOWN = object()
"""Stands for the data of a value whose type has none."""

MOST_BITS = 14_000  # By default, Python parses decimal integers of at most 4,300 digits.
_FINE_UNITS = ("ns", "ps", "fs", "as")  # Python's dates have microseconds.


_STANDARD = ("datetime", "decimal", "fractions", "uuid", "pathlib")


def place(root: str, path: Path) -> str:
    """A place in a value, as a Python expression."""
    text = root
    for kind, key in path:
        text += ".%s" % key if kind == "field" else "[%s]" % (repr(key) if kind == "key" else key)
    return text[:300]


class ValueEncoder:
    """Turns values of built-in types, of the standard library, NumPy and pandas into tagged data.

    Libraries are looked up in `sys.modules`, since an import would take long.
    """

    def __init__(self, most_items: int, most_characters: int) -> None:
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
        }

    @property
    def is_full(self) -> bool:
        """Whether there were more items or characters than allowed."""
        return self._items < 0 or self._characters < 0

    def encode(self, value: Any) -> Any:
        """The tagged data of a value or of a part of one. Methods of the value may raise anything."""
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

    def _opaque(self, value: Any, why: str = "it has no tagged form") -> Any:
        """Called for a value without data; what it returns becomes the data."""
        raise ValueError(why)

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

    def _int(self, value: int) -> Any:
        return value if value.bit_length() <= MOST_BITS else self._opaque(value, "it has too many digits")

    def _derived(self, value: Any, kind: type) -> Any:
        """The data of a value of a class that is not built in."""
        for find in (self._known, self._pandas):
            found = find(value, kind)
            if found is not UNKNOWN:
                return found
        return self._opaque(value)

    def _library(self, name: str) -> Any:
        """A module that is imported already; `None` if it is not."""
        return sys.modules.get(name)

    def _known(self, value: Any, kind: type) -> Any:
        numpy = self._library("numpy")
        if numpy is not None and hasattr(numpy, "ndarray"):
            if issubclass(kind, numpy.generic):
                return self._scalar(value, kind, numpy)
            if issubclass(kind, numpy.ndarray):
                return self._array(value, kind, numpy)
        module, name = str(kind.__module__).split(".")[0], kind.__name__
        known = getattr(self._library(module), "__dict__", {})
        if module in _STANDARD and not any(each is kind for each in known.values()):
            return UNKNOWN  # A class that takes the name of another one.
        if module == "datetime" and name in ("datetime", "date", "time"):
            return {"$" + name: value.isoformat()}
        if module == "datetime" and name == "timedelta":
            return {"$timedelta": [value.days, value.seconds, value.microseconds]}
        if module == "decimal" and name == "Decimal":
            return {"$decimal": self._str(str(value))}
        if module == "fractions" and name == "Fraction":
            return {"$fraction": [self._int(value.numerator), self._int(value.denominator)]}
        if module == "uuid" and name == "UUID":
            return {"$uuid": str(value)}
        if module == "pathlib":
            return self._str(str(value))
        return UNKNOWN

    def _scalar(self, value: Any, kind: type, numpy: Any) -> Any:
        is_time = issubclass(kind, (numpy.datetime64, numpy.timedelta64))
        plain = (coarse(value, numpy) if is_time else value).item()
        # Long doubles stay what they are, and the number of a duration does not include its unit.
        return self._opaque(value) if type(plain) is kind or (is_time and type(plain) is int) else self.encode(plain)

    def _array(self, value: Any, kind: type, numpy: Any) -> Any:
        if value.size > self._items:
            return self._take_items(value, value.size)
        code = value.dtype.kind
        if code in "mM":
            value = coarse(value, numpy)
            if int in {*map(type, value.ravel().tolist())}:  # As of single ones.
                return self._opaque(value)
        items = value.tolist()
        if kind is numpy.ndarray and (code in "bui" or (value.dtype.char in "efd" and numpy.isfinite(value).all())):
            self._items -= value.size  # All of its items are plain numbers.
        else:
            items = self.encode(items)
        dtype = str(value.dtype).encode("ascii", "backslashreplace").decode()[:200]
        return {"$array": {"dtype": dtype, "shape": list(value.shape), "items": items}}

    def _pandas(self, value: Any, kind: type) -> Any:
        pandas = self._library("pandas")
        if pandas is None or not hasattr(pandas, "DataFrame"):
            return UNKNOWN
        if value is pandas.NaT or value is pandas.NA:
            return None
        if issubclass(kind, pandas.Timestamp):
            return self.encode(value.to_pydatetime(warn=False))
        if issubclass(kind, pandas.Timedelta):
            return self.encode(value.to_pytimedelta())
        if not issubclass(kind, (pandas.DataFrame, pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)):
            return UNKNOWN
        if value.size > self._items:
            return self._take_items(value, value.size)
        if issubclass(kind, pandas.DataFrame):
            return self._frame(value, pandas)
        items = value.tolist()
        return self.encode(_labelled(value.index.tolist(), items) if issubclass(kind, pandas.Series) else items)

    def _frame(self, value: Any, pandas: Any) -> Any:
        """The rows of a table as dicts; an index other than the default one gives the first columns."""
        if value.index.name is not None or not value.index.equals(pandas.RangeIndex(len(value))):
            value = value.reset_index()
        names = value.columns.tolist()
        columns = [value.iloc[:, number].tolist() for number in range(len(names))]
        return self.encode([_labelled(names, row) for row in zip(*columns)])  # noqa: B905 (Python 3.8)


def _labelled(labels: Any, items: Any) -> Any:
    found = dict(zip(labels, items))  # noqa: B905
    if len(found) != len(labels):
        raise ValueError("a label occurs twice")
    return found


def coarse(value: Any, numpy: Any) -> Any:
    """A NumPy date or duration, or an array of them, in units that Python has."""
    unit = numpy.datetime_data(value.dtype)[0]
    return value.astype(value.dtype.kind + "8[us]") if unit in _FINE_UNITS else value


def _float(value: float) -> Any:
    if value != value:
        return {"$float": "nan"}
    if value in (float("inf"), float("-inf")):
        return {"$float": "inf" if value > 0 else "-inf"}
    return value
