"""Classes of the tests that are derived from one of the code.

The class is made in the process of the code. Its functions stay in that of the tests, where each call is run.
"""

from __future__ import annotations

import builtins
import sys
import types

from .stand_ins import Mirrored, ask_of, own_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, List

__all__ = ["as_member", "finish", "make_class", "members_of"]

_DECIDE = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__contains__", "__bool__", "__hash__")
_WRAPPERS: Dict[str, Any] = {"static": staticmethod, "class": classmethod}


def members_of(space: Dict[str, Any]) -> List[List[Any]]:
    """What a class of the tests defines: the name of each member, what it is, and the functions or the value in it."""
    found: List[List[Any]] = []
    for name, value in space.items():
        kind = type(value)
        if kind is types.FunctionType:
            found.append([name, "function", value])
        elif kind is staticmethod or kind is classmethod:
            found.append([name, "static" if kind is staticmethod else "class", value.__func__])
        elif kind is property:
            found.append([name, "property", value.fget, value.fset, value.fdel])
        elif name != "__classcell__":
            found.append([name, "value", value])
    return found


def make_class(name: str, bases: List[Any], options: Dict[str, Any], members: List[List[Any]]) -> Any:
    """Make the class in the process of the code."""
    space: Dict[str, Any] = {}
    for member, kind, *values in members:
        functions = [None if each is None else as_member(each) for each in values] if kind != "value" else values
        if kind == "property":
            space[member] = property(*functions)
        else:
            space[member] = _WRAPPERS[kind](functions[0]) if kind in _WRAPPERS else functions[0]
    made = types.new_class(name, tuple(bases), options, lambda names: names.update(space))
    if made.__qualname__ == name:  # For `pickle`, which looks for it where the tests have it.
        module = sys.modules.setdefault(made.__module__, types.ModuleType(made.__module__))
        setattr(module, name, made)
    return made


def as_member(value: Any) -> Any:
    """What becomes an attribute of a class: for a function of the tests, one that calls it and becomes a method."""
    kind = type(value)
    is_function = isinstance(kind, Mirrored) and (kind.__module__, kind.__name__) == ("builtins", "function")
    return _function(value) if is_function else value


def _function(stand_in: Any) -> Any:

    def function(*args: Any, **kwargs: Any) -> Any:
        return stand_in(*args, **kwargs)

    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(function, name, getattr(stand_in, name, None))
    vars(function).update(own_of(stand_in))
    return function


def finish(mirror: Any, space: Dict[str, Any]) -> None:
    """Complete the mirror of a class that the tests have defined."""
    type.__setattr__(mirror, "_cr_is_named", True)
    for name in _DECIDE:  # What these say is said by the tests.
        if type(space.get(name)) is types.FunctionType:
            type.__setattr__(mirror, name, space[name])
    cell = space.get("__classcell__")
    if cell is not None:
        cell.cell_contents = mirror
    builtins.super = _super  # type: ignore[assignment,misc]


_built_in_super = super


def _super(*args: Any) -> Any:
    """`super`, also in classes of the tests that are derived from one of the code."""
    if not args:
        frame = sys._getframe(1)
        names = frame.f_locals
        if "__class__" not in names or not frame.f_code.co_varnames:
            raise RuntimeError("super(): no arguments")
        args = names["__class__"], names[frame.f_code.co_varnames[0]]
    return _Super(*args) if len(args) == 2 and isinstance(args[0], Mirrored) else _built_in_super(*args)


class _Super:
    __slots__ = ("_cr_given",)

    def __init__(self, kind: Any, owner: Any) -> None:
        object.__setattr__(self, "_cr_given", (kind, owner))

    def __getattribute__(self, name: str) -> Any:
        kind, owner = object.__getattribute__(self, "_cr_given")
        return ask_of(owner, "super", name, (kind,))


def _special_of_super(name: str) -> Callable[..., Any]:
    return lambda self, *args: self.__getattribute__(name)(*args)


for _name in ("__getitem__", "__setitem__", "__delitem__", "__len__", "__iter__", "__contains__", "__eq__"):
    setattr(_Super, _name, _special_of_super(_name))
