"""Types of host functions that JSON does not know: how they cross the wall, and what a model is told of them."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import pathlib
import uuid
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pytest
from autogen_core import CancellationToken
from autogen_core.tools import FunctionTool
from pydantic import BaseModel, Field

from coderoom.sandbox import Limits, Sandbox, host_functions

from .offered import error_of, run, value_of


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(limits=Limits(wall_seconds=20)) as sandbox:
        yield sandbox


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Item(BaseModel):
    name: str
    n: int = Field(default=1, description="how many", ge=1)


@dataclasses.dataclass
class Order:
    items: list[Item]
    day: datetime.date
    color: Color = Color.RED


class Flight(TypedDict):
    code: str
    seats: int


class Opaque:
    pass


def kind(value: object) -> str:
    return f"{type(value).__name__} {value}"


async def told(function: Any) -> str:
    [found] = await host_functions([function])
    return found.describe()


def same(annotation: Any) -> Callable[..., str]:
    """A function that says what it got for an argument of that type."""

    def say(value: Any) -> str:
        return kind(value)

    say.__annotations__["value"] = annotation
    return say


class TestArguments:
    @pytest.mark.parametrize(
        ("annotation", "argument", "arrives"),
        [
            (datetime.date, "datetime.date(2024, 5, 31)", "date 2024-05-31"),
            (datetime.date, "'2024-05-31'", "date 2024-05-31"),
            (datetime.datetime, "datetime.datetime(2024, 5, 31, 12)", "datetime 2024-05-31 12:00:00"),
            (datetime.time, "datetime.time(12, 30)", "time 12:30:00"),
            (datetime.timedelta, "datetime.timedelta(days=-1, microseconds=5)", "timedelta -1 day, 0:00:00.000005"),
            (Decimal, "decimal.Decimal('1.50')", "Decimal 1.50"),
            (pathlib.Path, "pathlib.Path('/a/b')", "PosixPath /a/b"),
            (uuid.UUID, "uuid.UUID(int=7)", "UUID 00000000-0000-0000-0000-000000000007"),
            (Color, "Own.RED", "Color Color.RED"),
            (Color, "'red'", "Color Color.RED"),
            (int, "Number()", "int 3"),
            (Item, "{'name': 'x'}", "Item name='x' n=1"),
            (Item, "Mine('x', 2)", "Item name='x' n=2"),
            (list[datetime.date], "[datetime.date(2024, 5, 31)]", "list [datetime.date(2024, 5, 31)]"),
            (dict[str, Decimal], "{'a': decimal.Decimal(1)}", "dict {'a': Decimal('1')}"),
        ],
    )
    async def test_they_arrive_as_the_annotation_says(
        self, sandbox: Sandbox, annotation: Any, argument: str, arrives: str
    ) -> None:
        code = (
            "import dataclasses, datetime, decimal, enum, pathlib, uuid\nOwn = enum.Enum('Own', {'RED': 'red'})\n"
            "class generic:\n    def item(self): return 3\ngeneric.__module__ = 'numpy'\nclass Number(generic): pass\n"
            f"@dataclasses.dataclass\nclass Mine:\n    name: str\n    n: int\nsay({argument})"
        )
        assert await value_of(sandbox, code, same(annotation)) == arrives

    async def test_scalars_of_numpy(self, sandbox: Sandbox) -> None:
        pytest.importorskip("numpy")
        code = "import numpy as np\n[say(np.int64(3)), say(np.float32(1.5)), say([np.bool_(True)])]"
        assert await value_of(sandbox, code, same(Any)) == ["int 3", "float 1.5", "list [True]"]
        result = await run(sandbox, "import numpy as np\nsay(np.timedelta64(3, 'D'))", same(Any))
        assert "is or holds a timedelta64" in error_of(result)[1]

    async def test_what_holds_itself_ends(self, sandbox: Sandbox) -> None:
        code = "import datetime\nloop = [datetime.date(2024, 1, 1)]\nloop += [loop, loop]\nsay(loop)"
        assert error_of(await run(sandbox, code, same(Any)))[0] == "TypeError"

    @pytest.mark.parametrize("odd", ["NoSuchType", Callable[[int], "NoSuchType"], Opaque, 3], ids=str)  # noqa: F821
    async def test_one_odd_annotation_leaves_the_others_checked(self, sandbox: Sandbox, odd: Any) -> None:
        def take(number: int, other: Any = None) -> str:
            return kind(number)

        take.__annotations__["other"] = odd
        for function in (take, functools.partial(take)):
            assert "number: Input should be a valid integer" in error_of(await run(sandbox, "take('x')", function))[1]
            assert await value_of(sandbox, "take('3')", function) == "int 3"

    async def test_typed_dicts(self, sandbox: Sandbox) -> None:
        def book(number: int, flight: Flight, others: list[Flight]) -> Flight:
            return {**flight, "seats": flight["seats"] - number - len(others)}

        code = "book('1', {'code': 'X', 'seats': '5'}, [])"
        assert await value_of(sandbox, code, book) == {"code": "X", "seats": 4}
        for code, why in (
            ("book('x', {'code': 'X', 'seats': 5}, [])", "number: "),
            ("book(1, {'code': 'X'}, [])", "flight.seats: Field required"),
            ("book(1, {'code': 'X', 'seats': 5}, [{}])", "others.0.code: Field required"),
        ):
            assert why in error_of(await run(sandbox, code, book))[1]
        assert "flight: {'code': str, 'seats': int}" in await told(book)

    async def test_a_partial_is_checked_too(self, sandbox: Sandbox) -> None:
        def add(a: int, b: int) -> int:
            return a + b

        assert (
            "a: Input should be a valid integer"
            in error_of(await run(sandbox, "add('x')", functools.partial(add, b=1)))[1]
        )


class TestResults:
    @pytest.mark.parametrize(
        ("value", "data"),
        [
            (datetime.date(2024, 5, 31), "2024-05-31"),
            ([datetime.datetime(2024, 5, 31, 12)], ["2024-05-31T12:00:00"]),  # noqa: DTZ001
            ({"a": Decimal("1.50")}, {"a": "1.50"}),
            (Color.BLUE, "blue"),
            (Level.LOW, 1),
            ((pathlib.Path("/a"), uuid.UUID(int=7)), ["/a", "00000000-0000-0000-0000-000000000007"]),
            ([Item(name="a")], [{"name": "a", "n": 1}]),
            ({"x": (Item(name="a"), 1)}, {"x": [{"name": "a", "n": 1}, 1]}),
            (
                Order([Item(name="a", n=2)], datetime.date(2024, 5, 31)),
                {"items": [{"name": "a", "n": 2}], "day": "2024-05-31", "color": "red"},
            ),
            ([[Order([], datetime.date(2024, 5, 31))]], [[{"items": [], "day": "2024-05-31", "color": "red"}]]),
        ],
    )
    async def test_they_are_data(self, sandbox: Sandbox, value: Any, data: Any) -> None:
        def give() -> Any:
            return value

        async def give_later() -> Any:
            return value

        assert await value_of(sandbox, "[give(), await give_later()]", give, give_later) == [data, data]

    async def test_an_annotation_says_how(self, sandbox: Sandbox) -> None:
        def words() -> set[str]:
            return {"a"}

        def raw() -> bytes:
            return b"text"

        def wrong() -> bytes:
            return b"\xff"

        assert await value_of(sandbox, "[words(), raw()]", words, raw) == [["a"], "text"]
        kind, why = error_of(await run(sandbox, "wrong()", wrong))
        assert (kind, "its result cannot be made data" in why) == ("TypeError", True)


class TestWhatAModelIsTold:
    async def test_models_data_classes_and_dates(self) -> None:
        def buy(item: Item, day: datetime.date, orders: list[Order] | None = None) -> Order:
            """Buy it.

            At once.
            """
            raise AssertionError

        assert await told(buy) == (
            "def buy(item: dict, day: str, orders: list[Order] | None = None) -> dict:\n"
            '    """Buy it.\n\n    At once.\n\n'
            "    item: {'name': str, 'n': int = 1 (how many; at least 1)}\n"
            "    day: a date as ISO text, such as '2024-05-31'\n"
            "    Order: a dict {'items': list[Item], 'day': str (a date as ISO text, such as '2024-05-31'), "
            "'color': Literal['red', 'blue'] = 'red'}\n"
            "    Item: a dict {'name': str, 'n': int = 1 (how many; at least 1)}\n"
            "    returns: {'items': list[Item], 'day': str (a date as ISO text, such as '2024-05-31'), "
            "'color': Literal['red', 'blue'] = 'red'}\n"
            '    """'
        )

    async def test_defaults_are_what_could_be_passed(self, sandbox: Sandbox) -> None:
        def paint(
            color: Color = Color.RED,
            day: datetime.date = datetime.date(2024, 5, 1),
            size: int = Field(default=3, description="in metres"),
            what: Any = Opaque(),  # noqa: B008
        ) -> str:
            return f"{color} {day} {size}"

        shown = await told(paint)
        head = "color: Literal['red', 'blue'] = 'red', day: str = '2024-05-01', size: int = 3, what: Any = ..."
        assert f"def paint({head}) -> str:" in shown
        assert "size: in metres" in shown
        code = "import inspect\n[paint(), paint('blue', '2024-01-01'), str(inspect.signature(paint))]"
        first, second, signature = await value_of(sandbox, code, paint)
        assert (first.split(), second) == (["Color.RED", "2024-05-01", "3"], "Color.BLUE 2024-01-01 3")
        assert "= 'red'" in signature
        assert "size: int = 3" in signature

    async def test_descriptions(self, sandbox: Sandbox) -> None:
        def book(
            when: Annotated[str, "never in the past"],
            seats: Annotated[int, Field(description="how many", ge=1, le=9)] = 1,
        ) -> str:
            """Book."""
            return when

        tool = FunctionTool(same_with_words, "Say it.", name="say")
        assert await told(book) == (
            'def book(when: str, seats: int = 1) -> str:\n    """Book.\n\n    when: never in the past\n'
            '    seats: how many; at least 1; at most 9\n    """'
        )
        assert "text: what to say" in await told(tool)
        signature, doc = await value_of(sandbox, "import inspect\n[str(inspect.signature(book)), book.__doc__]", book)
        assert signature == "(when: str, seats: int = 1) -> str"
        assert "seats: how many" in doc

    async def test_what_has_no_json_form_is_told_by_its_name(self) -> None:
        def take(number: int, other: Opaque) -> Opaque:
            return other

        assert "def take(number: int, other: Opaque) -> Opaque:" in await told(take)


