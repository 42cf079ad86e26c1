"""What code and models learn of a function of the host: its stub, its results and its errors as data."""

from __future__ import annotations

import enum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from coderoom.errors import RequestError
from coderoom.sandbox import host_functions
from coderoom.sandbox.functions.function import LONGEST, DescribedError, as_data, check_name, error_data, shorten


class Colour(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: int = 1


class OwnError(KeyError):
    pass


async def pay(
    number: int,
    to: str = "Ann",
    colour: Colour = Colour.RED,
    point: Point = Point(),  # noqa: B008
    most: int = Field(default=3),
    *,
    rest: list[int] = Field(default_factory=list),  # noqa: B008
) -> bool:
    """Pay somebody.

    At once.
    """
    return True


async def test_what_is_offered() -> None:
    [function] = await host_functions([pay])
    offer = function.to_offer()
    assert (offer["name"], offer["is_async"], offer["returns"]) == ("pay", True, "bool")
    number, to, colour, point, most, rest = offer["parameters"]
    assert number == {"name": "number", "kind": "POSITIONAL_OR_KEYWORD", "annotation": "int"}
    assert [each.get("default") for each in (to, colour, most)] == ["Ann", "red", 3]
    assert (point["default_text"], rest["default_text"], rest["kind"]) == ("Point(x=1)", "...", "KEYWORD_ONLY")
    assert function.header.startswith("async def pay(number: int, to: str = 'Ann', ")
    assert function.describe().endswith(
        ':\n    """Pay somebody.\n\n    At once.\n\n    point: {\'x\': int = 1}\n    """'
    )
    assert function.name_arguments([5], {"to": "Bob"}) == {"number": 5, "to": "Bob"}
    assert function.name_arguments([5], {"who": "Bob"}) == {"1": 5, "who": "Bob"}


@pytest.mark.parametrize("name", ["class", "a b", "1a", "", "__init__"])
def test_names_that_cannot_be_called(name: str) -> None:
    with pytest.raises(RequestError, match="cannot be offered"):
        check_name(name)
    assert check_name("_own") == "_own"


@pytest.mark.parametrize(
    ("error", "kind", "args"),
    [
        (ValueError("no", 5), "ValueError", ["no", 5]),
        (ValueError(), "ValueError", []),
        (OwnError("a"), "KeyError", ["OwnError: 'a'"]),
        (KeyboardInterrupt(), "RuntimeError", ["KeyboardInterrupt"]),
        (FileNotFoundError(2, "none", "a.txt"), "FileNotFoundError", [2, "none", "a.txt"]),
        (ValueError(object), "ValueError", ["<class 'object'>"]),
        (ValueError("x" * (LONGEST + 1)), "ValueError", [f"{'x' * LONGEST}... ({LONGEST + 1:,} characters)"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_as_data(error: BaseException, kind: str, args: list[Any]) -> None:
    data = error_data(error)
    assert (data["type"], data["args"]) == (kind, args)
    assert data["message"].startswith(type(error).__name__)


def test_results_as_data() -> None:
    assert as_data("f", [Point()]) == [{"x": 1}]
    assert as_data("f", object, pack=str) == "<class 'object'>"
    for value in (object, {"a": b"\xff"}):
        with pytest.raises(TypeError, match=r"^f\(\): its result "):
            as_data("f", value)
    known = {"type": "ValueError", "args": ["a"], "message": "a"}
    assert error_data(DescribedError(known)) is known


def test_long_values_are_shortened() -> None:
    assert [shorten("abcd", 4), shorten("abcde", 4)] == ["abcd", "abcd... (5 characters)"]
    assert [shorten([1], 3), shorten([12], 3)] == [[1], "[12..."]
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert shorten(deep) == "..."
    kept = [1]
    assert shorten(kept) is not kept
