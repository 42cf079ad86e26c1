"""The value of a cell: data, or a `repr` that says that it is one."""

from __future__ import annotations

import json

import pytest

from coderoom.outcome import Outcome
from coderoom.sandbox import Limits, Sandbox, Session
from coderoom.sandbox.guest.values import describe

from .places import Place

SMALL = Limits(value_bytes=2048)
NESTED = "x = []\nfor _ in range(5000): x = [x]\nx"


@pytest.mark.parametrize("code", ["d = {}; d['self'] = d; d", "x = []; x.append(x); x", NESTED])
async def test_what_holds_itself_or_is_deep_has_a_repr(sandbox: Sandbox, code: str) -> None:
    result = await sandbox.run(code)
    assert (result.outcome, result.error, result.limit) == (Outcome.OK, None, None), result
    assert result.value_repr
    assert (result.value, result.value_is_data) == (result.value_repr, False)


async def test_a_deep_value_takes_nothing_from_a_session(session: Session) -> None:
    assert (await session.run(NESTED)).success
    assert (await session.run("len(x)")).value == 1


@pytest.mark.parametrize(
    ("code", "value", "is_data"),
    [
        ("'{1, 2}'", "{1, 2}", True),
        ("{1, 2}", "{1, 2}", False),
        ("[1, {'a': None}]", [1, {"a": None}], True),
        ("0", 0, True),
        ("x = 1", None, False),
        ("None", None, False),
        ("1 / 0", None, False),
    ],
)
async def test_a_repr_is_told_from_data(sandbox: Sandbox, code: str, value: object, is_data: bool) -> None:
    result = await sandbox.run(code)
    assert (result.value, result.value_is_data) == (value, is_data)


@pytest.mark.parametrize("code", ["list(range(5000))", "'a' * 5000", "{'k': list(range(5000))}"])
async def test_data_that_is_too_large_meets_a_limit(place: Place, code: str) -> None:
    async with place.sandbox(limits=SMALL) as sandbox:
        result = await sandbox.run(code)
        assert (result.outcome, result.limit, result.value_is_data) == (Outcome.OK, "value", False)
        assert result.value == result.value_repr
        assert not result.truncated


@pytest.mark.parametrize("code", ["{i for i in range(5000)}", "list(range(100))", "x = list(range(5000))"])
async def test_what_is_no_data_or_small_meets_none(place: Place, code: str) -> None:
    async with place.sandbox(limits=SMALL) as sandbox:
        assert (await sandbox.run(code)).limit is None


async def test_the_limit_of_what_is_printed_comes_first(place: Place) -> None:
    async with place.sandbox(limits=Limits(value_bytes=2048, output_bytes=2048)) as sandbox:
        assert (await sandbox.run("print('x' * 10_000)\nlist(range(5000))")).limit == "output"


def test_what_is_there_many_times_is_looked_at_no_longer_than_there_is_room() -> None:
    value: list[object] = [1]
    for _ in range(22):
        value = [value, value]
    told = describe(value, 1000)
    assert told["value_too_large"] is True
    assert "value" not in told


def test_no_integer_that_cannot_be_read_again_goes_out() -> None:
    assert "value" not in describe([10**5000], 1 << 20)
    assert json.loads(json.dumps(describe([10**4000], 1 << 20)["value"])) == [10**4000]
