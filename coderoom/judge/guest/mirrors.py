"""Mirrors of classes of another process, which are the classes of `stand_ins`: with the same special methods.

`peers` makes them.
"""

from __future__ import annotations

import datetime
import inspect
import operator
import re
import types

from coderoom.sandbox.guest.decoding import as_text

from .stand_ins import (
    ErrorType,
    MirrorType,
    StandIn,
    StandInObject,
    StandInText,
    answer_of,
    ask_of,
    check_lists,
    data_of,
    ends_test,
    may_decide,
    own_of,
    reference,
    refusal,
    special,
    unless_of_all,
)
from .zones import OF_ZONES, of_zone

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Generator, List, Optional, Tuple

__all__ = ["ARITHMETIC", "COMPARES", "FORWARDED", "make_mirror", "make_stand_in"]

COMPARES = {"__lt__": operator.lt, "__le__": operator.le, "__gt__": operator.gt, "__ge__": operator.ge}
ARITHMETIC = frozenset(
    "__%s%s__" % (side, name)
    for name in ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift",
                 "and", "xor", "or")
    for side in ("", "r", "i")
)  # fmt: skip
_NUMBERS = frozenset(
    "__%s__" % name for name in ("int", "float", "complex", "index", "round", "trunc", "floor", "ceil", "abs")
)
"""What makes a number of an object: it could be another one each time."""
_LISTS = ("__iter__", "__len__", "__getitem__", "__reversed__")
FORWARDED = ARITHMETIC.union(
    "__%s__" % name
    for name in ("neg", "pos", "abs", "invert", "int", "float", "complex", "index", "round", "trunc", "floor", "ceil",
                 "len", "length_hint", "iter", "next", "reversed", "contains", "getitem", "setitem", "delitem", "enter",
                 "exit", "bytes", "fspath", "call", "instancecheck", "subclasscheck")
)  # fmt: skip
"""The special methods of a mirror that are requests."""
_OF_DESCRIPTORS = ("__get__", "__set__", "__delete__", "__set_name__")
"""The same, if the tests make an object of the code an attribute of a class."""


def _forwarded(name: str, number: int) -> Callable[..., Any]:
    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if name in _NUMBERS and not self._cr_peer.is_trusted:
            if (data := data_of(self, name)) is not None:
                return getattr(data[0], name)(*args)
            may_decide(self, name)
        if name in _LISTS and not self._cr_peer.is_trusted:
            check_lists(self, name)
        decides = name in ARITHMETIC or name == "__contains__"
        if self._cr_peer.is_trusted or not decides or all(isinstance(each, StandIn) for each in args):
            kind = type(self)
            if kind._cr_class != number and not self._cr_peer.is_trusted:  # A derived class calls it by name.
                base = next(each for each in kind.__mro__ if each.__dict__.get("_cr_class") == number)
                return ask_of(self, "special of", name, (base, *args), kwargs)
            return ask_of(self, "special", name, args, kwargs)
        if (data := data_of(self, name)) is not None:
            return getattr(data[0], name, lambda *_: NotImplemented)(*args)
        may_decide(self, name)
        if name == "__contains__":
            return unless_of_all(self, name, args[0])
        found = ask_of(self, "special", name, args, kwargs)
        if found is NotImplemented or isinstance(found, StandIn):
            return found
        raise refusal(self, name)  # The data may be what the tests wait for.

    return method


def _exit(self: Any, *error: Any) -> Any:
    found = special(self, "__exit__", *error)
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
            if (data := data_of(self, name)) is not None:
                return compare(data[0], other)
            if not isinstance(other, StandIn):
                may_decide(self, name)
                return answer_of(self, name, other)
        return special(self, name, other)

    return method


def _awaited(self: Any) -> Generator[Any, Any, Any]:
    yield from ()  # The other process has waited for it.
    return ask_of(self, "await")


def _sent(self: Any, value: Any) -> Any:
    raise StopIteration(ask_of(self, "await"))


