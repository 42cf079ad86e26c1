"""Encodes and decodes the values of tests, as `coderoom.judge.values` says."""

from __future__ import annotations

import sys
from itertools import islice

from coderoom.sandbox.guest.decoding import TAGS, Decoder, as_text
from coderoom.sandbox.guest.encoding import MOST_BITS, UNKNOWN, ValueEncoder, coarse

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Optional, Tuple

    from coderoom.sandbox.guest.encoding import Path

_MOST_ITEMS = 200_000
_MOST_CHARACTERS = 2_000_000
_WHY = {
    **dict.fromkeys(
        ("function", "builtin_function_or_method", "method", "partial"),
        "functions have no value to compare; return what it computes",
    ),
    **dict.fromkeys(
        ("TextIOWrapper", "BufferedReader", "BufferedWriter", "StringIO", "BytesIO"),
        "it is an open file; return its content",
    ),
    "async_generator": "it can be iterated only once; return a list",
    "coroutine": "it was not awaited",
    "module": "modules have no value to compare",
}

_ITERATED = frozenset(map(id, (range, map, filter, zip, enumerate, reversed, *map(type, (
    {}.keys(), {}.values(), {}.items(), iter([]), iter(()), iter({}), iter(set()), iter(""), iter(range(0)),
    (lambda: (yield))(), reversed([]), iter({}.items()), iter({}.values()),
)))))  # fmt: skip
"""The types that become a list of their items: generators, iterators and views. A metaclass may define equality."""

# A metaclass may say something else.
name_of = type.__dict__["__name__"].__get__
classes_of = type.__dict__["__mro__"].__get__
_names_of = type.__dict__["__dict__"].__get__
_flags_of = type.__dict__["__flags__"].__get__
_MADE_BY_CODE = 1 << 9  # The flag of classes that are not part of the interpreter.
_IMMUTABLE = 1 << 8  # The flag of most classes of the standard library that are written in C.

LIBRARIES = ("collections", "dataclasses", "datetime", "decimal", "enum", "fractions", "itertools", "numpy", "pandas",
              "pathlib", "uuid")  # fmt: skip
_libraries: Dict[str, Any] = {}
_BASES = (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex)
_EQUALITY = frozenset(["__eq__", "__ne__", "__getattribute__"])
_ACCESS = _EQUALITY.union(["__bool__", "__contains__", "__getitem__", "__iter__", "__len__", "__reversed__"])
_WITH_CLASSES = ("collections", "enum", "numpy", "numpy.ma")  # They may change what their own classes do.
_READING = frozenset(["copy", "count", "get", "index", "items", "keys", "values"])
_UNIMPORTANT = frozenset(
    "__%s__" % name
    for name in ("class_getitem", "dir", "doc", "format", "getnewargs", "getstate", "hash", "init", "init_subclass",
                 "new", "reduce", "reduce_ex", "repr", "setattr", "sizeof", "str", "subclasshook")
)  # fmt: skip
"""Methods without effect on what a number or a text is, and what is computed from it."""
_NEVER_SEEN = frozenset(map("__{}__".format, (
    "abstractmethods", "annotate", "annotate_func", "annotations", "annotations_cache", "array_finalize",
    "class_getitem", "dict", "dir", "doc", "firstlineno", "getnewargs", "getstate", "init", "init_subclass",
    "match_args", "module", "new", "orig_bases", "parameters", "qualname", "reduce", "reduce_ex", "sizeof", "slots",
    "static_attributes", "subclasshook", "type_params", "weakref",
)))  # fmt: skip
"""Special names of a class that an expression with its values does not use."""


def keep_libraries(source: str) -> None:
    """Import the libraries whose values have a form, if code names them, before it can replace them."""
    for name in LIBRARIES:
        if name in source:
            try:
                _libraries[name] = __import__(name)
            except Exception:  # Its import fails in the code too.
                pass


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
        if type(other) is not type(self):
            return NotImplemented
        return self._kind_of_record == other._kind_of_record and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self._kind_of_record, tuple(self.__dict__)))

    def __repr__(self) -> str:
        shown = ", ".join("%s=%r" % item for item in self.__dict__.items())
        return "%s(%s)" % (self._kind_of_record, shown)


