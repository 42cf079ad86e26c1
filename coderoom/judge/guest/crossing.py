"""Values on their way between the processes of tests and of code: data as a copy, other objects as stand-ins.

Beside the tags of `encoding` there are these:

    {"$here": [7, CLASS]}        an object that stays with who sends it, by its number
    {"$class": CLASS}            a class that stays there
    {"$there": 7}                an object of who receives it
    {"$given": 0}                the first one of the lists, dicts and sets that came with the request
    {"$shared": 7}               a list, dict or set that both sides have
    {"$standard": "int"}         a class of the standard library, which both have; `$module` for a module
    {"$error": {...}}            an exception
    {"$range": [0, 9, 1]}        {"$slice": [0, null, 2]}         {"$constant": "Ellipsis"}
    {"$path": ["pathlib.PurePosixPath", "a/b"]}                   {"$collection": ["Counter", [["a", 2]]]}
    {"$numpy": ["<i8", [2], BYTES, true]}                         {"$logger": "shop"}
    {"$text": ["ipaddress.IPv4Address", "10.0.0.1"]}              {"$member": ["http.HTTPStatus", 200]}
    {"$pattern": ["a+", 32]}                                      {"$alias": [CLASS, [CLASS]]}
    {"$zone": [{"$timedelta": [0, 3600, 0]}, "CET"]}              {"$typing": ["Dict", [CLASS, CLASS]]}
    {"$typing": ["Dict", null]}  an annotation without brackets
    {"$field": [[7], [], "count", {"$standard": "builtins.int"}, true, ...]}    a field of a dataclass of the tests
    {"$aware": [{"$datetime": "2020-01-01T00:00:00"}, ZONE, 0]}   a time in a zone that is no `timezone`
"""

from __future__ import annotations

import builtins
import collections
import datetime
import enum
import importlib
import re
import sys
import types

from coderoom.sandbox.guest.decoding import TAGS, Decoder, as_text
from coderoom.sandbox.guest.encoding import MOST_BITS, UNKNOWN, ValueEncoder

from .stand_ins import reference

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, List, Mapping

__all__ = [
    "MUTABLE",
    "TAGS_OF_BOTH",
    "TAGS_OF_TESTS",
    "Writer",
    "become",
    "is_standard",
    "make_empty",
    "mutable",
    "parts_of_field",
    "standard_class",
    "standard_name",
]

_MOST_ITEMS = 1_000_000
_MOST_CHARACTERS = 4_000_000
_WITH_POWER = frozenset(
    ["__main__", "antigravity", "bdb", "builtins", "code", "codeop", "ctypes", "doctest", "faulthandler", "gc",
     "idlelib", "importlib", "inspect", "lib2to3", "os", "pdb", "pydoc", "runpy", "signal", "subprocess", "sys", "test",
     "threading", "unittest"]
)  # fmt: skip
"""Modules that are not handed over: they reach into the process, or mean something to those who run tests."""
_LIBRARY = frozenset(
    getattr(sys, "stdlib_module_names", ())
    or ("collections", "datetime", "decimal", "enum", "fractions", "functools", "itertools", "json", "math", "operator",
        "pathlib", "random", "re", "statistics", "string", "typing")
).difference(_WITH_POWER)  # fmt: skip
_BUILT_IN = dict(vars(builtins))
_OF_TEXT = ("ipaddress", "zoneinfo")
_Alias: Any = getattr(types, "GenericAlias", None)
_Union: Any = getattr(types, "UnionType", None)
_KINDS = "biufcUSmM"
"""The kinds of NumPy's data that are handed over."""
_COLLECTIONS = ("OrderedDict", "Counter", "defaultdict", "deque")


def is_standard(name: str) -> bool:
    """Whether a module of the standard library may be handed over by its name."""
    top, *rest = name.split(".")
    return top in _LIBRARY and "__main__" not in rest


def standard_name(kind: Any) -> str:
    """The name of a class of the standard library; empty for others."""
    module, name = str(getattr(kind, "__module__", "")), str(getattr(kind, "__qualname__", ""))
    if not isinstance(kind, type) or "." in name or not (module == "builtins" or is_standard(module)):
        return ""
    names = _BUILT_IN if module == "builtins" else vars(sys.modules.get(module))
    return "%s.%s" % (module, name) if names.get(name) is kind else ""


