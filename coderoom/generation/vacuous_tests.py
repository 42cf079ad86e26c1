"""Finds tests that can hardly fail, whatever the code does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from coderoom.generation.testing.values import canonical, tag_of
from coderoom.generation.tests import FunctionTest

if TYPE_CHECKING:
    from coderoom.generation.testing.runner import TestRunner

__all__ = ["say_nothing", "what_it_says", "why_too_wide"]

_WIDEST = 0.1
_ABSURD: tuple[Any, ...] = (None, -1, "x", [], {"$object": {"type": "Nothing", "fields": {}}})


async def say_nothing(tests: Sequence[FunctionTest], runner: TestRunner) -> list[FunctionTest]:
    """The tests with a property that holds of the most absurd results together. They are looked at in the sandbox."""
    asked = [test for test in tests if test.property is not None]
    verdicts = await runner.look(
        [
            (str(test.property), absurd, test.inputs, dict.fromkeys(test.inputs, absurd) if test.sees_after else None)
            for test in asked
            for absurd in _ABSURD
        ],
    )
    count = len(_ABSURD)
    return [test for number, test in enumerate(asked) if all(verdicts[number * count : (number + 1) * count])]


def what_it_says(test: FunctionTest) -> str:
    """The same for tests that differ only in what they are called."""
    return canonical({key: item for key, item in test.model_dump(mode="json").items() if key not in ("name", "kind")})


def why_too_wide(test: FunctionTest) -> str:
    """Why a test lets too much pass for the same number; empty if it does not."""
    most = _WIDEST * max([1.0, *_sizes(test.expected_output)])
    if test.rel <= _WIDEST and test.abs <= most:
        return ""
    return f"rel={test.rel:g} and abs={test.abs:g} are too wide; rel may be {_WIDEST:g} here, and abs {most:g}"


def _sizes(data: Any) -> Iterator[float]:
    level = [data]
    while level:
        item = level.pop()
        tag, content = tag_of(item)
        if tag == "int" and content.bit_length() > 1_000:
            yield 2.0**1_000
        elif tag in ("int", "float"):
            yield abs(float(content))
        elif isinstance(item, dict):
            level += item.values()
        elif isinstance(item, list):
            level += item
