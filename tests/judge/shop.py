"""Code whose tests run in another process: see `test_apart.py`."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import datetime
import enum
import functools
import inspect
import io
import ipaddress
import logging
import os
import re
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import (  # noqa: UP035
    Annotated,
    Any,
    Generic,
    List,
    Optional,
    Protocol,
    Tuple,
    TypeVar,
    get_type_hints,
    runtime_checkable,
)

LIMIT = 42
OPEN = {"mon": [9]}


class NoStockError(ValueError):
    def __init__(self, item: str, left: int) -> None:
        super().__init__(f"{left} of {item} left")
        self.left = left


class Kind(enum.Enum):
    FRUIT = 1
    TOOL = 2


@dataclasses.dataclass(order=True)
class Price:
    cents: int
    note: str = ""

    def __add__(self, other: Price) -> Price:
        return Price(self.cents + other.cents)

    def __mul__(self, count: int) -> Price:
        return Price(self.cents * count)


class Basket:
    made = 0

    def __init__(self, *items: str) -> None:
        self.items = list(items)
        Basket.made += 1

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[str]:
        return iter(self.items)

    def __getitem__(self, index: int) -> str:
        return self.items[index]

    def __eq__(self, other: object) -> bool:
        return self.items == other.items  # type: ignore[attr-defined, no-any-return]

    __hash__ = None  # type: ignore[assignment]

    def __enter__(self) -> Basket:
        return self

    def __exit__(self, *error: object) -> bool:
        self.items.append(type(error[1]).__name__)
        return True

    @property
    def first(self) -> str:
        return self.items[0]

    @classmethod
    def of(cls, text: str) -> Basket:
        return cls(*text.split())


class Stack(list[int]):
    def peek(self) -> int:
        return self[-1]


def take(stock: dict[str, int], item: str) -> dict[str, int]:
    if not stock.get(item):
        raise NoStockError(item, 0)
    stock[item] -= 1
    return stock


def extend_first(lists: list[list[int]]) -> list[int]:
    lists[0].append(9)
    return lists[0]


def countdown(start: int) -> Iterator[int]:
    while start:
        yield start
        start -= 1


def tally() -> Callable[[], int]:
    count = 0

    def add() -> int:
        nonlocal count
        count += 1
        return count

    return add


def each(function: Callable[[Any], Any], *items: Any) -> list[Any]:
    return [function(item) for item in items]


async def later(value: int) -> int:
    await asyncio.sleep(0)
    return value * 2


def stack() -> Stack:
    return Stack([1, 2])


def groups() -> collections.defaultdict[str, list[int]]:
    return collections.defaultdict(list, a=[1])


def keys() -> Any:
    return {"a": 1}.keys()


def divide(a: float, b: float) -> float:
    return a / b


def name_of(thing: Any) -> Any:
    return thing.name.upper()


def secret_of(function: Any) -> Any:
    return function.__globals__


class Yes:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __sub__(self, other: object) -> int:
        return 0

    def __lt__(self, other: object) -> bool:
        return True

    def __contains__(self, item: object) -> bool:
        return True

    def startswith(self, text: str) -> bool:
        return True


def yes() -> Yes:
    return Yes()


def greet() -> None:
    print("Hello,", input())  # noqa: T201


def lines_of(file: Any) -> list[str]:
    with open(file) as lines:  # noqa: PTH123
        return lines.read().split()


class Notes:
    """Texts in files of a folder, by name."""

    def __init__(self, folder: Any) -> None:
        self.folder = Path(folder)

    def __setitem__(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def __getitem__(self, name: str) -> str:
        return (self.folder / name).read_text()

    def __delitem__(self, name: str) -> None:
        (self.folder / name).unlink()


def shout(file: Any) -> Path:
    path = Path(file() if callable(file) else file)
    path.write_text(path.read_text().upper())
    return path


def note_of_environment() -> str:
    return Path(os.environ["SHOP_NOTE"]).read_text()


class Shelf:
    """Keeps things."""

    def __init__(self, things: list[int]) -> None:
        self.things = list(things)

    def put(self, thing: int) -> None:
        self.things.append(thing)

    def worth(self) -> int:
        return sum(self.things) + self.bonus()

    def bonus(self) -> int:
        return 0

    def __len__(self) -> int:
        return len(self.things)


def with_name(name: str, value: int = 0) -> list[Any]:
    return [name, value, sys.argv[1:]]


def find(pattern: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE) if not isinstance(pattern, re.Pattern) else pattern


def address(text: str) -> Any:
    return ipaddress.ip_address(text)


def complain() -> str | None:
    warnings.warn("old", DeprecationWarning, stacklevel=2)
    logging.getLogger("shop").info("hi %s", 3)
    return os.environ.get("SHOP")


def parameters_of(function: Any) -> list[str]:
    return [*inspect.signature(function).parameters, str(inspect.iscoroutinefunction(function))]


def worth(shelf: Shelf) -> int:
    return shelf.worth()


def captured(function: Callable[[], Any]) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        function()
    return text.getvalue()


def wait(seconds: float) -> str:
    time.sleep(seconds)
    os.environ["SHOP_WAITED"] = str(seconds)
    return os.urandom(2).hex()


class Till:
    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def add(self, note: Any) -> None:
        self.notes.append(note)


class Lazy:
    """A property whose value is kept in the object."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        kept = owner.__dict__
        if f"_{self.name}" not in kept:
            kept[f"_{self.name}"] = self.function(owner)
        return kept[f"_{self.name}"]

    def __set__(self, owner: Any, value: Any) -> None:
        owner.__dict__[f"_{self.name}"] = value


