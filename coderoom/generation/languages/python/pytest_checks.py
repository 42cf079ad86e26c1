"""The module that stands beside written tests: it imports the program, and compares results as the judge does.

A person reads it, so it knows only values that stand in Python source (`pytest_file.why_not`), and what becomes one of
these. Where it knows less than the judge, a test fails with words that say so; none passes.
"""

from __future__ import annotations

from typing import Final

CHECKS: Final = '''\
"""What the tests of {module} use: its functions, and when a result is the expected one. {mark}."""

import asyncio
import builtins
import contextlib
import datetime
import decimal
import fractions
import importlib
import inspect
import io
import itertools
import logging
import math
import os
import pathlib
import sys
import types
import uuid
from collections import Counter
from unittest import mock

import pytest

NAME = {module!r}
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), {folder!r}))
KEPT = [(each, dict(vars(each))) for each in (builtins, math)]  # Asserts see them as they were.
MOST_ITEMS = 200_000
TEXTS = (str, bytes, bytearray)
SIMPLE = (type(None), bool, int, float, complex, *TEXTS, decimal.Decimal, fractions.Fraction, uuid.UUID)
SIMPLE += (datetime.date, datetime.datetime, datetime.time, datetime.timedelta)
VIEWS = (range, type({}.keys()), type({}.values()), type({}.items()))


@pytest.fixture
def program(tmp_path, monkeypatch):
    """The module, imported again for each test, in an empty folder and without input; what it changes is restored."""
    root, limit = logging.getLogger(), sys.getrecursionlimit()
    handlers, level = root.handlers[:], root.level
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    sys.setrecursionlimit(limit + 100)  # Pytest has calls of its own.
    with mock.patch.dict(os.environ), decimal.localcontext():
        root.handlers.clear()  # As in a script: with handlers, `logging.basicConfig` does nothing.
        module = run(importlib.import_module, NAME)
        added, root.handlers = root.handlers, root.handlers + handlers
        used = [(each, dict(vars(each))) for each in vars(module).values() if type(each) is types.ModuleType]
        yield module
    restore(used)
    sys.setrecursionlimit(limit)
    root.handlers = [each for each in root.handlers if each not in added]
    root.setLevel(level)


def restore(modules):
    for module, names in modules:
        for name in vars(module).keys() - names:
            delattr(module, name)
        vars(module).update(names)


class Raised(Exception):
    """The program raised an exception."""


def run(function, /, *args, **inputs):
    """What a function of the program returns; a coroutine is awaited."""
    try:
        positional, named = arranged(function, args, inputs)
        value = function(*positional, **named)
        return asyncio.run(value) if type(value) is types.CoroutineType else value
    except BaseException as error:
        raise Raised(error) from error
    finally:
        restore(KEPT)


def arranged(function, args, inputs):
    """The inputs by position and by name: a parameter like `*numbers` takes several, and one like `**options` too."""
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # A class or function of the standard library.
        return args, inputs
    positional, named = [*args], dict(inputs)
    takes_all = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    if takes_all and not any(each.name in named for each in parameters):
        return [*args, *named.values()], {}
    for number, each in enumerate(parameters):
        if each.kind is each.VAR_POSITIONAL and each.name in named:
            given = named.pop(each.name)
            positional += given if type(given) in (list, tuple) else [given]
        elif each.kind is each.VAR_KEYWORD:
            named.update(named.pop(each.name, {}))
        elif each.kind is not each.KEYWORD_ONLY and each.name in named and number == len(positional):
            positional.append(named.pop(each.name))
    return positional, named


@contextlib.contextmanager
def raises(error, message=""):
    """The program raises an exception of this class, or of one derived from it, with this text in its message."""
    try:
        yield
    except Raised as raised:
        found = raised.args[0]
    else:
        pytest.fail(f"no {error} was raised")
    own = [each.__name__ for each in type(found).__mro__ if getattr(builtins, each.__name__, None) is not each]
    wanted = getattr(builtins, error, None)
    assert isinstance(found, wanted) if isinstance(wanted, type) else error in own, f"{found!r} is not a {error}"
    assert message.lower() in str(found).lower()


def own(value):
    """The same object, which must be of a class of the program: steps use the attributes of no other ones."""
    kind = value if isinstance(value, type) else type(value)
    return value if kind.__module__ == NAME else pytest.fail(f"{value!r} is not an object of the program's classes")


def listed(value):
    """The items of a generator, an iterator or a view; any other value as it is."""
    kind = type(value)
    iterates = any("__next__" in vars(each) for each in kind.__mro__) and not issubclass(kind, io.IOBase)
    if not iterates and kind not in VIEWS and not (kind.__module__, kind.__name__) == ("collections", "deque"):
        return value
    found = run(list, itertools.islice(value, MOST_ITEMS + 1))
    return found if len(found) <= MOST_ITEMS else pytest.fail(f"a {kind.__name__} has too many items")


def plain(value, exact=False, builtin=False):
    """A copy of a value as data of built-in types, whatever classes of the program say; a failure if there is none.

    `exact`: no array stands for a list, and no named tuple for a tuple. `builtin`: all types are built in already.
    """
    kind = type(value)
    if kind in SIMPLE:
        return value
    if kind in (list, tuple, set, frozenset):
        found = kind([plain(each, exact, builtin) for each in value])
        return found if len(found) == len(value) else unknown(kind)
    if kind is dict:
        found = {plain(key, exact, builtin): plain(each, exact, builtin) for key, each in value.items()}
        return found if len(found) == len(value) else unknown(kind)
    if builtin:
        unknown(kind)
    if kind.__module__ == "numpy" and hasattr(value, "dtype") and value.dtype.char in "?bBhHiIlLqQefdFDU":
        return plain(value.tolist()) if value.shape == () or not exact else unknown(kind)
    if kind in (pathlib.PosixPath, pathlib.PurePosixPath):
        return str(value)
    for base, copy in COPIES.items():
        if issubclass(kind, base):
            return plain(copy(value), exact) if is_like(kind, base, exact) else unknown(kind)
    found = listed(value)
    return plain(found, exact) if found is not value else unknown(kind)


COPIES = {
    dict: lambda value: dict(dict.items(value)),
    **{kind: lambda value, kind=kind: kind(kind.__iter__(value)) for kind in (list, tuple, set, frozenset)},
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}


def is_like(kind, base, exact):
    """Whether a class does as the built-in one that it is derived from: it may only differ in how objects are made."""
    if exact and hasattr(kind, "_fields"):
        return False
    free = {"__class_getitem__", "__doc__", "__init__", "__init_subclass__", "__new__", "__getnewargs__", "__reduce__"}
    free |= {"__reduce_ex__"} if exact else {"__reduce_ex__", "__repr__", "__str__", "__hash__", "__format__"}
    seen = {*dir(base), "__getattribute__", "__getattr__", "__bool__"} - free
    made = [each for each in kind.__mro__[: kind.__mro__.index(base)] if each.__module__ not in ("collections", "enum")]
    return not any(seen & vars(each).keys() for each in made)


def unknown(kind):
    pytest.fail(f"only CodeRoom can judge a {kind.__name__} here; return plain data")


def same(actual, expected, rel=None, abs=None, exact_types=False):
    """Whether a result is the expected value. Types count: 1 is not True, and (1,) is not [1].

    A float may differ by a billionth. An expected list also stands for a tuple, and a set for a frozenset, unless types
    are exact. NaN is NaN.
    """
    return equal(plain(actual, exact_types), expected, rel, abs, exact_types)


def equal(actual, expected, *how):
    kinds = (type(actual), type(expected))
    if {*kinds} <= {int, float}:
        return close(actual, expected, *how[:2])
    if kinds[0] is not kinds[1] and (how[2] or kinds not in ((tuple, list), (frozenset, set))):
        return False
    if kinds[1] in (list, tuple):
        pairs = zip(actual, expected)
        return len(actual) == len(expected) and all(equal(*pair, *how) for pair in pairs)
    if kinds[1] in (set, frozenset):
        return same_items(actual, expected, *how)
    if kinds[1] is dict:
        found = {key(name): each for name, each in actual.items()}
        wanted = {key(name): each for name, each in expected.items()}
        return found.keys() == wanted.keys() and all(equal(found[name], wanted[name], *how) for name in wanted)
    if kinds[1] is complex:
        return all(close(*pair, *how[:2]) for pair in ((actual.real, expected.real), (actual.imag, expected.imag)))
    return actual == expected or (actual != actual and expected != expected)


def close(actual, expected, rel, abs):
    """Whether numbers are equal: an expected integer exactly, if no tolerance is given."""
    whole, given = type(expected) is int, (rel, abs) != (None, None)
    if whole and (type(actual) is int or not given):
        return actual == expected
    if actual != actual or expected != expected:
        return actual != actual and expected != expected
    rel = (0.0 if whole else 1e-9) if rel is None else rel
    abs = (1e-12 if expected == 0 and not given else 0.0) if abs is None else abs
    try:
        return math.isclose(expected, actual, rel_tol=rel, abs_tol=abs)
    except OverflowError:
        return actual == expected


def same_items(actual, expected, *how):
    missing, extra = (Counter(map(key, side)) for side in (expected, actual))
    missing, extra = missing - extra, extra - missing
    missing = [each for each in expected if key(each) in missing]
    extra = [each for each in actual if key(each) in extra]
    if len(missing) != len(extra) or len(missing) > 60:
        return False
    for each in missing:  # Floats that are close.
        found = next((number for number, other in enumerate(extra) if equal(other, each, *how)), None)
        if found is None:
            return False
        del extra[found]
    return True


def key(value):
    """Text that is equal for equal keys: 1 and 1.0, but not 1 and True."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is tuple:
        return f"({', '.join(map(key, value))})"
    if type(value) is frozenset:
        return f"frozenset({sorted(map(key, value))})"
    return hex(value) if type(value) is int else repr(value)
'''
