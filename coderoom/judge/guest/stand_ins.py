"""Stand-ins for objects of another process: what is done with one is a request to the process that has the object.

`peers` makes them. The class of a stand-in is a mirror of the class of its object: it has the same name, the same
special methods, and mirrors of the same base classes. Mirrors of exceptions are real exceptions, which can be caught.
"""

from __future__ import annotations

import builtins
import operator
import random
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Generator, List, Mapping, Optional, Tuple

__all__ = [
    "ARITHMETIC",
    "COMPARES",
    "FORWARDED",
    "CannotSeparate",
    "CodeEnded",
    "StandIn",
    "StandInModule",
    "ends_test",
    "make_mirror",
    "reference",
    "set_up",
]

COMPARES = {"__lt__": operator.lt, "__le__": operator.le, "__gt__": operator.gt, "__ge__": operator.ge}
ARITHMETIC = frozenset(
    "__%s%s__" % (side, name)
    for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift",
                 "and", "xor", "or")
    for side in ("", "r", "i")
)  # fmt: skip
FORWARDED = ARITHMETIC.union(
    "__%s__" % name
    for name in ("neg", "pos", "abs", "invert", "int", "float", "complex", "index", "round", "trunc", "floor", "ceil",
                 "len", "length_hint", "iter", "next", "reversed", "contains", "getitem", "setitem", "delitem", "enter",
                 "exit", "bytes", "fspath", "call", "instancecheck", "subclasscheck")
)  # fmt: skip
"""The special methods of a mirror that are requests."""
_JUDGES = frozenset(
    ["difference", "endswith", "equals", "intersection", "isdisjoint", "issubset", "issuperset", "removeprefix",
     "removesuffix", "replace", "startswith", "symmetric_difference", "union"]
)  # fmt: skip
"""Methods of built-in types whose result says whether what the tests expect is true."""


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
    if isinstance(value, _Mirrored):
        return type.__getattribute__(value, "_cr_peer"), type.__getattribute__(value, "_cr_class")
    if issubclass(type(value), StandIn):
        return type(value)._cr_peer, object.__getattribute__(value, "_cr_number")
    if type(value) is StandInModule:
        return _own(value)["_cr_peer"], _own(value)["_cr_number"]
    if isinstance(type(value), _ErrorType):
        number = value.__dict__.get("_cr_number")
        return None if number is None else (type(value)._cr_peer, number)
    return value.__dict__.get("_cr_of") if isinstance(value, BaseException) else None


def _ask(
    value: Any, do: str, name: str = "", args: Tuple[Any, ...] = (), kwargs: Optional[Dict[str, Any]] = None
) -> Any:
    peer: Any = (reference(value) or (None,))[0]
    return peer.ask(do, value, name, args, kwargs or {})