def standard_class(name: str) -> Any:
    """The class of the standard library that has this name."""
    module, _, name = name.rpartition(".")
    if module == "builtins":
        found = _BUILT_IN.get(name)
    else:
        found = getattr(importlib.import_module(module), name) if is_standard(module) else None
    if not isinstance(found, type):
        raise ValueError("%.100r is no class of the standard library" % name)
    return found


class Writer(ValueEncoder):
    """Encodes values for the other side.

    Args:
        keep: Returns the data of an object that stays here.
        given: The data of what came with the request or what both sides have, by their ids.
    """

    def __init__(self, keep: Callable[[Any, str], Any], given: Mapping[int, Any]) -> None:
        super().__init__(_MOST_ITEMS, _MOST_CHARACTERS)
        self._keep = keep
        self._given = given

    def encode(self, value: Any) -> Any:
        """See `ValueEncoder.encode`."""
        found = self._given.get(id(value))
        return super().encode(value) if found is None else found

    def content(self, value: Any) -> Any:
        """The data of what was given itself."""
        return super().encode(value)

    def _int(self, value: int) -> Any:
        return value if value.bit_length() <= MOST_BITS else {"$int": hex(value)}

    def _opaque(self, value: Any, why: str = "") -> Any:
        return self._keep(value, why if self.is_full else "")

    def _derived(self, value: Any, kind: type) -> Any:
        if reference(value) is not None:
            return self._opaque(value)
        if value is Ellipsis or value is NotImplemented:
            return {"$constant": repr(value)}
        if kind is range:
            return {"$range": [value.start, value.stop, value.step]}
        if kind is slice:
            return {"$slice": [self.encode(each) for each in (value.start, value.stop, value.step)]}
        if isinstance(value, type):
            name = standard_name(value)
            return {"$standard": name} if name else self._opaque(value)
        if isinstance(value, types.ModuleType) and is_standard(str(value.__name__)):
            return {"$module": value.__name__}
        found = self._known(value, kind)
        return found if found is not UNKNOWN else self._opaque(value)

    def _known(self, value: Any, kind: type) -> Any:
        module, name = str(kind.__module__).partition(".")[0], kind.__name__
        if module in _OF_TEXT and standard_name(kind):
            return {"$text": [standard_name(kind), str(value)]}
        if kind is re.Pattern:
            return {"$pattern": [self.encode(value.pattern), value.flags]}
        if isinstance(value, enum.Enum) and standard_name(kind):
            return {"$member": [standard_name(kind), self.encode(value.value)]}
        if kind is datetime.timezone:
            return {"$zone": [self.encode(value.utcoffset(None)), self._str(value.tzname(None))]}
        if kind is _Alias:
            return {"$alias": [self.encode(value.__origin__), self.encode(value.__args__)]}
        if module == "typing" or kind is _Union:
            return self._typed(value)
        if module == "logging" and standard_name(kind) in ("logging.Logger", "logging.RootLogger"):
            return {"$logger": self._str(value.name)}
        if module == "datetime" and type(getattr(value, "tzinfo", None)).__module__ not in ("builtins", "datetime"):
            if kind not in (datetime.datetime, datetime.time):
                return UNKNOWN
            return {"$aware": [self.encode(value.replace(tzinfo=None)), self.encode(value.tzinfo), value.fold]}
        if module == "pathlib":
            return {"$path": [standard_name(kind), str(value)]} if standard_name(kind) else UNKNOWN
        if module == "collections" and name in _COLLECTIONS and standard_name(kind):
            if name == "deque":
                return {"$collection": [name, self._list(list(value)), value.maxlen]}
            more = value.default_factory if name == "defaultdict" else None
            if not (more is None or _has_known_default(value)):
                return UNKNOWN
            return {"$collection": [name, self._list([*map(list, value.items())]), self.encode(more)]}
        numpy = self._library("numpy")
        if module == "numpy" and numpy is not None and (kind is numpy.ndarray or issubclass(kind, numpy.generic)):
            if value.dtype.kind not in _KINDS:
                return UNKNOWN
            content = self._bytes(numpy.ascontiguousarray(value).tobytes())
            return {"$numpy": [value.dtype.str, list(value.shape), content, kind is numpy.ndarray]}
        return super()._known(value, kind)

    def _typed(self, value: Any) -> Any:
        """The data of an annotation that has types in brackets."""
        typing = self._library("typing")
        origin, args = typing.get_origin(value), typing.get_args(value)
        # A generic class of the code.
        if isinstance(origin, type) and not standard_name(origin) and origin is not _Union:
            return {"$alias": [self.encode(origin), self.encode(args)]}
        name, bracket, _ = str(value).partition("[")
        name = name.rpartition(".")[2]
        if not bracket and getattr(typing, name, None) is value:
            return {"$typing": [name, None]}
        name = "Union" if type(value) is _Union or name == "Optional" else name
        if origin is None or not all(map(_is_annotation, args)):
            return UNKNOWN
        return {"$typing": [name, [None if each is type(None) else self.encode(each) for each in args]]}


