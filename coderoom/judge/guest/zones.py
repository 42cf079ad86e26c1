"""Zones of time of the code, in the process of the tests.

Whether two times are equal depends on what their zones say, so a zone could say what makes them equal. So it is asked
about times around the one that is wanted first, before it can know that one: a zone changes seldom, and by an hour or
two. What it has said counts from then on.
"""

from __future__ import annotations

import contextlib
import datetime
import random

from .stand_ins import StandIn

TYPE_CHECKING = False
if TYPE_CHECKING:  # In a new process, importing `typing` would take long.
    from typing import Any, Callable, Dict, Iterator, List, Tuple

__all__ = ["OF_ZONES", "ask_zone", "of_zone"]

OF_ZONES = ("utcoffset", "dst", "tzname", "fromutc")
_FAR = 36 * 60 * 60
_MOST_CHANGE = datetime.timedelta(hours=3)
_said: Dict[Tuple[int, str, Any, int], Any] = {}


def of_zone(name: str) -> Callable[[Any, Any], Any]:
    """The method of a mirror of a class of zones."""

    def method(self: Any, moment: Any) -> Any:
        ask = StandIn.__getattr__(self, name)
        if self._cr_peer.is_trusted:
            return ask(moment)
        plain = None if moment is None else moment.replace(tzinfo=None)
        key = object.__getattribute__(self, "_cr_number"), name, plain, getattr(moment, "fold", 0)
        if key not in _said:
            _said[key] = ask(moment) if name != "utcoffset" or moment is None else _offset(self, moment, ask)
        return _said[key]

    return method


def ask_zone(value: Any) -> Any:
    """Let the zone of a time that comes from the code say its offset, before it can know what that is compared with."""
    if isinstance(value.tzinfo, StandIn):
        with contextlib.suppress(Exception):
            value.utcoffset()
    return value


def _offset(zone: Any, moment: Any, ask: Callable[[Any], Any]) -> Any:
    """What a zone says of a moment, if that fits to what it says of others."""
    found: List[Tuple[Any, Any]] = []
    near = [moment, *_near(moment)]
    random.shuffle(near)
    for each in [*_far(moment), *near]:
        try:
            found.append((each, ask(each)))
        except Exception:
            if each is moment:
                raise
    offsets = [offset for _, offset in sorted(found, key=lambda pair: pair[0].replace(tzinfo=None))]
    pairs = zip(offsets, offsets[1:])  # noqa: B905, RUF007 (Python 3.8)
    changes = [(one, other) for one, other in pairs if one != other]
    is_delta = all(type(each) is datetime.timedelta for pair in changes for each in pair)
    if len(changes) > 1 or not is_delta or any(abs(one - other) > _MOST_CHANGE for one, other in changes):
        raise zone._cr_peer.lost("a zone of %s says other offsets again and again" % type(zone).__name__)
    return next(offset for each, offset in found if each is moment)


def _far(moment: Any) -> Iterator[Any]:
    """Moments before and after, which do not tell the one in the middle."""
    signs = [1, -1] * 3
    random.shuffle(signs)
    for sign in signs:
        yield from _moved(moment, seconds=sign * random.randint(1, _FAR), microseconds=random.randrange(10**6))


def _near(moment: Any) -> Iterator[Any]:
    """Moments that look like it."""
    for sign in (1, -1):
        yield from _moved(moment, hours=sign * random.randint(1, 9))
        yield from _moved(moment, minutes=sign * random.randint(1, 59))
        yield from _moved(moment, seconds=sign * random.randint(1, 59))


def _moved(moment: Any, **by: int) -> Iterator[Any]:
    with contextlib.suppress(OverflowError):
        yield moment + datetime.timedelta(**by)
