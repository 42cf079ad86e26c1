"""Values of a declared type, of which a test that says something refuses some."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.judge.other_values import other_values
from coderoom.judge.values import decode


@pytest.mark.parametrize(
    ("declared", "kinds"),
    [
        ("bool", {bool}),
        ("int", {int}),
        ("number", {int}),
        ("int | None", {int, type(None)}),
        ("Union[str, bytes]", {str, bytes}),
        ("Optional[str]", {str, type(None)}),
        ("dict[str, int]", {dict}),
        ("tuple[int, str]", {tuple}),
        ("tuple[int, ...]", {tuple}),
        ("set[int]", {set}),
        ("string[]", {list}),
        ("Array<string>", {list}),
        ("list of points", {list}),
        ("str (a note)", {str}),
        ("Literal['a', 2]", {str, int}),
        ("Annotated[float, 'x']", {float}),
        ("void", {type(None)}),
    ],
)
def test_values_of_a_type(declared: str, kinds: set[type]) -> None:
    assert {type(decode(value)) for value in other_values(declared)} == kinds


@pytest.mark.parametrize("declared", ["Point", "callable", "", "a b c", "int | Point"])
def test_no_values_of_an_unknown_type(declared: str) -> None:
    assert other_values(declared) == ()


def test_an_empty_one_comes_first_and_half_are_negative() -> None:
    numbers: list[Any] = [decode(value) for value in other_values("int")]
    assert numbers[0] == 0
    assert 5 < sum(number < 0 for number in numbers) < 18
    assert len({*numbers}) == len(numbers) > 15
    lists = [decode(value) for value in other_values("list[Point]")]
    assert (lists[0], max(map(len, lists))) == ([], 3)
    pairs = [decode(value) for value in other_values("dict[int, str]")]
    assert {type(part) for pair in pairs for item in pair.items() for part in item} == {int, str}
    assert {len(decode(value)) for value in other_values("tuple[int, int]")} == {2}
