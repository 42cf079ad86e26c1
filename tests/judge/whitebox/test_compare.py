from __future__ import annotations

import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import math
import random
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coderoom.judge import compare, encode
from coderoom.judge.guest.values import Encoder
from tests.support.typed import values


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.StrEnum):
    LOW = "low"


@dataclasses.dataclass
class Point:
    x: float
    y: float


class Pair(NamedTuple):
    a: int
    b: int


class Equal:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def came(value: Any) -> Any:
    return Encoder().encode(value)


class TestEqual:
    @given(values)
    def test_a_value_equals_itself(self, value: Any) -> None:
        found = compare(encode(value), encode(copy.deepcopy(value)))
        assert found.equal, found.why

    @given(values, values)
    def test_it_is_as_python_has_it(self, one: Any, other: Any) -> None:
        # Python takes True for 1 and is exact about floats; what is equal here is nearly so there.
        if compare(encode(one), encode(other), rel=0, abs=0).equal:
            assert one == other

    @given(st.dictionaries(st.integers() | st.text(), values, max_size=6), st.randoms())
    def test_order_of_dicts_does_not_count(self, value: dict[Any, Any], rng: random.Random) -> None:
        items = list(value.items())
        rng.shuffle(items)
        assert compare(encode(value), encode(dict(items))).equal

    @given(st.lists(st.integers() | st.text(), unique=True, max_size=8), st.randoms())
    def test_order_of_sets_does_not_count(self, items: list[Any], rng: random.Random) -> None:
        shuffled = list(items)
        rng.shuffle(shuffled)
        assert compare({"$set": items}, {"$set": shuffled}).equal

    @pytest.mark.parametrize(
        ("expected", "actual"),
        [
            (0.3, 0.1 + 0.2),
            (0.0, 1e-17),
            (10**20 + 1, 10**20 + 1),
            (1e20, 10**20 + 1),
            (2, 2.0),
            (math.nan, math.nan),
            ([math.nan, {"a": math.inf}], [math.nan, {"a": math.inf}]),
            ({0.3, 1.0}, {0.1 + 0.2, 1}),
            ({1: "a"}, {1.0: "a"}),
            (1 + 2j, (1 + 1e-15) + 2j),
            (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
            (decimal.Decimal("NaN"), decimal.Decimal("NaN")),
            (
                datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC),
                datetime.datetime(2024, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
            ),
            (Point(1.0, 2), Point(1 + 1e-15, 2)),
            (Color.RED, Color.RED),
            ("low", Level.LOW),
            (numpy.array([1.0, 2.0]), numpy.array([1.0, 2.0 + 1e-15])),
            ({frozenset({1, 2}): 1}, {frozenset({2, 1}): 1}),
        ],
        ids=repr,
    )
    def test_equal(self, expected: Any, actual: Any) -> None:
        found = compare(came(expected), came(actual))
        assert found.equal, found.why
        assert not found.why

    def test_what_is_expected_need_not_be_normalized(self) -> None:
        assert compare({"$timedelta": [0, 90_000, 0]}, came(datetime.timedelta(1, 3_600))).equal
        assert compare({"$fraction": [2, 4]}, came(fractions.Fraction(1, 2))).equal
        assert not compare({"$fraction": [1, 0]}, came(fractions.Fraction(1, 2))).equal

    def test_tolerances(self) -> None:
        assert compare(100.0, 101.0, rel=0.02).equal
        assert compare(0.0, 0.01, abs=0.1).equal
        assert not compare(100, 101, rel=0.02).equal
        assert not compare(100.0, 103.0, rel=0.02).equal
        assert compare(100, 101.0, rel=0.02).equal
        assert compare(3, 3.05, abs=0.1).equal

    @pytest.mark.parametrize(
        ("expected", "actual"),
        [
            (3.97e-19, 0.0),
            (1.6e-19, -9e-13),
            (10**17 + 1, 10.0**17),
            (354224848179261915075, 354224848179261915075.0),
            (3, 3.0000000001),
            (0, 1e-17),
            (1 + 0j, 1 + 1e-3j),
        ],
    )
    def test_there_is_no_slack_that_nobody_asked_for(self, expected: Any, actual: Any) -> None:
        assert not compare(encode(expected), encode(actual)).equal


class TestDifferent:
    @pytest.mark.parametrize(
        ("expected", "actual", "why"),
        [
            (1, 2, "result: expected 1, got 2"),
            ([0, 0, 0, {"x": 1}], [0, 0, 0, {"x": 2}], "result[3]['x']: expected 1, got 2"),
            (True, 1, "result: expected True, got 1, of the type int instead of bool"),
            (1, True, "result: expected 1, got True, of the type bool instead of int"),
            (None, 0, "result: expected None, got 0, of the type int instead of None"),
            ("1", 1, "result: expected '1', got 1, of the type int instead of str"),
            ([1, 2], (1, 2), "result: expected the type list, got tuple with equal items: (1, 2)"),
            ((1, 2), [1, 2], "result: expected the type tuple, got list with equal items: [1, 2]"),
            ([1], [1, 2], "result: expected length 1, got 2; item 1, 2, is one too many"),
            ([1, 2], [1], "result: expected length 2, got 1; item 1, 2, is missing"),
            ({1, 2}, {1, 3}, "result: the item 2 is missing"),
            ({1}, {1, 3}, "result: the item 3 was not expected"),
            ({"a": 1}, {}, "result: the key 'a' is missing"),
            ({}, {"a": 1}, "result: the key 'a' was not expected; its value is 1"),
            ({1: [2]}, {1: [3]}, "result[1][0]: expected 2, got 3"),
            (Point(1, 2), Point(1, 3), "result.y: expected 2, got 3"),
            (Point(1, 2), Equal(), "result: expected the type Point, got Equal"),
            (1, Equal(), "result: expected 1, got Equal(), of the type object instead of int"),
            (Color.RED, Color.BLUE, "result: expected Color.RED, got Color.BLUE"),
            (math.nan, 1.0, "result: expected nan, got 1.0"),
            (math.inf, 1e308, "result: expected inf, got 1e+308"),
            (b"a", b"b", "result: expected bytes('YQ=='), got bytes('Yg==')"),
            (b"a", bytearray(b"a"), "of the type bytearray instead of bytes"),
            (10**400, 1.0, "expected an integer of 1,329 bits, got 1.0"),
            (numpy.zeros(2), numpy.zeros((1, 2)), "array with the shape [2], got one with [1, 2]"),
            (numpy.zeros(2), numpy.zeros(2, int), "array with the dtype 'float64', got one with 'int64'"),
            ([1], len, "cannot be compared: functions have no value"),
            ("x" * 1000 + "a", "x" * 1000 + "b", "got a different value"),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_the_first_difference_is_told(self, expected: Any, actual: Any, why: str) -> None:
        found = compare(came(expected), came(actual))
        assert not found.equal
        assert why in found.why

    @given(values, values)
    def test_there_is_always_a_reason(self, one: Any, other: Any) -> None:
        found = compare(encode(one), encode(other))
        assert found.equal == (not found.why)
        assert len(found.why) < 1_500

    @given(values, values)
    def test_both_ways(self, one: Any, other: Any) -> None:
        assert compare(encode(one), encode(other)).equal == compare(encode(other), encode(one)).equal


class TestLists:
    @pytest.mark.parametrize("actual", [(1, 2), Pair(1, 2), numpy.array([1, 2])], ids=lambda each: type(each).__name__)
    def test_of_json_may_be_something_like_a_list(self, actual: Any) -> None:
        assert compare([1, 2], came(actual), exact_types=False).equal
        assert compare({"k": [[1, 2]]}, {"k": [came(actual)]}, exact_types=False).equal
        assert not compare([1, 2], came(actual)).equal
        assert not compare([1, 3], came(actual), exact_types=False).equal

    def test_a_named_tuple_will_do_for_a_tuple(self) -> None:
        assert compare(came((1, 2)), came(Pair(1, 2)), exact_types=False).equal

    def test_a_frozenset_will_do_for_a_set(self) -> None:
        assert compare(came({1}), came(frozenset({1})), exact_types=False).equal

    @pytest.mark.parametrize(
        "actual", [{1, 2}, "ab", {0: 1, 1: 2}, Equal(), Color.RED, 1], ids=lambda value: type(value).__name__
    )
    def test_nothing_else_will_do(self, actual: Any) -> None:
        assert not compare([1, 2], came(actual), exact_types=False).equal

    def test_a_tuple_that_was_expected_is_no_list(self) -> None:
        assert not compare(came((1, 2)), [1, 2], exact_types=False).equal


def nested(tag: str, depth: int) -> Any:
    data: Any = 1
    for _ in range(depth):
        data = {tag: data}
    return data


HOSTILE: list[Any] = [
    nested("a", 150),
    nested("$complex", 150),
    nested("$object", 5_000),
    [[]] * 500_000,
    {"$object": 3},
    {"$object": {"type": "Point", "fields": [1, [2], ["x"]]}},
    {"$object": {"type": "Point", "fields": 3}},
    {"$object": {"type": {"a": 1}, "fields": {"x": 1.0, "y": 2.0}}},
    {"$dict": [[1, 2], [1, 3]]},
    {"$dict": {"a": 1}},
    {"$dict": [[{"$set": [[]]}, 1]]},
    {"$set": {}},
    {"$set": [{"$float": "nan"}] * 1_000},
    {"$float": "1e5"},
    {"$float": {}},
    {"$int": "x"},
    {"$int": "f" * 400_000},
    {"$decimal": "9" * 100_000},
    {"$decimal": "1e999999999999999999"},
    {"$decimal": "sNaN"},
    {"$complex": [1]},
    {"$enum": 3},
    {"$enum": {"mixed": True}},
    {"$array": 3},
    {"$array": {"items": 3}},
    {"$fraction": "1/2"},
    {"$date": 3},
    {"$opaque": {}},
    {"$opaque": "x"},
    {"$unknown": 1},
    {"$tuple": None},
    math.nan,
    {1: 2},
    (1, 2),
    "\ud800",
    object(),
]
EXPECTED: list[Any] = [
    1,
    [1, 2],
    {"a": 1},
    came((1, 2)),
    came({1, 2}),
    came(Point(1, 2)),
    came(Color.RED),
    came(numpy.zeros(2)),
    came(1j),
    came(decimal.Decimal(1)),
    came(datetime.date(2024, 1, 1)),
    came(math.nan),
    came({1: 2}),
    came(Pair(1, 2)),
]


@pytest.mark.parametrize("actual", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("exact", [True, False])
def test_whatever_comes_is_different_and_nothing_else(actual: Any, exact: bool) -> None:
    for expected in EXPECTED:
        # The one case where the forms agree: NaN is what an unsound float counts as.
        if expected == {"$float": "nan"} and isinstance(actual, dict) and next(iter(actual)) in ("$float", "$int"):
            continue
        found = compare(expected, actual, exact_types=exact)
        assert not found.equal
        assert len(found.why) < 1_500


TAGGED = ["$tuple", "$set", "$object", "$enum", "$array", "$dict", "$complex"]
KEYS = st.sampled_from([*TAGGED, "type", "fields", "items", "name", "value", "mixed"])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    )
)
def test_forged_data_breaks_nothing(actual: Any) -> None:
    for expected in EXPECTED:
        compare(expected, json.loads(json.dumps(actual)), exact_types=False)
    compare(actual, actual)
