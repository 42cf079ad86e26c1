"""Properties and types as source; code that depends on nothing else is in `test_pure.py` and `test_stateless.py`."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from coderoom.judge.source import check_property, is_dots, judged_by, named, names_in, read_type

INPUTS: dict[str, Any] = {"x": [1], "n": 2}


@pytest.mark.parametrize(
    "text",
    [
        "result == sorted(x)",
        "after['x'] == []",
        "all(each > n for each in result)",
        "result is None or result is True",
        "type(result) is int",
        "len((lambda y: y)(result)) < math.inf",
        "sorted({1, 2}) == result",
        "__import__('re').match('a', result)",
    ],
)
def test_a_property(text: str) -> None:
    check_property(text, INPUTS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("result =", "is not valid Python"),
        ("(yield)", "is not valid Python"),
        ("result == open('a').read()", "do not use 'open'"),
        ("result == __import__('os').getpid()", "do not use"),
        ("result.__globals__", "do not use '__globals__'"),
        ("result == y", "unknown name 'y'; known are result"),
        ("list({1, 2}) == result", "the order of a set"),
        ("result == [*set(x)]", "the order of a set"),
        ("result is x", "it sees copies of the values"),
        ("result is not 'a'", "it sees copies of the values"),
        ("n == 2", "does not use result"),
    ],
)
def test_a_property_that_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_property(text, INPUTS)


def test_only_what_can_change_is_seen_after_the_call() -> None:
    with pytest.raises(ValueError, match="does not use result"):
        check_property("after['n'] == 2", {"n": 2})
    check_property("after['x'] == [2]", INPUTS)


@pytest.mark.parametrize(
    ("text", "sees"),
    [
        ("result == 1", "values"),
        ("isinstance(result, int)", "result types values"),
        ("isinstance(x, int)", "types values"),
        ("type(result) == int", "exact result types values"),
        ("str(x) == 'a'", "exact types values"),
        ("result is True", "types values"),
        ("result == True", "values"),
        ("result is None", "values"),
        ("f'{result}' == 'a'", "exact result types values"),
        ("result.__class__ == x", "exact result types values"),
        ("result.total == 1", "values"),
        ("'%s' % result == 'a'", "exact result types values"),
        ("result % 2 == 1", "values"),
    ],
)
def test_what_a_property_sees_of_values(text: str, sees: str) -> None:
    assert judged_by(text) == sees


def test_names_of_an_expression() -> None:
    assert names_in("[y for y in x if y > n] and (z := 1) and (lambda a: a + b)(1)") == {"x", "n", "b"}


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("int", "int", 0),
        ("datetime.date", "date", 0),
        ("Optional[int]", "Union", 2),
        ("typing.Optional[int]", "Union", 2),
        ("int | str", "Union", 2),
        ("dict[str, int]", "dict", 2),
        ("tuple[()]", "tuple", 1),
        ("Map<string, number>", "Map", 2),
        ("None", "None", 0),
        ("str (a note)", "str", 0),
        ("'int'", "", 0),
    ],
)
def test_the_name_of_a_type(text: str, name: str, count: int) -> None:
    found, parts = named(read_type(text))
    assert (found, len(parts)) == (name, count)


def test_any_number_of_a_type() -> None:
    kind = read_type("string[]")
    assert isinstance(kind, ast.Subscript)
    assert [is_dots(kind.slice), is_dots(read_type("1"))] == [True, False]
