"""Reads and checks the tests that a model or a user gives as JSON-like data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from coderoom.errors import GenerationError
from coderoom.generation.checks import check_setup
from coderoom.generation.specs import FunctionSpec, problems_of
from coderoom.generation.tests import FunctionTest

if TYPE_CHECKING:
    from coderoom.generation.languages.base import Language

__all__ = ["read_tests"]

_TESTS: TypeAdapter[dict[str, list[FunctionTest]]] = TypeAdapter(dict[str, list[FunctionTest]])


def read_tests(
    data: Any, specs: Sequence[FunctionSpec], *, language: Language | None = None
) -> dict[str, list[FunctionTest]]:
    """Tests from JSON-like data, each checked against the function that it is for.

    Args:
        data: Lists of tests by the names of the functions.
        specs: The functions.
        language: The language that setup code is in; `None`: Python.

    Raises:
        GenerationError: Something is wrong; the message lists every mistake.
    """
    try:
        tests = _TESTS.validate_python(data)
    except ValidationError as error:
        raise GenerationError("\n".join(problems_of(error, "tests"))) from error
    wrong = [*_problems_together(tests, specs), *_problems_of_setups(tests, language)]
    if wrong:
        raise GenerationError("\n".join(wrong))
    return tests


def _problems_together(tests: Mapping[str, Sequence[FunctionTest]], specs: Sequence[FunctionSpec]) -> list[str]:
    """What is wrong with tests in the light of what they are for."""
    by_name = {spec.name: spec for spec in specs}
    wrong = []
    for function, cases in tests.items():
        if function not in by_name:
            wrong.append(f"tests.{function}: there is no such function; there are {', '.join(map(repr, by_name))}.")
            continue
        seen: set[str] = set()
        for index, test in enumerate(cases):
            found = test.problems(by_name[function])
            if test.name in seen:
                found.append(f"another test of this function has the name {test.name!r} too")
            seen.add(test.name)
            wrong += [f"tests.{function}[{index}]: {each}." for each in found]
    wrong += [f"tests: there is none for {name!r}." for name in by_name if not tests.get(name)]
    return wrong


def _problems_of_setups(tests: Mapping[str, Sequence[FunctionTest]], language: Language | None) -> Iterator[str]:
    """What is wrong with setup code; there may be more functions than those with tests here."""
    for function, cases in tests.items():
        for index, test in enumerate(cases):
            setup = test.setup or ""
            check = check_setup if language is None else language.check_setup
            for problem in check(setup, list(tests), known=False):
                yield f"tests.{function}[{index}]: setup: {problem}."