class Encoder(ValueEncoder):
    """Turns a value into tagged data, also objects, iterators and subclasses of built-in types.

    A value without tagged form becomes `$opaque`, or what `refuse` returns for its type, the reason and the place.
    If the data is `judged` by a property, values of classes with special methods of their own have no tagged form, and
    none whose data has another type or text than the property asks for; see `coderoom.judge.Job`.
    """

    def __init__(self, refuse: Optional[Callable[[str, str, Path], Any]] = None, judged: str = "") -> None:
        super().__init__(_MOST_ITEMS, _MOST_CHARACTERS)
        self._refuse = refuse
        self.judged = judged
        self._pair: Dict[str, Any] = {}  # What the class of a named tuple has.
        self._exact[Record] = lambda value: self._object(value._kind_of_record, value.__dict__)

    def _library(self, name: str) -> Any:
        module = _libraries.get(name) or sys.modules.get(name)
        return module if type(module) is type(sys) and getattr(module, "__spec__", None) is not None else None

    def _has(self, library: str, kind: type) -> bool:
        module = self._library(library)
        return module is not None and any(each is kind for each in vars(module).values())

    def _changes(self, kind: type, base: type, names: FrozenSet[str]) -> bool:
        """Whether a class that code has made defines one of these names itself, and does not have it from `base`."""
        for each in classes_of(kind):
            if each is base:
                return False
            if self._is_own(each) and not names.isdisjoint(_names_of(each)):
                return True
        return False

    def _is_own(self, kind: type) -> bool:
        made = _flags_of(kind) & _MADE_BY_CODE
        return bool(made) and not any(self._has(name, kind) for name in _WITH_CLASSES)

    def _differs(self, kind: type, names: Iterable[str] = ()) -> bool:
        """Whether a property of a judged value would differ from one of plain data.

        It does if classes that code has made define special methods, or one of these names.
        """
        own = [each for each in classes_of(kind) if self.judged and self._is_own(each)]
        if not own:
            return False
        others = [_names_of(each) for each in classes_of(kind) if not self._is_own(each)]
        library = self._library("collections")
        if library is not None and not self._pair:
            pair = library.namedtuple("Pair", "x y")  # Named, so that it is not collected before it has been read.
            self._pair.update(vars(pair))
        for each in own:
            for name, found in _names_of(each).items():
                if name in _NEVER_SEEN or not (name in names or name[:2] == "__" == name[-2:]):
                    continue
                like = self._pair.get(name)
                same = type(found) is type(like) is type(_cut) and found.__code__ is like.__code__
                if not same and not any(other.get(name, others) is found for other in others):
                    return True
        return False

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

    def most_items(self, value: Any) -> Optional[int]:
        """How many items of a generator, iterator or view to list, one more than allowed; `None` for other values."""
        classes = classes_of(type(value))
        iterates = any("__next__" in _names_of(each) for each in classes) and name_of(type(value)) not in _WHY
        is_listed = iterates or any(id(each) in _ITERATED for each in classes)
        return max(self._items, 0) + 1 if is_listed else None

    def _derived(self, value: Any, kind: type) -> Any:
        if "types" in self.judged and self._changes_type(value, kind):
            return self._opaque(value, "the property asks for its type or its text, and sees a copy that is plain data")
        most = self.most_items(value)
        if most is not None:
            return self._list(list(islice(value, most)))
        for find in (self._enum, self._known, self._named, self._based):
            found = find(value, kind)
            if found is not UNKNOWN:
                return found
        return self._of_fields(value, kind)

    def _changes_type(self, value: Any, kind: type) -> bool:
        """Whether the data of a value has another type, or text, than the property asks for."""
        numpy, paths = self._library("numpy"), self._library("pathlib")
        arrays = (numpy.ndarray, numpy.generic) if hasattr(numpy, "ndarray") else ()
        derived = issubclass(kind, _BASES) and not hasattr(kind, "_fields")
        if derived and not issubclass(kind, arrays):
            return "exact" in self.judged
        if issubclass(kind, arrays) or (paths and issubclass(kind, paths.PurePath)):
            return not derived or "exact" in self.judged
        is_deque = name_of(kind) == "deque" and self._has("collections", kind)
        return "result" in self.judged and (is_deque or self.most_items(value) is not None)

    def _based(self, value: Any, kind: type) -> Any:
        """The data of a value of a class that is derived from a built-in one."""
        for base in _BASES:
            if issubclass(kind, base):
                names = _ACCESS.union(_READING.intersection(dir(base)))
                if base in (str, bytes, int, float, complex):
                    names = frozenset(dir(base)) - _UNIMPORTANT
                if self._changes(kind, base, names) or self._differs(kind, dir(base)):
                    return self._opaque(value, "its class changes what operators do; return plain data")
                return self._exact[base](_plain(value, base))
        return self._list(list(value)) if name_of(kind) == "deque" and self._has("collections", kind) else UNKNOWN

    def _enum(self, value: Any, kind: type) -> Any:
        enum = self._library("enum")
        if enum is None or not issubclass(kind, enum.Enum):
            return UNKNOWN
        members = _names_of(kind).get("_member_map_", {})
        if self._changes(kind, enum.Enum, _EQUALITY.union({"name", "value"}.difference(members))):
            return self._opaque(value, "its class changes what is equal; return plain data")
        bases = [base for base in (int, str, float) if issubclass(kind, base)]
        if bases and self._differs(kind):
            return self._opaque(value, "its class has special methods; return plain data")
        name = next((name for name, member in members.items() if member is value), value._name_)
        content = {"type": _cut(name_of(kind)), "name": _cut(str(name)), "mixed": bool(bases)}
        plain = _plain(value, bases[0]) if bases else value._value_  # Comparisons with a mixed one see its base.
        return {"$enum": {**content, "value": self._at("field", "value", plain), **self._truth(kind)}}

    def _known(self, value: Any, kind: type) -> Any:
        numpy = self._library("numpy")
        for base in (numpy.ndarray, numpy.generic) if hasattr(numpy, "ndarray") else ():
            made = issubclass(kind, base) and _flags_of(kind) & _MADE_BY_CODE
            names = frozenset(dir(base)) - _UNIMPORTANT - {"__array_finalize__"}
            if made and (self._changes(kind, base, names) or self._differs(kind)):
                return self._opaque(value, "its class changes what operators do; return plain data")
            if issubclass(kind, base) and value.dtype.kind in "mM" and (value != coarse(value, numpy)).any():
                return self._opaque(value, "it has NaT, or units below microseconds")
        if issubclass(kind, getattr(self._library("numpy.ma"), "MaskedArray", ())) and value.mask.any():
            return self._opaque(value, "some of it is masked")
        return super()._known(value, kind)

    def _named(self, value: Any, kind: type) -> Any:
        names = getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
        if type(names) is not tuple or len(set(names)) != tuple.__len__(value) or self._changes(kind, tuple, _ACCESS):
            return UNKNOWN
        fields = dict(zip(names, tuple.__iter__(value)))  # noqa: B905
        if any(getattr(value, name) is not item for name, item in fields.items()):
            return self._opaque(value, "its class changes what its fields are; return plain data")
        if self._differs(kind, {"_asdict", "_replace", *dir(tuple)}.difference(names)):
            return self._opaque(value, "its class has special methods; return plain data")
        return self._object(name_of(kind), fields, "$namedtuple")

    def _of_fields(self, value: Any, kind: type) -> Any:
        library = self._library("dataclasses")
        names: Any = getattr(kind, "__dataclass_fields__", None)
        is_data = library and type(names) is dict and all(type(each) is library.Field for each in names.values())
        if not is_data and (issubclass(kind, type) or name_of(kind) in _WHY):
            return self._opaque(value, "classes have no value to compare" if issubclass(kind, type) else "")
        fields = self._fields_of(value, kind)
        if fields is None:
            return self._opaque(value)
        if is_data:
            fields = {name: fields[name] for name in names if name in fields}
        elif issubclass(kind, BaseException):
            fields = {"args": value.args, **fields}
        return self._object(name_of(kind), fields, **self._truth(kind))

    def _truth(self, kind: type) -> Dict[str, Any]:
        """For a property, that a value is true, since its class does not say what is."""
        says = any(not {"__bool__", "__len__"}.isdisjoint(_names_of(each)) for each in classes_of(kind))
        return {} if says or not self.judged else {"truth": True}

    def _fields_of(self, value: Any, kind: type) -> Optional[Dict[Any, Any]]:
        """The fields that a value has, whatever its class says; `None` if reading one may give something else."""
        fields: Dict[Any, Any] = {}
        found = False
        for owner in classes_of(kind)[:-1]:
            names = _names_of(owner)
            own = _flags_of(owner) & _MADE_BY_CODE
            if own and "__getattribute__" in names:
                return None
            in_c = not own or _flags_of(owner) & _IMMUTABLE
            if in_c and "__dict__" not in names and not issubclass(owner, BaseException):
                return None  # It has content that is not in fields.
            found = found or "__slots__" in names
            for name, each in names.items():
                if own and type(each) is _SLOT:
                    try:
                        fields[name] = each.__get__(value)
                    except AttributeError:  # It has no value.
                        pass
                elif name == "__dict__":
                    if type(each) is not _GETTER and owner is not _NAMESPACE:
                        return None
                    fields.update(each.__get__(value))
                    found = True
        fields.pop("__pydantic_fields_set__", None)
        fields = {name: each for name, each in fields.items() if name not in _OF_PYDANTIC or each is not None}
        descriptors = [_names_of(type(_names_of(owner).get(name))) for owner in classes_of(kind) for name in fields
                       if type(_names_of(owner).get(name)) is not _SLOT]  # fmt: skip
        return fields if found and not any("__set__" in each for each in descriptors) else None


