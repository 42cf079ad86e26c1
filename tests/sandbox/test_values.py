"""The value of a cell: data, or a `repr` that says that it is one."""

from __future__ import annotations

from coderoom.outcome import Outcome
from coderoom.sandbox import Limits, Sandbox, Session

from .places import Place, on_each_engine

pytestmark = on_each_engine

SMALL = Limits(value_bytes=2048)
NESTED = "x = []\nfor _ in range(5000): x = [x]\nx"
VALUES = {
    "'{1, 2}'": ("{1, 2}", True),
    "{1, 2}": ({1, 2}, True),
    "[1, {'a': None}]": ([1, {"a": None}], True),
    "0": (0, True),
    "x = 1": (None, False),
    "None": (None, False),
    "1 / 0": (None, False),
}


async def test_what_holds_itself_or_is_deep_has_a_repr(sandbox: Sandbox) -> None:
    for code in ("d = {}; d['self'] = d; d", "x = []; x.append(x); x", NESTED):
        result = await sandbox.run(code)
        assert (result.outcome, result.error, result.limit) == (Outcome.OK, None, None), result
        assert result.value_repr
        assert (result.value, result.value_is_data) == (result.value_repr, False)


async def test_a_deep_value_takes_nothing_from_a_session(session: Session) -> None:
    assert (await session.run(NESTED)).success
    assert (await session.run("len(x)")).value == 1


async def test_a_repr_is_told_from_data(sandbox: Sandbox) -> None:
    for code, expected in VALUES.items():
        result = await sandbox.run(code)
        assert (result.value, result.value_is_data) == expected, code


async def test_data_that_is_too_large_meets_a_limit(place: Place) -> None:
    async with place.sandbox(limits=SMALL) as sandbox:
        for code in (
            "list(range(5000))",
            "'a' * 5000",
            "{'k': list(range(5000))}",
            "set(range(5000))",
            "(b'a' * 5000,)",
        ):
            result = await sandbox.run(code)
            assert (result.outcome, result.limit, result.value_is_data) == (Outcome.OK, "value", False)
            assert result.value == result.value_repr
            assert not result.truncated
        for code in ("{i for i in range(100)}", "list(range(100))", "x = list(range(5000))"):
            assert (await sandbox.run(code)).limit is None, code


async def test_shared_parts_are_counted_as_often_as_they_occur(place: Place) -> None:
    async with place.sandbox(limits=SMALL) as sandbox:
        result = await sandbox.run("value = [1]\nfor _ in range(16): value = [value, value]\nvalue")
        assert (result.outcome, result.limit, result.value_is_data) == (Outcome.OK, "value", False)


async def test_an_integer_that_could_not_be_read_again_has_a_repr(sandbox: Sandbox) -> None:
    result = await sandbox.run("[10 ** 5000]")
    assert (result.outcome, result.value_is_data) == (Outcome.OK, False)
    assert (await sandbox.run("[10 ** 4000]")).value == [10**4000]


async def test_the_limit_of_what_is_printed_comes_first(place: Place) -> None:
    async with place.sandbox(limits=Limits(value_bytes=2048, output_bytes=2048)) as sandbox:
        assert (await sandbox.run("print('x' * 10_000)\nlist(range(5000))")).limit == "output"