def _is_annotation(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_annotation, value))
    is_generic = str(type(value).__module__) == "typing" and hasattr(value, "__origin__")
    return value is Ellipsis or is_generic or isinstance(value, (type, str, int, bytes, _Alias or type, _Union or type))


def _collection(reader: Decoder, data: Any) -> Any:
    name, items, more = as_text(data[0]), reader.read(data[1]), reader.read(data[2])
    if name not in _COLLECTIONS:
        raise ValueError("%.100r is no collection" % name)
    if name == "deque":
        return collections.deque(items, more)
    found: Any = getattr(collections, name)(*[more] if name == "defaultdict" else [])
    reader.check_hashes([key for key, _ in items])
    for key, value in items:
        dict.__setitem__(found, key, value) if name != "OrderedDict" else found.__setitem__(key, value)
    return found


def _array(reader: Decoder, data: Any) -> Any:
    numpy = importlib.import_module("numpy")
    kind, shape, content, is_array = data
    found = numpy.frombuffer(TAGS["$bytes"](reader, content), dtype=numpy.dtype(as_text(kind))).reshape(shape).copy()
    return found if is_array else found[()]


def _typed(reader: Decoder, data: Any) -> Any:
    typing = importlib.import_module("typing")
    name = as_text(data[0])
    found = getattr(typing, name) if name in typing.__all__ else None
    if found is None or isinstance(found, types.FunctionType):
        raise ValueError("%.100r is no type of typing" % name)
    if data[1] is None:
        return found
    args = tuple(reader.items(data[1]))
    return found[args[0] if len(args) == 1 else args]


def _path(reader: Decoder, data: Any) -> Any:
    kind = standard_class(as_text(data[0]))
    if not issubclass(kind, importlib.import_module("pathlib").PurePath):
        raise ValueError("this is no path")
    return kind(as_text(data[1]))


def _of_text(reader: Decoder, data: Any) -> Any:
    kind = standard_class(as_text(data[0]))
    if kind.__module__.partition(".")[0] not in _OF_TEXT:
        raise ValueError("%.100r is not made of text" % data[0])
    return kind(as_text(data[1]))


def _member(reader: Decoder, data: Any) -> Any:
    kind = standard_class(as_text(data[0]))
    if not issubclass(kind, enum.Enum):
        raise ValueError("%.100r is no enum" % data[0])
    return kind(reader.read(data[1]))


def _module(reader: Decoder, data: Any) -> Any:
    if not is_standard(as_text(data)):
        raise ValueError("%.100r is no module of the standard library" % data)
    return importlib.import_module(data)