_SLOT, _GETTER = type(Record.__dict__["_kind_of_record"]), type(Record.__dict__["__dict__"])
_NAMESPACE = type(sys.implementation)  # `types.SimpleNamespace`.
_OF_PYDANTIC = ("__pydantic_extra__", "__pydantic_private__")


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


class _JudgedEnum(Record):
    """A member of an enum that a property sees: its class may give it another text."""

    __slots__ = ("_is_true",)

    def __init__(self, kind: str, fields: Dict[str, Any], is_true: bool = False) -> None:
        super().__init__(kind, fields)
        self._is_true = is_true

    def __bool__(self) -> bool:
        return self._is_true or self._unknown()

    def _unknown(self, *_: Any) -> Any:
        raise TypeError("a property sees only fields and items of a %s, not what its class does" % self._kind_of_record)

    __repr__ = __format__ = __getattr__ = _unknown


class _JudgedRecord(_JudgedEnum):
    """An object that a property sees: it has the fields, and nothing else of what its class does."""

    __slots__ = ()
    __hash__ = _JudgedEnum._unknown

    def __eq__(self, other: object) -> bool:
        return self._unknown() if other is not None else False


class _JudgedItems(_JudgedRecord):
    """An array that a property sees: it has items, and no operators and methods, which are not those of a list."""

    __slots__ = ("_items",)

    def __init__(self, items: List[Any]) -> None:
        super().__init__("ndarray", {})
        self._items = [*map(_judged_items, items)]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        return _judged_items(self._items[index])