def same_with_words(text: Annotated[str, "what to say"]) -> str:
    return text


class TestOddFunctions:
    async def test_partials_with_names_of_their_own(self, sandbox: Sandbox) -> None:
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        one, two = functools.partial(add, 1), functools.partial(add, 2)
        one.__name__, two.__name__ = "add_one", "add_two"  # type: ignore[attr-defined]
        assert await value_of(sandbox, "[add_one(1), add_two(1), add_two.__doc__]", one, two) == [2, 3, "Add."]

    async def test_an_async_function_behind_a_plain_one_is_awaited(self, sandbox: Sandbox) -> None:
        async def base(a: int) -> int:
            if a < 0:
                raise ValueError("negative")
            return a + 1

        @functools.wraps(base)
        def wrapped(a: int) -> Any:
            return base(a)

        assert await value_of(sandbox, "base(1)", wrapped) == 2
        assert error_of(await run(sandbox, "base(-1)", wrapped)) == ("ValueError", "negative")

    @pytest.mark.parametrize("as_tool", [False, True])
    async def test_a_cancellation_token_is_given_and_not_asked_for(self, sandbox: Sandbox, as_tool: bool) -> None:
        function = FunctionTool(waits, "Wait.") if as_tool else waits
        assert "cancellation_token" not in await told(function)
        assert await value_of(sandbox, "await waits(1, 2)", function) == "1 False 2"
        assert "cancellation_token" in error_of(await run(sandbox, "await waits(1, cancellation_token=2)", function))[1]


async def waits(a: int, cancellation_token: CancellationToken, b: int = 0) -> str:
    return f"{a} {cancellation_token.is_cancelled()} {b}"
