"""Decodes tagged data to values; `coderoom.generation.values` describes the format."""

from __future__ import annotations

import binascii

from .encoding import DEEPEST, Record, place

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Optional

    from .encoding import Path

__all__ = ["TAGS", "TaggedError", "decode"]


class TaggedError(ValueError):
    """Data is not in the tagged form; the message says where and why."""


def decode(data: Any, root: str = "value", named: Optional[Callable[[str], Any]] = None) -> Any:
    """Convert tagged data to a value.

    Args:
        data: JSON-like data.
        root: The name of the whole value in error messages.
        named: Returns the object that `{"$name": NAME}` stands for; `None`: the tag is unknown.

    Raises:
        TaggedError: The data is not in the tagged form.
    """
    return _Reader(root, named).read(data)


class _Reader:
    def __init__(self, root: str, named: Optional[Callable[[str], Any]]) -> None:
        self._root = root
        self.named = named
        self._path: Path = []

    def read(self, data: Any) -> Any:
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
        return TaggedError("%s: %s" % (place(self._root, self._path), why))

    def at(self, kind: str, key: Any, data: Any) -> Any:
        self._path.append((kind, key))
        value = self.read(data)
        self._path.pop()
        return value

    def items(self, data: Any) -> Any:
        if type(data) is not list:
            raise self.wrong("expected a list, not %s" % type(data).__name__)
        return [self.at("index", index, item) for index, item in enumerate(data)]

    def _object(self, data: Dict[str, Any]) -> Any:
        tag = next((key for key in data if type(key) is str and key.startswith("$")), None)
        if tag is None:
            for key in data:
                if type(key) is not str:
                    raise self.wrong("the key %r is not a string; use {'$dict': [[key, value], ...]}" % (key,))
            return {key: self.at("key", key, item) for key, item in data.items()}
        read = TAGS.get(tag) if tag != "$name" or self.named is not None else None
        if read is None or len(data) != 1:
            known = ", ".join(sorted(set(TAGS) - {"$name"}))
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


def _text(data: Any) -> str:
    if type(data) is not str:
        raise ValueError("expected a string, not %s" % type(data).__name__)
    return data


def _ints(data: Any, count: int) -> Any:
    if type(data) is not list or len(data) != count or any(type(item) is not int for item in data):
        raise ValueError("expected a list of %d integers" % count)
    return data


def _bytes(data: Any) -> bytes:
    text = _text(data)
    found = binascii.a2b_base64(text)
    if binascii.b2a_base64(found, newline=False).decode() != text:
        raise ValueError("this is not valid base64")
    return found


def _read_float(reader: _Reader, data: Any) -> float:
    if data not in ("nan", "inf", "-inf"):
        raise ValueError("expected 'nan', 'inf' or '-inf'; write other numbers as plain JSON")
    return float(data)


def _int(reader: _Reader, data: Any) -> int:
    return int(_text(data), 16)


def _pairs(reader: _Reader, data: Any) -> Any:
    if type(data) is not list or any(type(pair) is not list or len(pair) != 2 for pair in data):
        raise ValueError("expected a list of pairs [key, value]")
    found = {}
    for index, (key, item) in enumerate(data):
        name = reader.at("index", index, key)
        if name in found:
            raise ValueError("the key %r occurs twice" % (name,))
        found[name] = reader.at("key", name, item)
    return found


def _set(kind: Any) -> Callable[[_Reader, Any], Any]:
    def read(reader: _Reader, data: Any) -> Any:
        items = reader.items(data)
        found = kind(items)
        if len(found) != len(items):
            raise ValueError("an item occurs twice")
        return found

    return read


def _complex(reader: _Reader, data: Any) -> complex:
    parts = reader.items(data)
    if len(parts) != 2 or any(type(part) not in (int, float) for part in parts):
        raise ValueError("expected two numbers")
    return complex(*parts)


def _moment(name: str) -> Callable[[_Reader, Any], Any]:
    def read(reader: _Reader, data: Any) -> Any:
        import datetime

        return getattr(datetime, name).fromisoformat(_text(data))

    return read


def _timedelta(reader: _Reader, data: Any) -> Any:
    import datetime

    days, seconds, microseconds = _ints(data, 3)
    return datetime.timedelta(days, seconds, microseconds)


def _decimal(reader: _Reader, data: Any) -> Any:
    import decimal

    return decimal.Decimal(_text(data))


def _fraction(reader: _Reader, data: Any) -> Any:
    import fractions

    parts = reader.items(data)
    if len(parts) != 2 or any(type(part) is not int for part in parts):
        raise ValueError("expected a list of 2 integers")
    return fractions.Fraction(*parts)


def _fields(reader: _Reader, data: Any) -> Any:
    """The class name and the fields of an object, given as a mapping or as ordered pairs."""
    if type(data) is not dict or "type" not in data or "fields" not in data:
        raise ValueError("expected {'type': NAME, 'fields': {...}}")
    fields = data["fields"]
    pairs = list(fields.items()) if type(fields) is dict else fields
    if type(pairs) is not list or any(len(pair) != 2 or type(pair[0]) is not str for pair in pairs):
        raise ValueError("fields must be a mapping of names to values")
    return _text(data["type"]), {name: reader.at("field", name, item) for name, item in pairs}


def _record(reader: _Reader, data: Any) -> Record:
    return Record(*_fields(reader, data))


def _namedtuple(reader: _Reader, data: Any) -> Any:
    import collections

    name, fields = _fields(reader, data)
    return collections.namedtuple(name, list(fields))(**fields)


def _enum(reader: _Reader, data: Any) -> Any:
    if type(data) is not dict or not {"type", "name", "value"} <= set(data):
        raise ValueError("expected {'type': NAME, 'name': MEMBER, 'value': VALUE}")
    value = reader.at("field", "value", data["value"])
    return value if data.get("mixed") is True else Record(_text(data["type"]), {"name": data["name"], "value": value})


def _array(reader: _Reader, data: Any) -> Any:
    if type(data) is not dict or "items" not in data:
        raise ValueError("expected {'dtype': ..., 'shape': [...], 'items': [...]}")
    return reader.read(data["items"])


def _opaque(reader: _Reader, data: Any) -> Any:
    raise ValueError("opaque data cannot be decoded")


def _read_name(reader: _Reader, data: Any) -> Any:
    assert reader.named is not None
    return reader.named(_text(data))


TAGS: Dict[str, Callable[[_Reader, Any], Any]] = {
    "$tuple": lambda reader, data: tuple(reader.items(data)),
    "$set": _set(set),
    "$frozenset": _set(frozenset),
    "$dict": _pairs,
    "$bytes": lambda reader, data: _bytes(data),
    "$bytearray": lambda reader, data: bytearray(_bytes(data)),
    "$str": lambda reader, data: _bytes(data).decode("utf-8", "surrogatepass"),
    "$complex": _complex,
    "$float": _read_float,
    "$int": _int,
    "$datetime": _moment("datetime"),
    "$date": _moment("date"),
    "$time": _moment("time"),
    "$timedelta": _timedelta,
    "$decimal": _decimal,
    "$fraction": _fraction,
    "$object": _record,
    "$namedtuple": _namedtuple,
    "$enum": _enum,
    "$array": _array,
    "$opaque": _opaque,
    "$name": _read_name,
}
