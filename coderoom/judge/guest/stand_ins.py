"""Stand-ins for objects of another process: what is done with one is a request to the process that has the object.

`peers` makes them. The class of a stand-in is a mirror of the class of its object: it has the same name, the same
special methods, and mirrors of the same base classes. Mirrors of exceptions are real exceptions, which can be caught.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import json
import random
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Dict, List, Optional, Tuple

__all__ = [
    "CannotSeparate",
    "CodeEnded",
    "ErrorType",
    "MirrorType",
    "Mirrored",
    "StandIn",
    "StandInModule",
    "StandInObject",
    "StandInText",
    "answer_of",
    "ask_for_hints",
    "ask_libraries",
    "ask_of",
    "check_lists",
    "data_of",
    "encode_stand_ins",
    "ends_test",
    "may_decide",
    "own_of",
    "reference",
    "refusal",
    "set_up",
    "special",
    "unless_of_all",
]

_JUDGES = frozenset(
    ["allclose", "almost_equal", "almost_equals", "compare", "compare_to", "difference", "endswith", "equals",
     "intersection", "is_close", "is_equal", "is_equal_to", "isclose", "isdisjoint", "issubset", "issuperset",
     "removeprefix", "removesuffix", "replace", "same_as", "startswith", "symmetric_difference", "union"]
)  # fmt: skip
"""Methods whose result says whether what the tests expect is true."""
_JUDGES_OF_DATA = frozenset(["count", "find", "index", "rfind", "rindex"])
"""The same, of classes that are derived from built-in ones."""
_ARRAYS = ("__array__", "__array_interface__", "__array_struct__")
"""What says that an object is an array. One without items is near to any number."""


class CannotSeparate(BaseException):
    """What tests and code do with each other cannot be done in two processes."""


class CodeEnded(BaseException):
    """The process of the code has ended in the middle of a request."""


def ends_test(kind: Any) -> bool:
    """Whether an exception of the tests is their verdict, which is not the code's to see or to swallow."""
    return issubclass(kind, (AssertionError, CannotSeparate, CodeEnded)) or any(
        each.__module__.partition(".")[0] in ("_pytest", "unittest") for each in kind.__mro__
    )


def reference(value: Any) -> Optional[Tuple[Any, int]]:
    """For a stand-in or a mirror: the peer that made it, and the number of the object it stands for; else `None`."""
    if isinstance(value, Mirrored):
        return type.__getattribute__(value, "_cr_peer"), type.__getattribute__(value, "_cr_class")
    if issubclass(type(value), StandIn):
        return type(value)._cr_peer, object.__getattribute__(value, "_cr_number")
    if type(value) is StandInModule:
        return _own(value)["_cr_peer"], _own(value)["_cr_number"]
    if isinstance(type(value), ErrorType):
        number = value.__dict__.get("_cr_number")
        return None if number is None else (type(value)._cr_peer, number)
    return value.__dict__.get("_cr_of") if isinstance(value, BaseException) else None


def ask_of(
    value: Any, do: str, name: str = "", args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
) -> Any:
    """Make a request about the object of a stand-in; see `Peer.ask`."""
    peer: Any = (reference(value) or (None,))[0]
    return peer.ask(do, value, name, args, kwargs or {})


def special(value: Any, name: str, *args: Any) -> Any:
    """Call a special method of the object of a stand-in."""
    return ask_of(value, "special", name, args)


