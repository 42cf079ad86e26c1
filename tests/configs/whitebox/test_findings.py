"""Pydantic's errors as mistakes in a file, in plain words."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coderoom.configs.findings import Mistake, describe, explain, is_under


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int
    kind: Literal["small", "large"] = "small"


class Other(BaseModel):
    model_config = ConfigDict(extra="forbid")

    names: list[str]
    sizes: list[int]


class Outer(BaseModel):
    count: int = Field(default=1, ge=1, lt=10)
    ratio: float = Field(default=0.5, gt=0)
    items: list[Inner] = Field(default=[], max_length=2)
    one: Inner | Other | None = None
    text: str | bool = ""
    api_key: int = 0


def mistakes_in(data: dict[str, Any], raw: dict[tuple[str | int, ...], str] | None = None) -> list[Mistake]:
    with pytest.raises(ValidationError) as raised:
        Outer.model_validate(data, strict=True)
    return explain(raised.value.errors(include_url=False), data, raw or {})


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        ({"count": "many"}, ("count",), "expected an integer, got 'many' (a string)"),
        ({"count": 0}, ("count",), "expected at least 1, got 0 (an integer)"),
        ({"count": 10}, ("count",), "expected less than 10, got 10 (an integer)"),
        ({"ratio": 0.0}, ("ratio",), "expected more than 0, got 0.0 (a number)"),
        ({"items": [{"size": 1}] * 3}, ("items",), "expected a list of at most 2, got a list of 3"),
        ({"items": {}}, ("items",), "expected a list, got a mapping"),
        ({"count": []}, ("count",), "expected an integer, got an empty list"),
        ({"items": [{"size": 1, "sise": 2}]}, ("items", 0, "sise"), "unknown key 'sise'"),
        ({"text": 1}, ("text",), "expected a text or true or false, got 1 (an integer)"),
        ({"api_key": "hush"}, ("api_key",), "expected an integer, got another text"),
    ],
)
def test_mistakes_in_words(data: dict[str, Any], path: tuple[str | int, ...], message: str) -> None:
    assert mistakes_in(data) == [Mistake(path, message)]


def test_missing_keys_and_near_words() -> None:
    assert mistakes_in({"items": [{"size": 1}, {}]}) == [Mistake(("items", 1), missing="size")]
    (near,) = mistakes_in({"items": [{"size": 1, "kind": "lage"}]})
    assert near.message == "expected 'small' or 'large', got 'lage' (a string); did you mean 'large'?"


def test_of_a_union_the_nearest_branch_counts() -> None:
    assert mistakes_in({"one": {"size": "x"}}) == [Mistake(("one", "size"), "expected an integer, got 'x' (a string)")]
    assert mistakes_in({"one": 3}) == [Mistake(("one",), "expected a mapping, got 3 (an integer)")]


def test_values_of_variables_are_not_shown() -> None:
    (found,) = mistakes_in({"count": "hush"}, {("count",): "${COUNT}"})
    assert found.message == "expected an integer, got the value of '${COUNT}'"


def test_values_in_words() -> None:
    values: list[Any] = [None, True, 10**20 - 1, 10**20, 0.5, "a", (1,), {}]
    assert [describe(each) for each in values] == [
        "nothing (null)",
        "true (a boolean)",
        "99999999999999999999 (an integer)",
        "a very long integer",
        "0.5 (a number)",
        "'a' (a string)",
        "a list",
        "a mapping",
    ]
    tops = [("a", 1)]
    assert [is_under(path, tops) for path in (("a",), ("a", 1), ("a", 1, "b"), ("a", 2))] == [False, True, True, False]
