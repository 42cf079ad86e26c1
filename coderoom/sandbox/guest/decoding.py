"""Decodes tagged data to values; `encoding` describes the format.

The host decodes the values of cells, and the generator's test harness the inputs of tests.
"""

from __future__ import annotations

import binascii
from math import isfinite

from .encoding import DEEPEST, place

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Optional

    from .encoding import Path

_MOST_ALIKE = 1000


class TaggedError(ValueError):
    """Data is not in the tagged form; the message says where and why."""


class Decoder:
    """Converts tagged data, which may be hostile, to a value; `root` is its name in error messages."""

    def __init__(self, root: str = "value", tags: Optional[Dict[str, Callable[[Decoder, Any], Any]]] = None) -> None:
        self._root = root
        self._tags = TAGS if tags is None else tags
        self._path: Path = []
        self._alike = 0

    def read(self, data: Any) -> Any:
        """The value of tagged data; other data is a `TaggedError`."""
        if data is None or type(data) in (bool, int):
            return data
        if type(data) is str:
            return self._text(data)
        if type(data) is float:
            if data - data != 0:
                raise self.wrong("%r is not JSON; write {'$float': '%r'}" % (data, data))
            return data
        if len(self._path) > 2 * DEEPEST:
            raise self.wrong("it is nested too deeply")
        if type(data) is list:
            return self.items(data)
        if type(data) is dict:
            return self._object(data)
        raise self.wrong("%s is not JSON; use encode() for values" % type(data).__name__)

    def _text(self, data: str) -> str:
        if not data.isascii():
            try:
                data.encode()
            except UnicodeEncodeError:
                raise self.wrong("it has lone surrogates; use encode() for such text") from None
        return data

    def wrong(self, why: str) -> TaggedError:
        """The error for data at the current place."""
        return TaggedError("%s: %s" % (place(self._root, self._path), why))

    def at(self, kind: str, key: Any, data: Any) -> Any:
        """The value of a part."""
        self._path.append((kind, key))
        value = self.read(data)
        self._path.pop()
        return value

    def items(self, data: Any) -> Any:
        """The values in a list."""
        if type(data) is not list:
            raise self.wrong("expected a list, not %s" % type(data).__name__)
        kinds = {*map(type, data)}
        if kinds <= {int, bool, float} and (float not in kinds or all(map(isfinite, data))):
            return data[:]  # Many numbers are read fast.
        return [self.at("index", index, item) for index, item in enumerate(data)]

    def _object(self, data: Dict[str, Any]) -> Any:
        tag = next((key for key in data if type(key) is str and key.startswith("$")), None)
        if tag is None:
            for key in data:
                if type(key) is not str:
                    raise self.wrong("the key %r is not a string; use {'$dict': [[key, value], ...]}" % (key,))
            return {key: self.at("key", key, item) for key, item in data.items()}
        read = self._tags.get(tag)
        if read is None or len(data) != 1:
            known = ", ".join(sorted(set(self._tags) - {"$name"}))
            what = "%r is beside other keys" % tag if read is not None else "%r is not a tag" % tag
            raise self.wrong(
                "%s. A tag must be the only key, and one of %s;  "
                "a dict with keys that begin with $ is written as {'$dict': [[key, value], ...]}" % (what, known)
            )
        self._path.append(("key", tag))
        try:
            value = read(self, data[tag])
        except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
            if isinstance(error, TaggedError):
                raise
            raise self.wrong(str(error) or type(error).__name__) from error
        self._path.pop()
        return value

    def check_hashes(self, keys: Any) -> None:
        """Refuse keys of which too many have the same hash: chosen ones would keep a set busy for hours."""
        self._alike += len(keys) - len({*map(hash, keys)})
        if self._alike > _MOST_ALIKE:
            raise ValueError("too many keys have the same hash")


def as_text(data: Any) -> str:
    """Check that the content of a tag is text."""
    if type(data) is not str:
        raise ValueError("expected a string, not %s" % type(data).__name__)
    return data


def _bytes(data: Any) -> bytes:
    text = as_text(data)
    found = binascii.a2b_base64(text)
    if binascii.b2a_base64(found, newline=False).decode() != text:
        raise ValueError("this is not valid base64")
    return found


def _read_float(reader: Decoder, data: Any) -> float:
    if data not in ("nan", "inf", "-inf"):
        raise ValueError("expected 'nan', 'inf' or '-inf'; write other numbers as plain JSON")
    return float(data)


def _pairs(reader: Decoder, data: Any) -> Any:
    if type(data) is not list or any(type(pair) is not list or len(pair) != 2 for pair in data):
        raise ValueError("expected a list of pairs [key, value]")
    names = [reader.at("index", index, key) for index, (key, _) in enumerate(data)]
    reader.check_hashes(names)
    found = {}
    for name, (_, item) in zip(names, data):  # noqa: B905 (Python 3.8)
        if name in found:
            raise ValueError("the key %r occurs twice" % (name,))
        found[name] = reader.at("key", name, item)
    return found


def _set(kind: Any) -> Callable[[Decoder, Any], Any]:
    def read(reader: Decoder, data: Any) -> Any:
        items = reader.items(data)
        reader.check_hashes(items)
        found = kind(items)
        if len(found) != len(items):
            raise ValueError("an item occurs twice")
        return found

    return read


def _complex(reader: Decoder, data: Any) -> complex:
    parts = reader.items(data)
    if len(parts) != 2 or any(type(part) not in (int, float) for part in parts):
        raise ValueError("expected two numbers")
    return complex(*parts)


def _of_text(module: str, name: str, method: str = "") -> Callable[[Decoder, Any], Any]:
    """Read what a class of the standard library, imported only then, or a method of it makes of text."""

    def read(reader: Decoder, data: Any) -> Any:
        kind = getattr(__import__(module), name)
        return (getattr(kind, method) if method else kind)(as_text(data))

    return read


def _of_integers(module: str, name: str, count: int) -> Callable[[Decoder, Any], Any]:
    """The same for a number of integers."""

    def read(reader: Decoder, data: Any) -> Any:
        if type(data) is not list or len(data) != count or any(type(item) is not int for item in data):
            raise ValueError("expected a list of %d integers" % count)
        return getattr(__import__(module), name)(*data)

    return read


def _array(reader: Decoder, data: Any) -> Any:
    if type(data) is not dict or "items" not in data:
        raise ValueError("expected {'dtype': ..., 'shape': [...], 'items': [...]}")
    return reader.read(data["items"])


TAGS: Dict[str, Callable[[Decoder, Any], Any]] = {
    "$tuple": lambda reader, data: tuple(reader.items(data)),
    "$set": _set(set),
    "$frozenset": _set(frozenset),
    "$dict": _pairs,
    "$bytes": lambda reader, data: _bytes(data),
    "$bytearray": lambda reader, data: bytearray(_bytes(data)),
    "$str": lambda reader, data: _bytes(data).decode("utf-8", "surrogatepass"),
    "$complex": _complex,
    "$float": _read_float,
    "$datetime": _of_text("datetime", "datetime", "fromisoformat"),
    "$date": _of_text("datetime", "date", "fromisoformat"),
    "$time": _of_text("datetime", "time", "fromisoformat"),
    "$timedelta": _of_integers("datetime", "timedelta", 3),
    "$decimal": _of_text("decimal", "Decimal"),
    "$fraction": _of_integers("fractions", "Fraction", 2),
    "$uuid": _of_text("uuid", "UUID"),
    "$array": _array,
}
