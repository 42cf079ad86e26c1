from __future__ import annotations

import ast
import collections
import dataclasses
import decimal
import enum
import fractions
import itertools
import json
import math
import sys
import types
from pathlib import Path
from typing import Any

import numpy
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coderoom.judge import Record, TaggedError, decode, encode, show
from coderoom.judge.guest.values import Encoder
from tests.support.typed import type_tree, values

INSIDE = Path(__file__).parents[3] / "coderoom" / "judge" / "guest"


class TestRoundTrip:
    @given(values)
    def test_a_value_comes_back_with_its_types(self, value: Any) -> None:
        data = json.loads(json.dumps(encode(value), allow_nan=False))
        found = decode(data)
        assert found == value
        assert type_tree(found) == type_tree(value)

    @given(values)
    def test_inside_it_is_the_same(self, value: Any) -> None:
        assert Encoder().encode(value) == encode(value)

    @given(values)
    def test_what_is_data_is_an_ordinary_value_too(self, value: Any) -> None:
        data = encode(value)
        assert decode(encode(data)) == data

    def test_nan(self) -> None:
        assert encode(math.nan) == {"$float": "nan"}
        assert math.isnan(decode({"$float": "nan"}))

    @pytest.mark.parametrize(
        "value",
        [
            {"$tuple": [1]},
            {"$x": 1, "y": 2},
            {"$": 1},
            {"a$": 1},
            {1: "a", "1": "b"},
            {"$dict": []},
            {(1, 2): {None: 3}},
        ],
        ids=repr,
    )
    def test_no_dict_is_taken_for_a_tag(self, value: Any) -> None:
        assert decode(encode(value)) == value

    def test_halves_of_characters(self) -> None:
        assert json.dumps(encode("a\ud800")).isascii()
        assert decode(encode(["a\ud800"])) == ["a\ud800"]

    def test_large_integers(self) -> None:
        for value in (10**5_000, -(10**5_000)):
            assert decode(json.loads(json.dumps(encode(value)))) == value

    def test_a_record_stays_one(self) -> None:
        record = Record("Point", {"x": 1, "$y": (2,)})
        assert decode(encode(record)) == record
        assert decode(encode(record)).x == 1


class Color(enum.Enum):
    RED = 1


class Level(enum.StrEnum):
    LOW = "low"


@dataclasses.dataclass
class Point:
    x: int
    y: list[int]


Pair = collections.namedtuple("Pair", "left right")


class Plain:
    def __init__(self) -> None:
        self.a = 1
        self._b = {2}

    def __eq__(self, other: object) -> bool:
        return True


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


class Model(pydantic.BaseModel):
    a: int


