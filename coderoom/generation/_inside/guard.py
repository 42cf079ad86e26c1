"""What setup code may not change: the functions of the program, what is built in, and what runs them here."""

from __future__ import annotations

import builtins
import functools
import os
import sys
import types
from typing import Any, Dict, Iterator, List, Set, Tuple

__all__ = ["Guard"]

_PACKAGE = __name__.rpartition(".")[0]
_OWN = ("program", "__main__")
_ASKING = frozenset(["input", "open", "print", "_"])  # Whoever tests what these are for has to replace them.
_WRITING = ("write", "_exit", "fork")
_MOST = 200
_DEEPEST = 3
_LISTS = (list, tuple)
_CACHED = type(functools.lru_cache()(lambda: None))
_DESCRIPTORS = (staticmethod, classmethod, property)
_none = object()
_vars_of = type.__dict__["__dict__"].__get__


class Guard:
    """Finds out whether anything else than data was changed.

    Args:
        names: The program's namespace.
    """

    def __init__(self, names: Dict[str, Any]) -> None:
        self._names = names
        self._bound = {**names}
        self._builtins = {**builtins.__dict__}
        self._functions = _functions_of(names)
        self._runners = _runners()
        self._end = os._exit
        self._own = _codes_of(globals())
        self._codes = _codes_of(names)

    def broken(self) -> str:
        """What was changed and may not be; empty if nothing was. If it is what would tell, this ends the process."""
        # Nothing that is built in can be relied on before it is known to be what it was.
        for _, function, code in self._own:
            if function.__code__ is not code:
                self._end(1)
        for name in {**self._builtins, **builtins.__dict__}:
            if name not in _ASKING and builtins.__dict__.get(name, _none) is not self._builtins.get(name, _none):
                return "what is built in"
        if not _are_same(self._runners, _runners()):
            self._end(1)
        if not _are_same(self._functions, _functions_of(self._names)):
            return "functions of the program"
        other = {name for name in {**self._names, **self._bound} if not self._is_as_it_was(name)}
        other.discard("__warningregistry__")  # Python's own, of what was warned of.
        other = other and other - _stored(self._functions)
        return "names of the program: %s" % ", ".join(sorted(map(str, other))) if other else ""

    def broken_later(self) -> str:
        """What was changed meanwhile, after the program has run; what its functions hold is theirs to change."""
        for name, function, code in self._codes:
            if self._names.get(name, _none) is not function or function.__code__ is not code:
                return "functions of the program"
        return ""

    def _is_as_it_was(self, name: str) -> bool:
        return name in self._names and name in self._bound and self._names[name] is self._bound[name]


def _codes_of(names: Dict[str, Any]) -> List[Tuple[str, Any, Any]]:
    return [(name, each, each.__code__) for name, each in names.items() if type(each) is types.FunctionType]


def _are_same(before: List[Any], now: List[Any]) -> bool:
    return len(before) == len(now) and all(each is now[at] for at, each in enumerate(before))


def _functions_of(names: Dict[str, Any]) -> List[Any]:
    """All that makes up the functions of a program: the same objects as long as they are the same."""
    found: List[Any] = []
    for name, value in {**names}.items():
        if _is_function(value):
            found += [name, value, *_parts(value, 0)]
        else:
            found += _functions_in(value, 0)
    return found


def _runners() -> List[Any]:
    """The same of what runs the program here."""
    found: List[Any] = []
    for module in [each for name, each in {**sys.modules}.items() if _is_ours(name)]:
        for item in {**vars(module)}.values():
            found += [item, *_parts(item, 0)] if _is_function(item) else []
    return found + [getattr(os, name) for name in _WRITING]


def _stored(functions: List[Any]) -> Set[str]:
    """The names that functions declare to be global, and so may set when they are called."""
    import dis

    found: Set[str] = set()
    left = [each for each in functions if type(each) is types.CodeType]
    while left:
        code = left.pop()
        left += [each for each in code.co_consts if type(each) is types.CodeType]
        found.update(str(each.argval) for each in dis.get_instructions(code) if each.opname == "STORE_GLOBAL")
    return found


def _is_ours(module: Any) -> bool:
    return type(module) is str and (module == _PACKAGE or module.startswith(_PACKAGE + "."))


def _is_function(value: Any) -> bool:
    return callable(value) or issubclass(type(value), _DESCRIPTORS)


def _functions_in(value: Any, depth: int) -> Iterator[Any]:
    """The functions that stand in a list or a dict; all else in it is data, which may change."""
    kind = type(value)
    items = list(dict.items(value)) if kind is dict else [(None, each) for each in value] if kind in _LISTS else []
    if depth < _DEEPEST:
        for key, item in items[:_MOST]:
            if type(item) in (dict, *_LISTS):
                yield from _functions_in(item, depth + 1)
            elif _is_function(item):
                yield from (key, item)
                yield from _parts(item, depth + 1)


def _parts(value: Any, depth: int) -> Iterator[Any]:
    """What a function does, and what it holds."""
    if depth > _DEEPEST:
        return
    if type(value) is types.FunctionType:
        yield value.__code__
        for held in (value.__defaults__, value.__kwdefaults__):
            yield held
            for item in held.values() if type(held) is dict else held or ():
                yield from _held(item, depth)
        for cell in value.__closure__ or ():
            yield from _cell(cell, depth)
        yield from _attributes(value.__dict__, depth)
    elif issubclass(type(value), (staticmethod, classmethod)):
        yield value.__func__
        yield from _parts(value.__func__, depth + 1)
    elif issubclass(type(value), property):
        for each in (value.fget, value.fset, value.fdel):
            yield each
            yield from _parts(each, depth + 1)
    elif issubclass(type(value), functools.partial):
        yield from (value.func, value.args, *value.args, *value.keywords.values())
        yield from _parts(value.func, depth + 1)
    elif issubclass(type(value), type):
        if _is_own(value.__module__):
            yield value.__bases__
            yield from _attributes({**_vars_of(value)}, depth)
    elif _is_own(type(value).__module__) or type(value) is _CACHED:
        yield type(value)
        yield from _attributes(getattr(value, "__dict__", {}), depth)


def _is_own(module: Any) -> bool:
    return type(module) is str and (module in _OWN or _is_ours(module))


def _attributes(names: Dict[str, Any], depth: int) -> Iterator[Any]:
    for name, value in names.items():
        if _is_function(value):
            yield from (name, value)
            yield from _parts(value, depth + 1)


def _held(value: Any, depth: int) -> Iterator[Any]:
    """What a function holds by itself is nobody else's to change, to the last item."""
    yield value
    if type(value) is dict:
        yield from [part for pair in dict.items(value) for part in pair]
    elif type(value) in (*_LISTS, set):
        yield from value
    elif _is_function(value):
        yield from _parts(value, depth + 1)


def _cell(cell: Any, depth: int) -> Iterator[Any]:
    try:
        value = cell.cell_contents
    except ValueError:  # There is nothing in it yet.
        return
    yield from _held(value, depth)