def _judged_items(value: Any) -> Any:
    return _JudgedItems(value) if type(value) is list else value


def decode(data: Any, root: str = "value", named: Optional[Callable[[str], Any]] = None, judged: bool = False) -> Any:
    """Convert tagged data to a value.

    Args:
        data: JSON-like data.
        root: The name of the whole value in error messages.
        named: Returns the object that `{"$name": NAME}` stands for; `None`: the tag is unknown.
        judged: Whether a property sees the value.

    Raises:
        TaggedError: The data is not in the tagged form.
    """
    tags = _JUDGED_TAGS if judged else _TAGS
    return Decoder(root, tags if named is None else {**tags, "$name": lambda _, name: named(as_text(name))}).read(data)


def _fields(reader: Decoder, data: Any) -> Tuple[str, Dict[str, Any]]:
    """The class name and the fields of an object, given as a mapping or as ordered pairs."""
    if type(data) is not dict or "type" not in data or "fields" not in data:
        raise ValueError("expected {'type': NAME, 'fields': {...}}")
    fields = data["fields"]
    pairs = list(fields.items()) if type(fields) is dict else fields
    if type(pairs) is not list or any(len(pair) != 2 or type(pair[0]) is not str for pair in pairs):
        raise ValueError("fields must be a mapping of names to values")
    return as_text(data["type"]), {name: reader.at("field", name, item) for name, item in pairs}


def _namedtuple(reader: Decoder, data: Any) -> Any:
    import collections

    name, fields = _fields(reader, data)
    return collections.namedtuple(name, list(fields))(**fields)


def _enum(reader: Decoder, data: Any) -> Any:
    if type(data) is not dict or not {"type", "name", "value"} <= set(data):
        raise ValueError("expected {'type': NAME, 'name': MEMBER, 'value': VALUE}")
    value = reader.at("field", "value", data["value"])
    return value if data.get("mixed") is True else Record(as_text(data["type"]), {"name": data["name"], "value": value})


def _judged_enum(reader: Decoder, data: Any) -> Any:
    found = _enum(reader, data)
    is_true = data.get("truth") is True
    return _JudgedEnum(found._kind_of_record, found.__dict__, is_true) if type(found) is Record else found


def _opaque(reader: Decoder, data: Any) -> Any:
    why = data.get("why") if type(data) is dict else None
    raise ValueError("it cannot be decoded: %s" % why if type(why) is str else "opaque data cannot be decoded")


_TAGS: Dict[str, Callable[[Decoder, Any], Any]] = {
    **TAGS,
    "$int": lambda reader, data: int(as_text(data), 16),
    "$bigint": lambda reader, data: int(as_text(data), 0),
    "$map": TAGS["$dict"],
    "$object": lambda reader, data: Record(*_fields(reader, data)),
    "$namedtuple": _namedtuple,
    "$enum": _enum,
    "$opaque": _opaque,
}
_JUDGED_TAGS = {
    **_TAGS,
    "$object": lambda reader, data: _JudgedRecord(*_fields(reader, data), is_true=data.get("truth") is True),
    "$enum": _judged_enum,
    "$array": lambda reader, data: _judged_items(_TAGS["$array"](reader, data)),
}