def memoized(cache: dict[Any, Any]) -> Any:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def found(*args: Any, **kwargs: Any) -> Any:
            if args[-1] not in cache:
                cache[args[-1]] = function(*args, **kwargs)
            return cache[args[-1]]

        found.cache = cache  # type: ignore[attr-defined]
        return found

    return decorate


class Where:
    """What a thing has to be; compared with data, it becomes a question."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> Any:
        return _Question(lambda thing: thing[self.name] == other)

    def __ne__(self, other: object) -> Any:
        return _Question(lambda thing: thing[self.name] != other)

    def __lt__(self, other: int) -> Any:
        return _Question(lambda thing: thing[self.name] < other)

    __hash__ = object.__hash__


class _Question:
    def __init__(self, function: Any) -> None:
        self.holds_for = function

    def all(self) -> bool:
        return True


def marked(function: Any) -> Any:
    function.is_hook = True
    return function


def is_text_file(file: Any) -> bool:
    return isinstance(file, io.TextIOBase)


def is_marked(function: Any) -> bool:
    return getattr(function, "is_hook", False)


@runtime_checkable
class Speaks(Protocol):
    def speak(self) -> str: ...


def hear(one: Any) -> str:
    return one.speak() if isinstance(one, Speaks) else "silence"


class Summer(datetime.tzinfo):
    """Two hours ahead in summer, and one in winter."""

    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=1) + self.dst(moment)

    def dst(self, moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=moment is not None and 3 < moment.month < 11)

    def tzname(self, moment: datetime.datetime | None) -> str:
        return "summer" if self.dst(moment) else "winter"


SUMMER = Summer()


def noon(zone: datetime.tzinfo | None) -> datetime.datetime:
    return datetime.datetime(2024, 7, 1, 12, tzinfo=zone)


T = TypeVar("T")


class Box(Generic[T]): ...


Table = dict[str, int | None]
Counts = Optional[Table]  # noqa: UP045
Boxes = Box[int]
Plain = List, Optional, Tuple[()], Any, Annotated[int, "more"]  # noqa: UP006


class Named:
    name = "lost"

    def shout(self) -> str:
        return self.name.upper()


class LostError(Named, NoStockError): ...


def lose() -> None:
    raise LostError("nut", 0)


class ClosedError(OSError): ...


def reopen() -> None:
    raise ClosedError("the shop is closed")


def coloured(text: str) -> str:
    is_terminal = os.isatty(sys.stdout.fileno()) if os.environ.get("TERM") != "dumb" else False
    return f"<{text}>" if is_terminal and sys.stdout.isatty() else text


class Label(str):
    def shout(self) -> str:
        return f"{self.upper()}!"

    def title(self) -> str:
        return f"The {self}"


class Colour(enum.StrEnum):
    RED = "red"


def from_dict(kind: Any, found: dict[str, Any]) -> Any:
    hints = get_type_hints(kind)
    given = {
        each.name: from_dict(hints[each.name], found[each.name])
        if dataclasses.is_dataclass(hints[each.name])
        else found[each.name]
        for each in dataclasses.fields(kind)
        if each.init and each.name in found
    }
    return kind(**given)


def defaults(kind: Any) -> dict[str, Any]:
    found = dataclasses.fields(kind)
    return {each.name: each.default for each in found if each.default is not dataclasses.MISSING}


def retried(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any) -> Any:
        with contextlib.suppress(ValueError):
            return await function(*args)
        await asyncio.sleep(0)
        return await function(*args)

    return call


async def together(*work: Any) -> list[Any]:
    return await asyncio.gather(*work)


class Cached:
    """Keeps what a method returns in the object, under the name of the method."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        found = owner.__dict__[self.function.__name__] = self.function(owner)
        return found


class _HasPrice(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return hasattr(value, "price")

    def __subclasscheck__(cls, kind: type) -> bool:
        return "price" in vars(kind)


class Priced(metaclass=_HasPrice):
    """Whatever has a price."""


class Gift:
    price = 0


class Positive:
    """An attribute that is kept in a private one."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return getattr(owner, self.name)

    def __set__(self, owner: Any, value: int) -> None:
        if value <= 0:
            raise ValueError("it must be positive")
        setattr(owner, self.name, value)


living: weakref.WeakValueDictionary[str, Gift] = weakref.WeakValueDictionary()


def layers() -> list[Any]:
    return [collections.ChainMap({"nut": 1}, {"fig": 2}), collections.UserDict(nut=1), collections.UserList([1])]


def variable(name: str) -> str | None:
    return os.environ.get(name)