class _Awaitable:
    """What an async special method of a stand-in gives."""

    def __init__(self, owner: Any, name: str, args: Tuple[Any, ...]) -> None:
        self._work = owner, name, args

    def __await__(self) -> Generator[Any, Any, Any]:
        owner, name, args = self._work
        yield from ()
        found = ask_of(special(owner, name, *args), "await")
        return _unless_swallowed(owner, args, found) if name == "__aexit__" else found


def _async(name: str) -> Callable[..., Any]:
    return lambda self, *args: _Awaitable(self, name, args)


def _attribute_of_error(self: Any, name: str) -> Any:
    if name.startswith("_cr_") or reference(self) is None:
        raise AttributeError(name)
    return ask_of(self, "get", name)


def _text_of_error(self: Any) -> str:
    return str(self.__dict__.get("_cr_text", ""))


_OF_TEXTS = frozenset(each for each in vars(str) if each[:1] != "_")
"""The methods of texts, which a class may replace. Special ones are not among them: they would decide."""
_FUNCTIONS = (types.FunctionType, types.MethodType)
_NATIVE: Dict[str, Any] = {
    "function": types.FunctionType, "method": types.MethodType, "generator": types.GeneratorType,
    "coroutine": types.CoroutineType, "async_generator": types.AsyncGeneratorType,
}  # fmt: skip
"""What objects of built-in classes are for `isinstance`."""
_NEVER_DATA = (*_NATIVE, "builtin_function_or_method", "method-wrapper")
"""Built-in classes of objects that are equal to no data."""


def make_mirror(
    peer: Any, described: Dict[str, Any], bases: List[type], registered: List[Any], built_in: Optional[type]
) -> Any:
    """Make the mirror of a class.

    Args:
        peer: Who makes it.
        described: Its `number`, `name`, `qualname`, `module`, and its special `names`: whether they are not `None`.
        bases: Mirrors of its base classes, and those that are exceptions of the standard library, or `tzinfo`.
        registered: Its abstract base classes.
        built_in: The built-in class that it is derived from, if it is.
    """
    names = described["names"]
    space: Dict[str, Any] = {
        "_cr_peer": peer, "_cr_class": described["number"], "_cr_names": names, "_cr_is_named": False,
        "_cr_decides": described.get("decides") is True, "_cr_checks": described.get("checks") is True,
        "_cr_is_built_in": described["module"] == "builtins" and described["name"] in _NEVER_DATA,
        "__module__": described["module"], "__qualname__": described["qualname"],
        "__doc__": _Attribute("__doc__"), "__annotations__": _Attribute("__annotations__"),
        "__init__": _Attribute("__init__"),
    }  # fmt: skip
    if any(issubclass(each, BaseException) for each in bases):
        kept = {"__getattr__": _attribute_of_error, "__str__": _text_of_error}
        # An exception cannot be derived from stand-ins, too.
        beside = [each for each in bases if not issubclass(each, BaseException)]
        space["_cr_beside"] = (*beside, *(more for each in bases for more in getattr(each, "_cr_beside", ())))
        errors = tuple(each for each in bases if issubclass(each, BaseException))
        return ErrorType(described["name"], errors, {**space, **kept})
    is_text = built_in is str and not any(issubclass(each, StandInObject) for each in bases)
    if is_text or not any(issubclass(each, StandIn) for each in bases):
        bases = [StandInText if is_text else StandInObject, *bases]
    is_text = any(issubclass(each, str) for each in bases)
    for each in _OF_TEXTS.intersection(described["methods"]) if is_text else ():
        space[each] = _overridden(each)
    if any(issubclass(each, datetime.tzinfo) for each in bases):
        space.update({name: of_zone(name) for name in OF_ZONES})
    space["__slots__"] = ()
    if is_text:
        space["_cr_is_data"] = True
    elif built_in is not None:
        seen = type(described["name"], (built_in,), {})
        space.update(__class__=property(lambda self: seen), _cr_is_data=True)  # For `isinstance`.
    for name, exists in names.items():
        if name == "__hash__" or not exists:
            space[name] = StandIn.__hash__ if exists else None
        elif name == "__exit__":
            space[name] = _exit
        elif name in FORWARDED or (name in _OF_DESCRIPTORS and not peer.is_trusted):
            space[name] = _forwarded(name, described["number"])
        elif name in COMPARES:
            space[name] = _compared(name)
        elif name in ("__anext__", "__aenter__", "__aexit__"):
            space[name] = _async(name)
        elif name == "__await__":
            space[name] = _awaited
            if described["name"] == "coroutine":  # So that it is one for asyncio.
                space.update(send=_sent, throw=lambda self, *error: None, close=lambda self: None)
        elif name == "__aiter__":
            space[name] = lambda self: special(self, "__aiter__")
    native = _NATIVE.get(described["name"]) if space["_cr_is_built_in"] else None
    if (described["module"], described["name"]) == ("re", "Match"):
        space["__class__"] = property(lambda self: re.Match)
    if native is not None and (not peer.is_trusted or not issubclass(native, _FUNCTIONS)):
        space["__class__"] = property(lambda self: native)
    if native is types.FunctionType:
        space.update(__get__=_bound)
    elif native is types.MethodType:
        space.pop("__get__", None)
    if native is not None and issubclass(native, _FUNCTIONS):
        space.update(__module__=_Attribute("__module__"))
        if peer.is_trusted:  # For `inspect`; the tests let nothing else be seen of a function.
            space.update(__signature__=property(_signature), __code__=property(_code))
            space.update(__defaults__=property(_defaults), __kwdefaults__=property(_defaults_by_name))
            space.update(__setattr__=_set_own, __getattr__=_own)
    mirror = MirrorType(described["name"], tuple(bases), space)
    for each in registered:
        each.register(mirror)
    return mirror


