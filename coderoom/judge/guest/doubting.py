"""Asks objects of the code more than the tests do, in a fork, so that nothing of it is left in the process of the code.

An object that says that it equals another one must not say so of all that are like that one, and what lists its items
in several ways must list the same ones.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import decimal
import fractions
import itertools
import json
import os
import random
import select
import signal
import warnings

from coderoom.sandbox.guest.encoding import ValueEncoder

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

    Made = Tuple[Any, List[Any], Dict[str, Any]]

__all__ = ["answers_of", "how_made", "lists_alike", "says_of_similar", "unlike"]

_COUNT = 8
_MOST_ITEMS = 1_000
_MOST_BYTES = 4_000
_DEEPEST = 4
_SECONDS = 5.0
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_NUMBERS = (int, float, complex, decimal.Decimal, fractions.Fraction)
_DATES = (datetime.date, datetime.datetime, datetime.timedelta)
_DATA = (bool, str, bytes, *_NUMBERS, *_DATES)
_SCALES = (1, 3, 10**6, 10**9)  # Some objects can be made of small numbers only, such as a month.


def says_of_similar(one: Any, other: Any, made: Callable[[Any], Optional[Made]]) -> Optional[List[bool]]:
    """Whether an object says that it equals another one, and then whether it says so of similar ones.

    Args:
        one: The object.
        other: The other one.
        made: Returns how an object was made, see `how_made`; `None`: that is unknown.

    Returns:
        The answers; `None` if there are none.
    """

    def ask() -> List[bool]:
        pairs = [*itertools.islice(_similar(one, other, made), _COUNT)]
        first = [bool(this == that) for this, that in pairs[:1]]  # Who adapts to what it is compared with has done so.
        return [bool(one == other), *first, *(bool(this == that) for this, that in pairs[1:])]

    found = _in_fork(ask)
    return found if isinstance(found, list) else None


def lists_alike(value: Any) -> bool:
    """Whether the ways of an object to list its items agree, as far as that can be known."""
    return _in_fork(lambda: _lists_alike(value)) is not False


def how_made(kind: Any, args: List[Any], kwargs: Dict[str, Any]) -> Optional[Made]:
    """What is needed to make an object like the one that a class makes of arguments; `None` if they are not data."""
    given = [*args, *kwargs.values()]
    return (kind, *copy.deepcopy((args, kwargs))) if given and all(map(_is_data, given)) else None


class _Nothing:
    """Is in the place of each attribute."""


def unlike(value: Any) -> Any:
    """An object of the same class, of which each attribute is another one; `None` if there is none."""
    try:
        other, names = object.__new__(type(value)), [*_attributes_of(value)]
        for name in names:
            object.__setattr__(other, name, _Nothing())
    except Exception:
        return None
    return other if names else None


def answers_of(one: Any, name: str, place: int, values: List[Any]) -> Tuple[Any, List[bool]]:
    """What a special method of an object gives for the value at a place, and whether it says yes to each other one.

    Its exceptions count only for the value at that place: a class may rely on what it is asked about.
    """
    found, said = None, [False] * len(values)
    for number, each in enumerate(values):
        try:
            answer = getattr(type(one), name)(one, each)
            if number == place:
                found = answer
            else:
                said[number] = answer is not NotImplemented and bool(answer)
        except Exception:
            if number == place:
                raise
    return found, said


def _attributes_of(value: Any) -> Dict[str, Any]:
    """The attributes that an object has itself."""
    slots = [vars(each).get("__slots__", ()) for each in type(value).__mro__]
    names = {name for each in slots for name in ([each] if isinstance(each, str) else each)}
    names = {name for name in names if hasattr(value, name)}.union(getattr(value, "__dict__", ()))
    return {name: getattr(value, name) for name in names.difference(("__dict__", "__weakref__"))}


def _is_data(value: Any) -> bool:
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return len(value) <= _MOST_ITEMS and all(map(_is_data, value))
    if kind is dict:
        return len(value) <= _MOST_ITEMS and all(map(_is_data, value.values()))
    return value is None or kind in _DATA


def _similar(one: Any, other: Any, made: Callable[[Any], Optional[Made]]) -> Iterator[Tuple[Any, Any]]:
    """Pairs with an object that is like one of two, but another one."""
    how, is_other = made(other), True
    if how is None:
        how, is_other = made(one), made(one) is None
    for number in range(2 * _COUNT):
        changes = _Changes(number)
        if how is None:
            found = changes.of(other)
        else:
            args, kwargs = (
                [changes.of(each) for each in how[1]],
                {key: changes.of(each) for key, each in how[2].items()},
            )
            try:
                found = how[0](*args, **kwargs)
            except Exception:  # It may check what it is given.
                continue
        if not changes.are_whole:
            return
        yield (one, found) if is_other else (found, other)


class _Changes:
    """Makes values that are like others, but not the same."""

    def __init__(self, number: int) -> None:
        self._scale = _SCALES[number % len(_SCALES)]
        self._sign = 1 if number // len(_SCALES) % 2 else -1
        self.are_whole = True  # Whether all that is in them is changed.

    def of(self, value: Any, depth: int = 0) -> Any:
        """A value like this one."""
        kind = type(value)
        if kind is bool:
            return not value
        if kind in _NUMBERS:
            number = self._sign * random.randint(1, self._scale)
            return value + number if value + number != value else kind(number)  # Infinity remains what it is.
        if kind is str or kind is bytes:
            more = "".join(random.choice(_LETTERS) for _ in range(8))
            return value + (more if kind is str else more.encode())
        if kind in _DATES:
            return value + datetime.timedelta(random.randint(1, 300))
        if kind in (list, tuple, set, frozenset) and depth < _DEEPEST:
            return kind([self.of(each, depth + 1) for each in value] or [random.randint(1, self._scale)])
        if kind is dict and value and depth < _DEEPEST:
            return {key: self.of(each, depth + 1) for key, each in value.items()}
        try:
            found, attributes = object.__new__(kind), _attributes_of(value)
            self.are_whole = self.are_whole and bool(attributes) and depth < _DEEPEST
            for name, each in attributes.items() if self.are_whole else ():
                object.__setattr__(found, name, self.of(each, depth + 1))
        except Exception:
            self.are_whole = False
        return found if self.are_whole else value


def _lists_alike(value: Any) -> Optional[bool]:
    """Whether what an object lists is the same in all ways; `None` if that cannot be known."""
    items = [*itertools.islice(value, _MOST_ITEMS + 1)]
    if len(items) > _MOST_ITEMS:
        return None
    if hasattr(type(value), "__len__") and len(value) != len(items):
        return False
    if hasattr(value, "keys") or not hasattr(type(value), "__getitem__"):
        return True
    others = []
    for place in range(len(items)):
        try:
            others.append(value[place])
        except Exception:  # It may want something else than a number.
            return None
    return _text_of(items) == _text_of(others)


def _text_of(items: List[Any]) -> str:
    encoder = ValueEncoder(10 * _MOST_ITEMS, 10**6)
    return json.dumps(encoder.encode(items))


def _in_fork(work: Callable[[], Any]) -> Any:
    """What work returns in a fork, as JSON; `None` if it raises an exception or does not end."""
    try:
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # There may be threads, which the fork does not have.
            pid = os.fork()
    except OSError:
        return None
    if not pid:
        try:
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        text = os.read(reader, _MOST_BYTES) if poll.poll(1000 * _SECONDS) else b""
    finally:
        os.close(reader)
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return json.loads(text) if text else None