class StandIn:
    """Stands for an object. Names begin with `_cr_`, since all others are those of the object."""

    __slots__ = ()
    _cr_peer: Any = None
    _cr_names: Any = types.MappingProxyType({})
    _cr_is_named = False
    _cr_is_data = False
    _cr_decides = False
    _cr_checks = False
    _cr_is_built_in = False

    def __getattr__(self, name: str) -> Any:
        if name == "__globals__" and not self._cr_peer.is_trusted:
            raise AttributeError(name)  # It would be a copy of all that the module has.
        if name in _ARRAYS and name not in self._cr_names:
            raise AttributeError(name)
        if name == "__dict__" and self._cr_peer.is_trusted:
            return _Attributes(self, ask_of(self, "get", name))
        if self._cr_peer.is_trusted and _is_private(name) and name in (own := own_of(self)):
            return own[name]
        if name in ("all", "any") and _is_answer(self):
            raise refusal(self, "a comparison")
        judges = name in _JUDGES or name in _ARRAYS or (self._cr_is_data and name in _JUDGES_OF_DATA)
        if judges and not self._cr_peer.is_trusted:
            if (data := data_of(self, name)) is not None:
                return getattr(data[0], name)
            may_decide(self, name)
        return ask_of(self, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._cr_peer.is_trusted and _is_private(name):
            own = own_of(self)
            if name in own or not hasattr(self, name):  # If the tests have it, they refuse.
                own[name] = value
                return
        ask_of(self, "set", name, (value,))

    def __delattr__(self, name: str) -> None:
        if not (_is_private(name) and self._cr_peer.is_trusted and own_of(self).pop(name, self) is not self):
            ask_of(self, "delete", name)

    def __dir__(self) -> List[str]:
        return list(ask_of(self, "names"))

    def __repr__(self) -> str:
        return str(ask_of(self, "text", "repr"))

    def __str__(self) -> str:
        return str(ask_of(self, "text", "str"))

    def __format__(self, spec: str) -> str:
        return str(ask_of(self, "text", "format", (spec,)))

    def __bool__(self) -> bool:
        if _is_answer(self):
            raise refusal(self, "a comparison")
        return bool(ask_of(self, "text", "bool"))

    def __hash__(self) -> int:
        return int(ask_of(self, "text", "hash"))

    def __copy__(self) -> Any:
        return ask_of(self, "copy", "copy")

    def __deepcopy__(self, memo: Any) -> Any:
        return ask_of(self, "copy", "deepcopy")

    def __reduce_ex__(self, protocol: Any) -> Any:
        _unpickles.append(self._cr_peer)
        return _unpickled, (ask_of(self, "pickle", args=(int(protocol),)),)

    def __eq__(self, other: object) -> Any:
        return _equals(self, other)

    def __ne__(self, other: object) -> Any:
        found = _equals(self, other)
        if isinstance(found, StandIn) and self._cr_names.get("__ne__"):
            return answer_of(self, "__ne__", other)
        return found if found is NotImplemented else not found


_SLOTS = ("__weakref__", "_cr_is_answer", "_cr_listed", "_cr_number", "_cr_own")


class StandInObject(StandIn):
    """Stands for an object that is no text."""

    __slots__ = _SLOTS


class StandInText(StandIn, str):
    """Stands for a text of a class of its own: a copy of the text, so that functions in C can use it."""

    __slots__ = _SLOTS


def _is_private(name: str) -> bool:
    return name[:1] == "_" and name[:2] != "__"


def own_of(value: Any) -> Dict[str, Any]:
    """The attributes of an object of the tests that only the code sees, which has set them."""
    try:
        found: Dict[str, Any] = object.__getattribute__(value, "_cr_own")
    except AttributeError:
        found = {}
        object.__setattr__(value, "_cr_own", found)
    return found


class _Attributes(dict):  # type: ignore[type-arg]
    """The attributes of an object of the tests. Those that the code adds are the object's, unless they are private."""

    def __init__(self, owner: Any, found: Dict[str, Any]) -> None:
        super().__init__({**own_of(owner), **found})
        self._owner = owner

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if name.startswith("_"):
            own_of(self._owner)[name] = value
        else:
            setattr(self._owner, name, value)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        if own_of(self._owner).pop(name, self) is self:
            delattr(self._owner, name)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, value: Any = None) -> Any:
        if name not in self:
            self[name] = value
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        if name not in self:
            return super().pop(name, *default)
        found = self[name]
        del self[name]
        return found