def _special(value: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return _ask(value, "special", name, args, kwargs)


class StandIn:
    """Stands for an object. Names begin with `_cr_`, since all others are those of the object."""

    __slots__ = ("__weakref__", "_cr_number")
    _cr_peer: Any = None
    _cr_names: Mapping[str, bool] = types.MappingProxyType({})
    _cr_is_named = False
    _cr_is_data = False

    def __getattr__(self, name: str) -> Any:
        if name in _JUDGES and not self._cr_peer.is_trusted:
            if (data := _data_of(self, name)) is not None:
                return getattr(data[0], name)
            _may_decide(self, name)
        return _ask(self, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "set", name, (value,))

    def __delattr__(self, name: str) -> None:
        _ask(self, "delete", name)

    def __dir__(self) -> List[str]:
        return list(_ask(self, "names"))

    def __repr__(self) -> str:
        return str(_ask(self, "text", "repr"))

    def __str__(self) -> str:
        return str(_ask(self, "text", "str"))

    def __format__(self, spec: str) -> str:
        return str(_ask(self, "text", "format", (spec,)))

    def __bool__(self) -> bool:
        return bool(_ask(self, "text", "bool"))

    def __hash__(self) -> int:
        return int(_ask(self, "text", "hash"))

    def __eq__(self, other: object) -> Any:
        return _equals(self, other)

    def __ne__(self, other: object) -> Any:
        found = _equals(self, other)
        return found if found is NotImplemented else not found


def _equals(one: Any, other: Any) -> Any:
    if one is other and not one._cr_names.get("__eq__"):
        return True
    if (one._cr_is_data or not isinstance(other, StandIn)) and (data := _data_of(one, "__eq__")) is not None:
        return data[0] == other
    if not one._cr_names.get("__eq__"):
        return NotImplemented
    if one._cr_peer.is_trusted:
        return _special(one, "__eq__", other)
    if not isinstance(other, StandIn):
        raise _refusal(one, "__eq__")
    _may_decide(one, "__eq__")
    return _unless_of_all(one, "__eq__", other)


def _unless_of_all(value: Any, name: str, other: Any) -> Any:
    """What an object says of another one, unless it says the same of what it cannot know."""
    foreign, similar = [type("Value", (), {})()], _decoys(other)
    if name == "__eq__" and (unlike := _ask(other, "unlike")) is not None:
        foreign.append(unlike)
    questions = [other, *foreign, *similar]
    random.shuffle(questions)
    found, said_of_similar = None, 0
    for each in questions:
        try:
            said = _special(value, name, each)
        except Exception:
            if each is other:
                raise
            continue  # A class may rely on what it is asked about.
        if each is other:
            found = said
        elif said is not NotImplemented and said:
            said_of_similar += 1 if each in similar else len(similar) + 1
    if said_of_similar and said_of_similar >= len(similar):
        what = "equals" if name == "__eq__" else "contains"
        raise value._cr_peer.lost("an object of %s says that it %s anything" % (type(value).__name__, what))
    return found


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


def _data_of(value: Any, name: str) -> Optional[List[Any]]:
    """In a list, the data that an object is for a special method; `None` if it is more than data."""
    found = _ask(value, "plain", name)
    return found if type(found) is list and len(found) == 1 and type(found[0]) in _DATA else None


def _is_named(kind: Any) -> bool:
    return any(each.__dict__.get("_cr_is_named") for each in type.__dict__["__mro__"].__get__(kind))


def _refusal(value: Any, name: str) -> CannotSeparate:
    peer: Any = (reference(value) or (None,))[0]
    kind = value if isinstance(value, type) else type(value)
    refused: CannotSeparate = peer.lost("an object of %s decides itself what %s gives" % (kind.__name__, name))
    return refused


def _may_decide(value: Any, name: str) -> None:
    """Refuse that an object, of a class that the tests do not name, decides about another object."""
    peer: Any = (reference(value) or (None,))[0]
    if not peer.is_trusted and not _is_named(value if isinstance(value, type) else type(value)):
        raise _refusal(value, name)


def _forwarded(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        decides = name in ARITHMETIC or name == "__contains__"
        if self._cr_peer.is_trusted or not decides or all(isinstance(each, StandIn) for each in args):
            return _special(self, name, *args, **kwargs)
        if (data := _data_of(self, name)) is not None:
            return getattr(data[0], name, lambda *_: NotImplemented)(*args)
        _may_decide(self, name)
        if name == "__contains__":
            return _unless_of_all(self, name, args[0])
        found = _special(self, name, *args, **kwargs)
        if found is NotImplemented or isinstance(found, StandIn):
            return found
        raise _refusal(self, name)  # The data may be what the tests wait for.

    return method


def _exit(self: Any, *error: Any) -> Any:
    found = _special(self, "__exit__", *error)
    return _unless_swallowed(self, error, found)


def _unless_swallowed(value: Any, error: Tuple[Any, ...], found: Any) -> Any:
    """What a context manager of the code says, unless that would hide a verdict of the tests."""
    if value._cr_peer.is_trusted or not found or not isinstance(error[1], BaseException):
        return found
    if ends_test(type(error[1])):
        raise value._cr_peer.lost("an object of %s swallows an assertion of the tests" % type(value).__name__)
    if isinstance(error[1], _INCOMPLETE) and "_cr_by_code" in error[1].__dict__:
        raise value._cr_peer.lost("an object of %s swallows an error of its own" % type(value).__name__)
    return found


_INCOMPLETE = (AttributeError, NameError, NotImplementedError, TypeError)


def _compared(name: str) -> Callable[[Any, Any], Any]:
    compare = COMPARES[name]

    def method(self: Any, other: Any) -> Any:
        if not self._cr_peer.is_trusted and (self._cr_is_data or not isinstance(other, StandIn)):
            if (data := _data_of(self, name)) is not None:
                return compare(data[0], other)
            if not isinstance(other, StandIn):
                raise _refusal(self, name)
        return _special(self, name, other)

    return method


def _awaited(self: Any) -> Generator[Any, Any, Any]:
    yield from ()  # The other process has waited for it.
    return _ask(self, "await")


def _sent(self: Any, value: Any) -> Any:
    raise StopIteration(_ask(self, "await"))


class _Awaitable:
    """What an async special method of a stand-in gives."""

    def __init__(self, owner: Any, name: str, args: Tuple[Any, ...]) -> None:
        self._work = owner, name, args

    def __await__(self) -> Generator[Any, Any, Any]:
        owner, name, args = self._work
        yield from ()
        found = _ask(_special(owner, name, *args), "await")
        return _unless_swallowed(owner, args, found) if name == "__aexit__" else found


def _async(name: str) -> Callable[..., Any]:
    return lambda self, *args: _Awaitable(self, name, args)


class _Mirrored(type):
    """The class of mirrors: what is done with a class is a request too."""

    def __new__(cls, name: str, bases: Tuple[Any, ...], space: Dict[str, Any]) -> Any:
        if "_cr_peer" not in space:
            peer = next(each._cr_peer for each in bases if isinstance(each, _Mirrored))
            raise peer.lost("the class %s of the tests is derived from one of the code" % name)
        return super().__new__(cls, name, bases, space)

    def __init__(cls, *_: Any) -> None:
        pass

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _ask(cls, "call", "", args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name in _JUDGES:
            _may_decide(cls, name)
        return _ask(cls, "get", name)


class _MirrorType(_Mirrored):
    """The class of mirrors of classes that are no exceptions."""

    def __setattr__(cls, name: str, value: Any) -> None:
        _ask(cls, "set", name, (value,))

    def __delattr__(cls, name: str) -> None:
        _ask(cls, "delete", name)

    def __dir__(cls) -> List[str]:
        return list(_ask(cls, "names"))

    def __iter__(cls) -> Any:
        return _special(cls, "__iter__")

    def __len__(cls) -> int:
        return int(_special(cls, "__len__"))

    def __getitem__(cls, key: Any) -> Any:
        return _ask(cls, "item", "", (key,))

    def __contains__(cls, item: Any) -> bool:
        _may_decide(cls, "__contains__")
        return bool(_unless_of_all(cls, "__contains__", item))


class _ErrorType(_Mirrored):
    """The class of mirrors of exceptions."""


def _attribute_of_error(self: Any, name: str) -> Any:
    if name.startswith("_cr_") or reference(self) is None:
        raise AttributeError(name)
    return _ask(self, "get", name)


def _text_of_error(self: Any) -> str:
    return str(self.__dict__.get("_cr_text", ""))


def make_mirror(
    peer: Any, described: Dict[str, Any], bases: List[type], registered: List[Any], built_in: Optional[type]
) -> Any:
    """Make the mirror of a class.

    Args:
        peer: Who makes it.
        described: Its `number`, `name`, `qualname`, `module`, and its special `names`: whether they are not `None`.
        bases: Mirrors of its base classes, and those that are exceptions of the standard library.
        registered: Its abstract base classes.
        built_in: The built-in class that it is derived from, if it is.
    """
    names = described["names"]
    space: Dict[str, Any] = {
        "_cr_peer": peer, "_cr_class": described["number"], "_cr_names": names, "_cr_is_named": False,
        "__module__": described["module"], "__qualname__": described["qualname"],
    }  # fmt: skip
    if any(issubclass(each, BaseException) for each in bases):
        kept = {"__getattr__": _attribute_of_error, "__str__": _text_of_error}
        return _ErrorType(described["name"], tuple(bases), {**space, **kept})
    if not any(issubclass(each, StandIn) for each in bases):
        bases = [*bases, StandIn]
    space["__slots__"] = ()
    if built_in is not None:
        seen = type(described["name"], (built_in,), {})
        space.update(__class__=property(lambda self: seen), _cr_is_data=True)  # For `isinstance`.
    for name, exists in names.items():
        if name == "__hash__" or not exists:
            space[name] = StandIn.__hash__ if exists else None
        elif name == "__exit__":
            space[name] = _exit
        elif name in FORWARDED:
            space[name] = _forwarded(name)
        elif name in COMPARES:
            space[name] = _compared(name)
        elif name in ("__anext__", "__aenter__", "__aexit__"):
            space[name] = _async(name)
        elif name == "__await__":
            space[name] = _awaited
            if described["name"] == "coroutine":  # So that it is one for asyncio.
                space.update(send=_sent, throw=lambda self, *error: None, close=lambda self: None)
        elif name == "__aiter__":
            space[name] = lambda self: _special(self, "__aiter__")
    mirror = _MirrorType(described["name"], tuple(bases), space)
    for each in registered:
        each.register(mirror)
    return mirror


_BUILT_IN = frozenset(dir(builtins))
_OF_RUNNERS = ("pytest", "load_tests", "setUpModule", "tearDownModule", "setup_", "teardown_")
_own: Any = vars(types.ModuleType)["__dict__"].__get__


class StandInModule(types.ModuleType):
    """Stands for a module. Classes that are found in it are named by those who look: see `_may_decide`."""

    _cr_peer: Any = None

    def __init__(self, name: str, peer: Any, number: int) -> None:
        super().__init__(name)
        _own(self).update(_cr_peer=peer, _cr_number=number)

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__" and name not in ("__all__", "__version__"):
            raise AttributeError(name)
        found = _ask(self, "get", name)
        if name == "__all__":
            return [each for each in found if _may_replace(each, sys._getframe(1).f_globals)]
        if isinstance(found, _MirrorType) and "__path__" in _own(self):
            type.__setattr__(found, "_cr_is_named", True)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:2] == "__" or type(value) is StandInModule:
            _own(self)[name] = value
        else:
            _ask(self, "set", name, (value,))

    def __delattr__(self, name: str) -> None:
        _ask(self, "delete", name)

    def __dir__(self) -> List[str]:
        return list(_ask(self, "names"))

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        space = sys._getframe(1).f_globals
        names = [name for name in self.__dir__() if name[:2] != "__" and _may_replace(name, space)]
        return {name: _ask(self, "get", name) for name in names}  # This names no class: nobody asked for one.


def _may_replace(name: Any, space: Dict[str, Any]) -> bool:
    """Whether a star import brings a name: not one that is built in, of the tests, or for those who run tests."""
    own = name in space and reference(space[name]) is None
    return not own and name not in _BUILT_IN and not name.startswith(_OF_RUNNERS)


def set_up(module: StandInModule, name: str) -> None:
    """Let the import system find a module under its name."""
    _own(module).update(__name__=name, __path__=[])