TAGS_OF_BOTH: Dict[str, Callable[[Decoder, Any], Any]] = {
    **TAGS,
    "$int": lambda reader, data: int(as_text(data), 16),
    "$constant": lambda reader, data: {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}[as_text(data)],
    "$range": lambda reader, data: range(*reader.items(data)),
    "$slice": lambda reader, data: slice(*reader.items(data)),
    "$standard": lambda reader, data: standard_class(as_text(data)),
    "$module": _module,
    "$path": _path,
    "$text": _of_text,
    "$pattern": lambda reader, data: re.compile(reader.read(data[0]), data[1] & ~re.DEBUG),
    "$member": _member,
    "$zone": lambda reader, data: datetime.timezone(reader.read(data[0]), as_text(data[1])),
    "$alias": lambda reader, data: _Alias(reader.read(data[0]), reader.read(data[1])),
    "$typing": _typed,
    "$aware": lambda reader, data: reader.read(data[0]).replace(tzinfo=reader.read(data[1]), fold=data[2]),
    "$logger": lambda reader, data: importlib.import_module("logging").getLogger(as_text(data)),
    "$collection": _collection,
    "$numpy": _array,
}


def parts_of_field(field: Any) -> List[Any]:
    """What a field of a dataclass is made of."""
    missing = importlib.import_module("dataclasses").MISSING
    defaults = [[each] for each in (field.default, field.default_factory)]
    return [
        *([] if each[0] is missing else each for each in defaults),
        *(getattr(field, name, False) for name in _OF_FIELDS),
        dict(field.metadata),
        field._field_type.name,
    ]


def _field(reader: Decoder, data: Any) -> Any:
    dataclasses: Any = importlib.import_module("dataclasses")
    default, factory, *values, metadata, kind = reader.items(data)
    given = {"default": default, "default_factory": factory}
    found = dataclasses.field(metadata=metadata, **{name: each[0] for name, each in given.items() if each})
    for name, value in zip(_OF_FIELDS, values):  # noqa: B905 (Python 3.8)
        if hasattr(found, name):
            setattr(found, name, value)
    found._field_type = getattr(dataclasses, kind)
    return found


_OF_FIELDS = ("name", "type", "init", "repr", "hash", "compare", "kw_only")
TAGS_OF_TESTS: Dict[str, Callable[[Decoder, Any], Any]] = {**TAGS_OF_BOTH, "$field": _field}
"""The tags of what comes from the tests."""
MUTABLE = (list, dict, set, bytearray, *(getattr(collections, name) for name in _COLLECTIONS))


def _has_known_default(value: Any) -> bool:
    return value.default_factory is None or bool(standard_name(value.default_factory))


def mutable(values: List[Any]) -> List[Any]:
    """The lists, dicts, sets and other containers among values and in them, each once."""
    found: Dict[int, Any] = {}
    left = list(values)
    while left:
        each = left.pop()
        kind = type(each)
        if kind is collections.defaultdict and not _has_known_default(each):
            continue
        if kind in MUTABLE or _is_array(each):
            if id(each) in found:
                continue
            found[id(each)] = each
        if kind in (list, tuple) or kind is collections.deque:
            left += each
        elif kind in MUTABLE and issubclass(kind, dict):
            left += each.values()
    return [*found.values()]


def _is_array(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and value.dtype.kind in _KINDS


def become(old: Any, new: Any) -> None:
    """Change a container in place to what it has become on the other side."""
    if type(old) is not type(new):
        raise ValueError("what was changed in place has become something else")
    if _is_array(old):
        if old.shape != new.shape or old.dtype != new.dtype:
            raise ValueError("an array has become another one")
        if old.tobytes() != new.tobytes():
            old[...] = new
        return
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif isinstance(old, dict):
        dict.clear(old)
        for key, value in new.items():
            dict.__setitem__(old, key, value) if "OrderedDict" not in str(type(old)) else old.__setitem__(key, value)
    else:
        old.clear()
        old.extend(new) if hasattr(old, "extend") else old.update(new)


def make_empty(content: Any) -> Any:
    """An empty container of the kind that this data is the content of."""
    tag = next(iter(content), "") if type(content) is dict else ""
    if type(content) is list:
        return []
    if tag == "$set":
        return set()
    if tag == "$bytearray":
        return bytearray()
    if tag == "$numpy":
        return _array(Decoder("value", TAGS_OF_BOTH), content[tag])
    if tag == "$collection":
        name, _, more = content[tag]
        return _collection(Decoder("value", TAGS_OF_BOTH), [name, [], more])
    return {}