def encode_stand_ins() -> None:
    """Let `json` encode objects of classes that are derived from `dict`, `list`, `tuple` or `str`."""
    encoder: Any = json.JSONEncoder
    make = encoder.__init__

    def use(self: Any) -> None:
        default = self.default

        def encode(value: Any) -> Any:
            data = ask_of(value, "data") if isinstance(value, StandIn) and value._cr_is_data else None
            return data[0] if data else default(value)

        self.default = encode

    def make_and_use(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        use(self)

    encoder.__init__ = make_and_use
    use(vars(json)["_default_encoder"])


_LIBRARY = {
    "dataclasses": ("asdict", "astuple", "fields", "is_dataclass", "replace"),
    "importlib": ("reload",),
    "typing": ("get_type_hints",),
}
"""Functions about objects that the code calls itself for objects of its own."""


def ask_libraries() -> None:
    """Let functions of the standard library take objects of the code."""
    for module, names in _LIBRARY.items():
        for name in names:
            _ask_library(vars(importlib.import_module(module)), module, name)


def _ask_library(space: Dict[str, Any], module: str, name: str) -> None:
    own = space[name]

    @functools.wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = reference(args[0]) if args else None
        return own(*args, **kwargs) if found is None else found[0].ask("library", None, module, (name, *args), kwargs)

    space[name] = call


def ask_for_hints() -> None:
    """Let `typing.get_type_hints`, in the process of the code, take classes of the tests, which know their names."""
    typing: Any = importlib.import_module("typing")
    own = typing.get_type_hints

    @functools.wraps(own)
    def get_type_hints(obj: Any, globalns: Any = None, localns: Any = None, include_extras: bool = False) -> Any:
        if reference(obj) is None or globalns or localns:
            return own(obj, globalns, localns, include_extras)
        return ask_of(obj, "hints", "include_extras" if include_extras else "")

    typing.get_type_hints = get_type_hints


_unpickles: List[Any] = []


def _unpickled(data: bytes) -> Any:
    return _unpickles[0].ask("unpickle", None, "", (data,))


def _equals(one: Any, other: Any) -> Any:
    if one is other and not one._cr_names.get("__eq__"):
        return True
    if (one._cr_is_data or not isinstance(other, StandIn)) and (data := data_of(one, "__eq__")) is not None:
        return data[0] == other
    if not one._cr_names.get("__eq__") or (one._cr_is_built_in and not isinstance(other, StandIn)):
        return NotImplemented
    if one._cr_peer.is_trusted:
        return special(one, "__eq__", other)
    may_decide(one, "__eq__")
    if not isinstance(other, StandIn):
        return answer_of(one, "__eq__", other)
    return unless_of_all(one, "__eq__", other)


def answer_of(value: Any, name: str, other: Any) -> Any:
    """What an object says of data: that they are unequal, or an object, such as a query, that is not true or false."""
    said = special(value, name, other)
    if isinstance(said, StandIn) and not _is_answer(value):
        object.__setattr__(said, "_cr_is_answer", True)
    elif said is not NotImplemented and (said or name != "__eq__"):
        raise refusal(value, name)
    return said


def _is_answer(value: Any) -> bool:
    try:
        return bool(object.__getattribute__(value, "_cr_is_answer"))
    except AttributeError:
        return False


def unless_of_all(value: Any, name: str, other: Any) -> Any:
    """What an object says of another one, unless it says the same of what it cannot know.

    It is asked about values like the other one one by one: together, they would show which one they are like. Without
    them, all is one request: see `answers_of`.
    """
    foreign, similar = type("Value", (), {})(), _decoys(other)
    questions = [other, foreign, *similar]
    random.shuffle(questions)
    found, said_of_similar, of_similar = None, 0, None
    if not similar:
        place = next(number for number, each in enumerate(questions) if each is other)
        asked = place, name == "__eq__", name == "__eq__" and _is_doubted(value), *questions
        found, said, says_of_unlike, of_similar = ask_of(value, "answers", name, asked)
        said_of_similar = any(said) or bool(says_of_unlike)
    for each in questions if similar else ():
        try:
            answer = special(value, name, each)
        except Exception:
            if each is other:
                raise
            continue  # A class may rely on what it is asked about.
        if each is other:
            found = answer
        elif answer is not NotImplemented and answer:
            said_of_similar += len(similar) + 1 if each is foreign else 1
    is_equal = found is not NotImplemented and bool(found)
    if type(of_similar) is list and of_similar and of_similar[0] is not is_equal:
        raise value._cr_peer.lost("an object of %s does not say each time what it equals" % type(value).__name__)
    says_of_all = is_equal and type(of_similar) is list and len(of_similar) > 1 and all(of_similar)
    if says_of_all or (said_of_similar and said_of_similar >= len(similar)):
        what = "equals" if name == "__eq__" else "contains"
        raise value._cr_peer.lost("an object of %s says that it %s anything" % (type(value).__name__, what))
    return found


def _is_doubted(value: Any) -> bool:
    """Whether an object is asked about similar ones, which takes a fork: after many of its class, a tenth are."""
    number = type(value)._cr_class
    _doubts[number] = _doubts.get(number, 0) + 1
    return _doubts[number] <= _MOST_DOUBTS or random.randrange(10) == 0


_MOST_DOUBTS = 50
_doubts: Dict[int, int] = {}


def _decoys(value: Any) -> List[Any]:
    """Values that an object which contains a value does not contain; a set of many numbers may contain some."""
    kind = type(value)
    if kind in (int, float, bool):
        return [value + sign * random.randrange(10**6, 10**9) for sign in (1, -1, 1, -1)]
    if kind is str:
        letters = "abcdefghijklmnopqrstuvwxyz"
        return [value + "".join(random.choice(letters) for _ in range(12)) for _ in range(4)]
    return [kind((*value, type("Value", (), {})()))] if kind in (list, tuple) else []


_DATA = (bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset)


def data_of(value: Any, name: str) -> Optional[List[Any]]:
    """In a list, the data that an object is for a special method; `None` if it is more than data."""
    found = None if value._cr_decides else ask_of(value, "plain", name)
    return found if type(found) is list and len(found) == 1 and type(found[0]) in _DATA else None


def _is_named(kind: Any) -> bool:
    return any(each.__dict__.get("_cr_is_named") for each in type.__dict__["__mro__"].__get__(kind))


def refusal(value: Any, name: str) -> CannotSeparate:
    """The exception for an object that would decide what a method gives."""
    peer: Any = (reference(value) or (None,))[0]
    kind = value if isinstance(value, type) else type(value)
    refused: CannotSeparate = peer.lost("an object of %s decides itself what %s gives" % (kind.__name__, name))
    return refused


def may_decide(value: Any, name: str) -> None:
    """Refuse that an object, of a class that the tests do not name, decides about another object."""
    peer: Any = (reference(value) or (None,))[0]
    if not peer.is_trusted and not _is_named(value if isinstance(value, type) else type(value)):
        raise refusal(value, name)


def check_lists(value: Any, name: str) -> None:
    """Refuse an object, of a class that the tests do not name, that lists other items in another way."""
    ways = object.__getattribute__(value, "_cr_listed")
    if name not in ways and not _is_named(type(value)):
        ways.add(name)
        if len(ways) > 1 and not ask_of(value, "lists"):
            raise value._cr_peer.lost("an object of %s lists other items each way" % type(value).__name__)


class Mirrored(type):
    """The class of mirrors: what is done with a class is a request too."""

    def __new__(cls, name: str, bases: Tuple[Any, ...], space: Dict[str, Any], **options: Any) -> Any:
        """Make a mirror, or a class of the tests that is derived from one."""
        if "_cr_peer" in space:
            return super().__new__(cls, name, bases, space)
        peer = next(each._cr_peer for each in bases if isinstance(each, Mirrored))
        return peer.derive(name, bases, space, options)

    def __init__(cls, *_: Any, **options: Any) -> None:
        pass

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        """Call the class."""
        return ask_of(cls, "call", "", args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name in _JUDGES:
            may_decide(cls, name)
        return ask_of(cls, "get", name)


class MirrorType(Mirrored):
    """The class of mirrors of classes that are no exceptions."""

    def __instancecheck__(cls, value: Any) -> bool:
        if super().__instancecheck__(value) or _is_beside(cls, type(value)):
            return True
        return isinstance(type(value), MirrorType) and _is_said(cls, "__instancecheck__", value)

    def __subclasscheck__(cls, kind: Any) -> bool:
        if super().__subclasscheck__(kind) or _is_beside(cls, kind):
            return True
        return isinstance(kind, MirrorType) and _is_said(cls, "__subclasscheck__", kind)

    def __setattr__(cls, name: str, value: Any) -> None:
        ask_of(cls, "set", name, (value,))

    def __delattr__(cls, name: str) -> None:
        ask_of(cls, "delete", name)

    def __dir__(cls) -> List[str]:
        return list(ask_of(cls, "names"))

    def __iter__(cls) -> Any:
        return special(cls, "__iter__")

    def __len__(cls) -> int:
        return int(special(cls, "__len__"))

    def __getitem__(cls, key: Any) -> Any:
        return ask_of(cls, "item", "", (key,))

    def __contains__(cls, item: Any) -> bool:
        may_decide(cls, "__contains__")
        return bool(unless_of_all(cls, "__contains__", item))


class ErrorType(Mirrored):
    """The class of mirrors of exceptions; what else they are derived from is in `_cr_beside`."""


def _is_said(mirror: Any, name: str, other: Any) -> bool:
    """Whether a class with such a method, which the tests name, says that another one of the code belongs to it."""
    said = mirror._cr_checks and not mirror._cr_peer.is_trusted and _is_named(mirror)
    return bool(said) and bool(special(mirror, name, other))


def _is_beside(mirror: Any, kind: Any) -> bool:
    """Whether an exception is derived from a class that is none."""
    return isinstance(kind, ErrorType) and any(mirror in each.__mro__ for each in kind._cr_beside)


_BUILT_IN = frozenset(dir(builtins))
_OF_RUNNERS = ("pytest", "load_tests", "setUpModule", "tearDownModule", "setup_", "teardown_")
_own: Any = vars(types.ModuleType)["__dict__"].__get__


_OF_MODULES = frozenset(
    "__%s__" % name
    for name in ("all", "author", "author_email", "build", "copyright", "credits", "date", "description", "email",
                 "file", "license", "maintainer", "status", "summary", "title", "uri", "url", "version", "version_info",
                 "version_tuple")
)  # fmt: skip
"""The special names of a module that are requests; the others are those of the import system."""


class StandInModule(types.ModuleType):
    """Stands for a module. Classes that are found in it are named by those who look: see `_may_decide`."""

    _cr_peer: Any = None

    def __init__(self, name: str, peer: Any, number: int) -> None:
        super().__init__(name)
        _own(self).update(_cr_peer=peer, _cr_number=number)

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__" and name not in _OF_MODULES:
            raise AttributeError(name)
        found = ask_of(self, "get", name)
        if name == "__all__":
            return [each for each in found if _may_replace(each, sys._getframe(1).f_globals)]
        if isinstance(found, MirrorType) and "__path__" in _own(self):
            type.__setattr__(found, "_cr_is_named", True)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, types.ModuleType) and value.__name__ == "%s.%s" % (self.__name__, name):
            if type(value) is not StandInModule:  # One of the tests. The others are in the module of the code.
                _own(self)[name] = value
        elif name[:2] == "__":
            _own(self)[name] = value
        else:
            ask_of(self, "set", name, (value,))

    def __delattr__(self, name: str) -> None:
        ask_of(self, "delete", name)

    def __dir__(self) -> List[str]:
        return list(ask_of(self, "names"))

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        space = sys._getframe(1).f_globals
        names = [name for name in self.__dir__() if name[:2] != "__" and _may_replace(name, space)]
        return {name: ask_of(self, "get", name) for name in names}  # This names no class: nobody asked for one.


def _may_replace(name: Any, space: Dict[str, Any]) -> bool:
    """Whether a star import brings a name: not one that is built in, of the tests, or for those who run tests."""
    own = name in space and reference(space[name]) is None
    return not own and name not in _BUILT_IN and not name.startswith(_OF_RUNNERS)


def set_up(module: StandInModule, name: str, doc: Any) -> None:
    """Let the import system find a module under its name."""
    _own(module).update(__name__=name, __path__=[], __doc__=doc)
