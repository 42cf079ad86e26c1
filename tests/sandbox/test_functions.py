"""Functions of the host in a session: what can be offered, how it looks inside, and what crosses the wall."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import math
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import Limits, Sandbox, host_functions

from .offered import add, echo, later, run, value_of


@pytest.fixture(scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(limits=Limits(wall_seconds=20, value_bytes=100_000)) as sandbox:
        yield sandbox


class Point(BaseModel):
    x: int
    y: int = 0


@dataclasses.dataclass
class Pair:
    first: int
    second: list[int]


class TestHowItLooks:
    async def test_signature_and_docstring_are_the_functions_own(self, sandbox: Sandbox) -> None:
        code = (
            "import inspect\n"
            "[str(inspect.signature(add)), inspect.getdoc(add), add.__name__, add.__module__,"
            " inspect.iscoroutinefunction(add), inspect.iscoroutinefunction(later), str(inspect.signature(later)),"
            " inspect.signature(add).parameters['a'].annotation is int, add.__annotations__['return'] is float]"
        )
        assert await value_of(sandbox, code, add, later) == [
            "(a: int, b: int = 2, *, times: float = 1.0) -> float",
            "Add two numbers.\n\nAnd multiply.",
            "add",
            "__main__",
            False,
            True,
            "(text: str) -> str",
            True,
            True,
        ]

    async def test_what_has_no_name_inside_is_shown(self, sandbox: Sandbox) -> None:
        def find(
            pair: Pair,
            /,
            kind: Literal["a", "b"] | None = None,
            *rest: list[int],
            when: datetime.date = datetime.date(2024, 5, 1),
            **more: Annotated[str, "why"],
        ) -> None:
            pass

        signature = await value_of(sandbox, "import inspect\nstr(inspect.signature(find))", find)
        for part in ("pair: ", "/, ", "kind: ", "= None", "*rest: ", "when: ", "= datetime.date(2024, 5, 1)", "**more"):
            assert part in signature
        assert signature.endswith("-> None")

    @pytest.mark.parametrize("name", ["print", "len", "open", "input", "type", "_hidden", "Ärger"])
    async def test_names_of_builtins_are_names_as_well(self, sandbox: Sandbox, name: str) -> None:
        def function(text: str) -> str:
            return text.upper()

        function.__name__ = name
        code = f"import os\nout = {name}('a')\nos.write(1, b'x')\nout"
        assert await value_of(sandbox, code, function) == "A"

    @pytest.mark.parametrize("name", ["class", "None", "two words", "", "__build_class__", "1st", "a.b"])
    def test_what_is_no_name_is_refused(self, name: str) -> None:
        def function() -> None:
            pass

        function.__name__ = name
        with pytest.raises(RequestError, match="cannot be offered"):
            Sandbox().session(functions=[function])

    def test_what_is_no_function_is_refused(self) -> None:
        wrong: list[Any] = [3, "add", None, object(), lambda: 1, functools.partial(lambda: 1)]
        for each in wrong:
            with pytest.raises(RequestError, match="cannot be offered"):
                Sandbox().session(functions=[each])
        with pytest.raises(RequestError, match="must be a list"):
            Sandbox().session(functions=add)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="under the name 'add'"):
            Sandbox().session(functions=[add, functools.partial(add, 1)])

    async def test_what_can_be_called_can_be_offered(self, sandbox: Sandbox) -> None:
        class Counter:
            def __init__(self) -> None:
                self.count = 0

            def count_up(self, by: int = 1) -> int:
                """Count."""
                self.count += by
                return self.count

            @staticmethod
            async def twice(value: int) -> int:
                return value * 2

        counter = Counter()
        code = "[count_up(), count_up(by=5), await twice(4), add(b=1), max([1, 3]), hypot(3, 4), Pair(1, [2])]"
        functions = [counter.count_up, Counter.twice, functools.partial(add, 40), max, math.hypot, Pair]
        value = await value_of(sandbox, code, *functions)
        assert value == [1, 6, 8, 41.0, 3, 5.0, {"first": 1, "second": [2]}]
        assert counter.count == 6

    async def test_as_a_model_is_shown_them(self) -> None:
        shown = [function.describe() for function in await host_functions([add, later, echo])]
        assert shown[0].startswith(
            'def add(a: int, b: int = 2, *, times: float = 1.0) -> float:\n    """Add two numbers.'
        )
        assert shown[1] == 'async def later(text: str) -> str:\n    """Answer a little later."""'