def make_stand_in(mirror: Any, text: Optional[str]) -> Any:
    """Make a stand-in without its number; `text` is there if it is one."""
    return object.__new__(mirror) if not issubclass(mirror, str) else str.__new__(mirror, as_text(text))


def _overridden(name: str) -> Any:
    return property(lambda self: StandIn.__getattr__(self, name))


def _set_own(function: Any, name: str, value: Any) -> None:
    """Set an attribute of a function of the tests, which only the code sees."""
    if any(name in vars(each) for each in type(function).__mro__):  # Such as its code.
        StandIn.__setattr__(function, name, value)
    else:
        own_of(function)[name] = value


def _own(function: Any, name: str) -> Any:
    own = own_of(function)
    return own[name] if name in own else StandIn.__getattr__(function, name)


def _bound(function: Any, owner: Any, kind: Any = None) -> Any:
    return function if owner is None else types.MethodType(function, owner)


class _Attribute:
    """An attribute that each class has of its own, asked of the object."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, found: Any, kind: Any) -> Any:
        return ask_of(kind if found is None else found, "get", self._name)


def _signature(function: Any) -> Any:
    """The signature of a function of the tests, in which each default value is `...`."""
    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(name, inspect._ParameterKind(kind), default=... if has_default else empty)
        for name, kind, has_default in ask_of(function, "signature")[0]
    ]
    return inspect.Signature(parameters)


def _code(function: Any) -> Any:
    """The code object of a function of the tests, of which only the signature is true."""
    parameters, flags = ask_of(function, "signature")
    kinds = [kind for _, kind, _ in parameters]
    names = [name for only in ((0, 1), (3,), (2,), (4,)) for name, kind, _ in parameters if kind in only]
    # A function that wraps another one has the signature of that one, but flags of its own.
    more = (inspect.CO_VARARGS if 2 in kinds else 0) | (inspect.CO_VARKEYWORDS if 4 in kinds else 0)
    left_out = inspect.CO_NESTED | inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return (lambda: None).__code__.replace(
        co_flags=(flags & ~left_out) | more | inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS,
        co_argcount=kinds.count(0) + kinds.count(1),
        co_posonlyargcount=kinds.count(0),
        co_kwonlyargcount=kinds.count(3),
        co_nlocals=len(names),
        co_varnames=tuple(names),
        co_name=str(function.__name__),
    )


def _defaults(function: Any) -> Any:
    return tuple(... for _, kind, has_default in ask_of(function, "signature")[0] if has_default and kind < 2) or None


def _defaults_by_name(function: Any) -> Any:
    found = ask_of(function, "signature")[0]
    return {name: ... for name, kind, has_default in found if has_default and kind == 3} or None
