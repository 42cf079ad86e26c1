"""Functions as agents have them, and code of models for them: calls that are wrong, and right ones that look odd."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, field_validator

called: list[str] = []
"""The functions that were called."""


class Guest(BaseModel):
    name: str
    age: int = 30

    @field_validator("name")
    @classmethod
    def _has_a_room(cls, name: str) -> str:
        if name == "Nobody":
            raise ValueError("the house is full")
        return name


def get_weather(city: str, days: int = 3, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, Any]:
    called.append("get_weather")
    return {"city": city, "days": days, "unit": unit}


async def send_email(to: str, subject: str, body: str = "", urgent: bool = False) -> str:
    called.append("send_email")
    return f"sent to {to}"


async def search_web(query: str, limit: int = 10) -> list[dict[str, str]]:
    called.append("search_web")
    return [{"title": query, "url": "https://example.org"}][:limit]


def read_rows(table: str, *, where: dict[str, Any] | None = None, limit: int | None = None) -> list[dict[str, Any]]:
    called.append("read_rows")
    return [{"id": 1, "table": table}]


def delete_rows(table: str, ids: list[int]) -> int:
    called.append("delete_rows")
    return len(ids)


async def transfer(source: str, target: str, amount: float, note: str | None = None) -> dict[str, Any]:
    called.append("transfer")
    return {"amount": amount}


def book_room(guest: Guest, arrival: date, nights: int = 1) -> dict[str, Any]:
    called.append("book_room")
    return {"guest": guest.name, "nights": nights}


def set_light(room: str, on: bool, brightness: float = 1.0) -> None:
    called.append("set_light")


def label_issue(number: int, labels: list[str], color: str | None = None) -> None:
    called.append("label_issue")


def average(*values: float) -> float:
    called.append("average")
    return sum(values) / len(values)


FUNCTIONS: list[Callable[..., Any]] = [
    *(
        get_weather,
        send_email,
        search_web,
        read_rows,
        delete_rows,
        transfer,
        book_room,
        set_light,
        label_issue,
        average,
    ),
]

WRONG = (
    # Missing arguments.
    "get_weather()",
    "await send_email('a@example.org')",
    "rows = read_rows('users')\ndelete_rows('users')",
    "for city in ['Oslo', 'Rome']:\n    report = get_weather(days=2)\n    print(report)",
    "await transfer('checking', 'savings')",
    "print(book_room({'name': 'Ann'}, nights=2))",
    "async def main():\n    await send_email(subject='Hi', body='Hello')\nawait main()",
    "set_light('kitchen')",
    # Unexpected ones.
    "get_weather('Oslo', day=3)",
    "await send_email('a@example.org', 'Hi', text='Hello')",
    "found = await search_web('python', max_results=5)",
    "rows = read_rows('users', 5)",
    "read_rows('users', filter={'id': 1})",
    "await transfer('a', 'b', 10.0, 'rent', True)",
    "try:\n    set_light('hall', True, color='red')\nexcept Exception as error:\n    print(error)",
    "delete_rows(table='users', ids=[1], force=True)",
    "total = average(1, 2, 3, weights=[1, 1, 2])",
    "def notify(city):\n    report = get_weather(city, units='celsius')\n    return report\nprint(notify('Oslo'))",
    # Literals of wrong types.
    "get_weather('Oslo', days='5')",
    "get_weather('Oslo', unit='kelvin')",
    "get_weather(['Oslo', 'Rome'])",
    "days = 'three'\nget_weather('Oslo', days=days)",
    "await search_web('python', limit='many')",
    "await transfer('a', 'b', '100 EUR')",
    "delete_rows('users', 7)",
    "delete_rows('users', ['a', 'b'])",
    "set_light('hall', 'on')",
    "label_issue(12, 'bug')",
    "label_issue('#12', ['bug'])",
    "await send_email('a@example.org', None)",
    "book_room('Ann', '2026-05-01', nights='two')",
    "book_room({'name': 'Ann', 'age': 'old'}, '2026-05-01')",
    "book_room({'name': 'Ann'}, 'tomorrow')",
    "read_rows('users', where={1: 2})",
    # Without `await`, or with one too many.
    "send_email('a@example.org', 'Hi')",
    "results = search_web('python')\nfor each in results:\n    print(each['title'])",
    "print(search_web('python')[0])",
    "receipt = transfer('a', 'b', 5.0)\nprint(f\"paid {receipt['amount']}\")",
    "weather = await get_weather('Oslo')",
    "async def own(city):\n    return [get_weather(city)]\nfor each in own('Oslo'):\n    print(each)",
    # Functions that are nowhere defined.
    "get_wether('Oslo')",
    "rows = read_rows('users')\narchive_rows(rows)",
    "functions.set_light('hall', True)",
    "await send_mail('a@example.org', 'Hi')",
    "pritn(get_weather('Oslo'))",
)
RIGHT = (
    "get_weather('Oslo', 5, unit='fahrenheit')",
    "import asyncio\nawait asyncio.gather(*(send_email(to, 'Hi') for to in ['a', 'b']))",
    "pending = search_web('python')\nfound = await pending\nprint(found[0]['title'])",
    "options = {'where': None, 'limit': 5}\nread_rows('users', **options)",
    "delete_rows('users', (1, 2))\ndelete_rows('users', [row['id'] for row in read_rows('users')])",
    "await transfer('a', 'b', 5, note=None)",
    "book_room({'name': 'Ann', 'age': 41}, '2026-05-01', nights=2.0)",
    "try:\n    book_room({'name': 'Nobody'}, '2026-05-01')\nexcept Exception:\n    print('no room')",
    "def unused():\n    book_room({'age': 3}, 'tomorrow')\nset_light('hall', 1, brightness=True)",
    "label_issue(12, ['bug'], color=None)",
    "average(*[1, 2, 3])",
    "try:\n    get_weather()\nexcept TypeError as error:\n    print('as expected:', error)",
    "try:\n    show_map('Oslo')\nexcept NameError:\n    print('no map')",
    "if 'show_map' in globals():\n    show_map('Oslo')",
    "async def own(city):\n    yield get_weather(city)\nprint([each async for each in own('Oslo')], own('Rome'))",
    "def later():\n    return draw_chart()\nprint(get_weather('Oslo'))",
    "def area(shape):\n    return shape ** 2 if isinstance(shape, int) else unknown_shape(shape)\nprint(area(5))",
    "import functools\n@functools.cache\ndef later_too():\n    return draw_chart()\ndraw = lambda: draw_chart()",
    "class P:\n    def __init__(self):\n        draw_map()\n    def get(self):\n        draw_map()\nprint({}.get(1))",
    "class Chart:\n    def show(self):\n        draw_chart()\nprint(Chart().__class__.__name__)",
    "def deal():\n    return draw_card()\ngames = {'poker': deal}",
    "def shift(x):\n    return x\ndef shift_all(rows):\n    return [shift(row, 2) for row in rows]",
    "def cached(function):\n    return lambda *args: 5\n@cached\ndef report(city): ...\nprint(report(1, 2))",
    "get_weather = lambda: 'mine'\nprint(get_weather())",
    "print(get_weather())",  # It is the one of the cell before.
)
# After each of these, any name may be bound.
OPENING = (
    "exec('def made(x):\\n    return x')\nprint(made(1))",
    "from math import *\nprint(sqrt(16))",
    "open('mine.py', 'w').write('def found(): return 5')\nfrom mine import *\nprint(found())",
)