class TestWhatCrosses:
    @pytest.mark.parametrize(
        "value",
        [
            None, True, 0, -1, 2**60, 10**4000, 1.5, 1e308, float("inf"), "", "ä€😀\0\n", "\ud800", [], {}, [[1], [2]],
            {"a": {"": [None]}}, "x" * 90_000, list(range(10_000)),
        ],
        ids=lambda value: repr(value)[:20].encode("ascii", "replace").decode(),
    )  # fmt: skip
    async def test_data_comes_through_as_it_is(self, sandbox: Sandbox, value: Any) -> None:
        assert await value_of(sandbox, f"inf = float('inf')\necho({value!r}) == {value!r}", echo) is True

    async def test_not_a_number_and_tuples(self, sandbox: Sandbox) -> None:
        assert await value_of(sandbox, "n = echo(float('nan'))\n[n != n, echo((1, (2,)))]", echo) == [True, [1, [2]]]

    @pytest.mark.parametrize(
        ("value", "why"),
        [
            ("b'x'", "is or holds a bytes"),
            ("{1}", "is or holds a set"),
            ("[object()]", "is or holds a object"),
            ("{'a': 1j}", "is or holds a complex"),
            ("{1: 2}", "has the key 1, and JSON knows only text as keys"),
            ("echo", "is or holds a function"),
            ("10 ** 5000", "is or holds an integer of 16,610 bits"),
            ("loop", "is nested too deeply"),
        ],
    )
    async def test_arguments_that_are_no_data(self, sandbox: Sandbox, value: str, why: str) -> None:
        async with sandbox.session(functions=[echo]) as session:
            result = await session.run(f"loop = []\nloop.append(loop)\necho(value={value})")
            assert result.error is not None
            assert result.error.type == "TypeError"
            assert f"echo(): argument 'value' {why}" in result.error.message
            assert result.calls == ()
            assert (await session.run("echo(1)")).value == 1

    @pytest.mark.parametrize(
        ("make", "why"),
        [
            (lambda: b"x", "its result is or holds a bytes"),
            (lambda: [{1, 2}], "its result is or holds a set"),
            (lambda: {1: 2}, "its result has the key 1"),
            (lambda: object(), "its result is or holds a object"),
            (lambda: 10**5000, "its result is or holds an integer of 16,610 bits"),
            (lambda: (i for i in "ab"), "its result is or holds a generator"),
        ],
    )
    async def test_results_that_are_no_data(self, sandbox: Sandbox, make: Callable[[], Any], why: str) -> None:
        def give() -> Any:
            return make()

        async def give_later() -> Any:
            return make()

        for call, function in (("give()", give), ("await give_later()", give_later)):
            result = await run(sandbox, call, function)
            assert result.error is not None
            assert result.error.type == "TypeError"
            assert why in result.error.message
            assert result.calls[0].outcome is Outcome.ERROR

    async def test_models_and_data_classes(self, sandbox: Sandbox) -> None:
        def move(point: Point, by: int) -> Point:
            return Point(x=point.x + by, y=point.y)

        def pair() -> Pair:
            return Pair(1, [2])

        assert await value_of(sandbox, "[move({'x': 1}, 2), pair()]", move, pair) == [
            {"x": 3, "y": 0},
            {"first": 1, "second": [2]},
        ]

    @pytest.mark.parametrize("size", [50, 99_000, 200_000])
    async def test_what_is_too_large_is_said(self, sandbox: Sandbox, size: int) -> None:
        def give(count: int) -> str:
            return "x" * count

        result = await run(sandbox, f"len(echo('x' * {size}))", echo)
        assert (result.value == size) == (size < 100_000)
        if size > 100_000:
            assert result.error is not None
            assert result.error.type == "ValueError"
            assert "the arguments have 200,0" in result.error.message
            assert "100,000 may be sent" in result.error.message
        result = await run(sandbox, f"len(give({size}))", give)
        assert (result.value == size) == (size < 100_000)
        if size > 100_000:
            assert result.error is not None
            assert "100,000 may come back" in result.error.message


class TestArguments:
    @pytest.mark.parametrize(
        ("call", "why"),
        [
            ("add()", "missing a required argument: 'a'"),
            ("add(1, 2, 3)", "too many positional arguments"),
            ("add(1, c=2)", "unexpected keyword argument 'c'"),
            ("add(1, a=2)", "multiple values for argument 'a'"),
            ("add('x')", "a: Input should be a valid integer"),
            ("add(1, times=[])", "times: Input should be a valid number"),
            ("add(1, **{'': 1})", "unexpected keyword argument"),
            ("add(1, **{'self': 1, 'args': 2, 'function': 3})", "unexpected keyword argument"),
            ("small(200)", "less than or equal to 100"),
            ("numbers(['x'] * 5000)", "5,000 values in the arguments are of wrong types"),
            ("anything(1)", "too many positional arguments"),
        ],
    )
    async def test_what_does_not_fit_is_a_type_error_and_is_not_run(
        self, sandbox: Sandbox, call: str, why: str
    ) -> None:
        ran: list[Any] = []

        def small(value: Annotated[int, Field(le=100)]) -> None:
            ran.append(value)

        def numbers(values: list[int]) -> None:
            ran.append(values)

        def anything(*, unknown: NoSuchType = None) -> None:  # type: ignore[name-defined] # noqa: F821
            ran.append(unknown)

        result = await run(
            sandbox, f"try: {call}\nexcept TypeError as error: said = str(error)\nsaid", add, small, numbers, anything
        )
        assert result.success, result.output
        assert why in result.value
        assert result.value.startswith(call.partition("(")[0] + "(): ")
        assert ran == []
        assert [(each.outcome, each.error) for each in result.calls] == [
            (Outcome.REJECTED, f"TypeError: {result.value}")
        ]

    async def test_weird_names_reach_a_function_that_takes_any(self, sandbox: Sandbox) -> None:
        def collect(*args: Any, **kwargs: Any) -> list[Any]:
            return [list(args), kwargs]

        code = "collect(1, [2], **{'': 0, 'self': 1, 'a b': 2, 'class': 3, '__init__': 4, 'args': 5, 'kwargs': 6})"
        weird = {"": 0, "self": 1, "a b": 2, "class": 3, "__init__": 4, "args": 5, "kwargs": 6}
        assert await value_of(sandbox, code, collect) == [[1, [2]], weird]