class TestObjects:
    @pytest.mark.parametrize(
        ("value", "data"),
        [
            (Color.RED, {"$enum": {"type": "Color", "name": "RED", "mixed": False, "value": 1}}),
            (Level.LOW, {"$enum": {"type": "Level", "name": "LOW", "mixed": True, "value": "low"}}),
            (Point(1, [2]), {"$object": {"type": "Point", "fields": [["x", 1], ["y", [2]]]}}),
            (Pair(1, 2), {"$namedtuple": {"type": "Pair", "fields": [["left", 1], ["right", 2]]}}),
            (Plain(), {"$object": {"type": "Plain", "fields": [["a", 1], ["_b", {"$set": [2]}]]}}),
            (Slotted(), {"$object": {"type": "Slotted", "fields": [["a", 1]]}}),
            (Model(a=1), {"$object": {"type": "Model", "fields": [["a", 1]]}}),
            (types.SimpleNamespace(a=1), {"$object": {"type": "SimpleNamespace", "fields": [["a", 1]]}}),
            (ValueError("no"), {"$object": {"type": "ValueError", "fields": [["args", {"$tuple": ["no"]}]]}}),
            (collections.OrderedDict(a=1), {"a": 1}),
            (collections.Counter("aa"), {"a": 2}),
            ((i for i in "ab"), ["a", "b"]),
            (range(2), [0, 1]),
            (map(str, [1]), ["1"]),
            ({"a": 1}.items(), [{"$tuple": ["a", 1]}]),
            (itertools.islice(itertools.count(), 2), [0, 1]),
            (Path("a/b"), "a/b"),
            (numpy.float64(1.5), 1.5),
            (numpy.int8(3), 3),
            (numpy.bool_(True), True),
            (numpy.array([[1, 2]]), {"$array": {"dtype": "int64", "shape": [1, 2], "items": [[1, 2]]}}),
            (numpy.array([math.nan]), {"$array": {"dtype": "float64", "shape": [1], "items": [{"$float": "nan"}]}}),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_it_is_told_by_its_fields(self, value: Any, data: Any) -> None:
        assert Encoder().encode(value) == data

    def test_objects_come_back_with_their_fields(self) -> None:
        assert decode(encode(Pair(1, (2,)))) == (1, (2,))
        assert decode(encode(Pair(1, (2,)))).right == (2,)
        assert decode(encode(Point(1, [2]))).y == [2]
        assert decode(encode(Level.LOW)) == "low"
        assert decode(encode(Color.RED)).name == "RED"
        assert decode(encode(numpy.array([1, 2]))) == [1, 2]

    @pytest.mark.parametrize(
        ("value", "why"),
        [
            (len, "functions have no value"),
            (lambda: 1, "functions have no value"),
            (int, "classes have no value"),
            (math, "modules have no value"),
            (object(), "no tagged form"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_what_cannot_be_compared_says_why(self, value: Any, why: str) -> None:
        told = Encoder().encode([value])[0]["$opaque"]
        assert why in told["why"]
        with pytest.raises(TaggedError, match=r"^value\['a'\]\[1\]: a .* cannot be test data"):
            encode({"a": [1, value]})
        with pytest.raises(TaggedError, match="cannot be decoded"):
            decode({"$opaque": told})

    @pytest.mark.parametrize("base", [int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict])
    def test_what_is_derived_from_plain_data_is_plain(self, base: Any) -> None:
        class Derived(base):  # type: ignore[misc]
            def __repr__(self) -> str:
                return "another one"

        class Lying(Derived):
            def __eq__(self, other: object) -> bool:
                return True

            __hash__ = base.__hash__

        for value in (base(), base([1, 2]) if base in (list, tuple, set, bytes) else base()):
            assert Encoder().encode(Derived(value)) == encode(value)
            assert "changes what operators do" in Encoder().encode(Lying(value))["$opaque"]["why"]

    def test_an_open_file_says_why(self) -> None:
        with Path(__file__).open() as file:
            assert "open file" in Encoder().encode(file)["$opaque"]["why"]


class TestBounds:
    def test_what_contains_itself(self) -> None:
        value: list[Any] = [1]
        value.append(value)
        assert Encoder().encode(value)[1]["$opaque"]["why"] == "it contains itself"

    def test_depth(self) -> None:
        value: Any = 1
        for _ in range(5_000):
            value = [value]
        assert "levels deep" in json.dumps(Encoder().encode(value))

    @pytest.mark.parametrize(
        "value",
        [[0] * 250_000, "x" * 2_500_000, b"x" * 2_500_000, 1 << 16_000_000, [["x" * 99]] * 29_999, itertools.count()],
        ids=["items", "text", "bytes", "an integer", "both", "endless"],
    )
    def test_size(self, value: Any) -> None:
        assert "in total" in json.dumps(Encoder().encode(value))

    def test_shown_values_are_short(self) -> None:
        assert len(show([["x" * 1_000]] * 1_000)) < 250
        assert show(10**5_000).startswith("an integer of 16,610 bits")
        data: Any = 1
        for _ in range(900):
            data = {"$complex": data}
        assert len(show(data)) < 250


class TestErrors:
    @pytest.mark.parametrize(
        ("data", "said"),
        [
            ({"a": [{"$tupel": []}]}, r"^value\['a'\]\[0\]: '\$tupel' is not a tag"),
            ({"$tuple": [], "x": 1}, "is beside other keys"),
            ({"$tuple": 3}, r"value\['\$tuple'\]: expected a list"),
            ({"$set": [[1]]}, "unhashable"),
            ({"$set": [1, 1]}, "twice"),
            ({"$dict": [[1, 2], [1, 3]]}, "twice"),
            ({"$dict": [[1]]}, "pairs"),
            ({"$bytes": "???"}, "base64|padding"),
            ({"$float": "1.5"}, "'nan', 'inf' or '-inf'"),
            ({"$decimal": "x"}, "value"),
            ({"$fraction": [1, 0]}, "value"),
            ({"$date": "2024-13-01"}, "month"),
            ({"$timedelta": [1]}, "3 integers"),
            ({"$timedelta": [10**12, 0, 0]}, "value"),
            ({"$object": {"type": "X"}}, "fields"),
            ({"$namedtuple": {"type": "X", "fields": {"class": 1}}}, "keyword|valid"),
            (math.nan, "is not JSON"),
            ((1, 2), "use encode"),
            ({1: 2}, "is not a string"),
            ("\ud800", "surrogates"),
        ],
        ids=str,
    )
    def test_data_of_another_form_is_refused(self, data: Any, said: str) -> None:
        with pytest.raises(TaggedError, match=said):
            decode(data)

    def test_depth(self) -> None:
        data: Any = []
        for _ in range(300):
            data = [data]
        with pytest.raises(TaggedError, match="too deeply"):
            decode(data)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=3), inner, max_size=3)
                | st.tuples(
                    st.sampled_from(
                        ["$tuple", "$set", "$dict", "$bytes", "$int", "$decimal", "$object", "$date", "$enum"]
                    ),
                    inner,
                ).map(lambda pair: dict([pair]))
            ),
        )
    )
    def test_whatever_it_is_there_is_a_value_or_this_error(self, data: Any) -> None:
        try:
            value = decode(data)
        except TaggedError:
            return
        show(data)
        hash(repr(value))


def test_shown_as_python_would() -> None:
    value = {"a": (1,), "b": {2}, 3: frozenset(), "c": [1.5, None, decimal.Decimal("1.0"), fractions.Fraction(1, 2)]}
    assert show(encode(value)) == (
        "{'a': (1,), 'b': {2}, 3: frozenset({}), 'c': [1.5, None, decimal('1.0'), fraction([1, 2])]}"
    )
    assert show(encode(Point(1, []))) == "Point(x=1, y=[])"
    assert show(encode(Color.RED)) == "Color.RED"


@pytest.mark.parametrize("path", sorted(INSIDE.glob("*.py")), ids=lambda path: path.name)
def test_the_inside_is_old_python_and_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("coderoom") for alias in node.names)
        if isinstance(node, ast.ImportFrom) and not node.level:
            ours = {"coderoom.sandbox.guest.encoding", "coderoom.sandbox.guest.decoding"}
            assert node.module in ours or str(node.module).partition(".")[0] in sys.stdlib_module_names
        assert not isinstance(node, ast.Match)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            assert any(name in ast.unparse(node) for name in ("CO_", "O_", "flags")), "no unions of types"
