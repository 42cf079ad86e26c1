"""Tests that a model or a person has written: read from JSON-like data, and checked against the specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter

from coderoom.errors import GenerationError
from coderoom.generation.specs import FunctionSpec
from coderoom.judge import FunctionTest
from coderoom.judge.cases import problems_of_steps
from coderoom.judge.data import validated
from coderoom.judge.values import parts

_TESTS: TypeAdapter[dict[str, list[FunctionTest]]] = TypeAdapter(dict[str, list[FunctionTest]])


def read_tests(
    data: Any, specs: Sequence[FunctionSpec], *, functions: Sequence[str] | None = None
) -> dict[str, list[FunctionTest]]:
    """Read tests from JSON-like data and check each against the spec of its function.

    Args:
        data: Lists of tests by function name.
        specs: The functions.
        functions: The functions of the program that steps may call; `None`: those of `specs`.

    Raises:
        GenerationError: The data is invalid; the message lists every mistake.
    """
    tests = validated(_TESTS, data, "tests")
    by_name = {spec.name: spec for spec in specs}
    wrong, found = [], {}
    for function, cases in tests.items():
        spec = by_name.get(function)
        if spec is None:
            wrong.append(f"tests.{function}: there is no such function; there are {', '.join(map(repr, by_name))}.")
            continue
        for index, test in enumerate(cases):
            problems = [
                *_mismatches(test, spec),
                *problems_of_steps(test, [*by_name] if functions is None else functions),
            ]
            if test.name in [each.name for each in cases[:index]]:
                problems.append(f"another test of this function has the same name {test.name!r}")
            wrong += [f"tests.{function}[{index}]: {each}." for each in problems]
        # Inputs are in the order of the spec, since they may be passed by position.
        names = [each.name for each in spec.inputs]
        found[function] = [
            test.model_copy(update={"inputs": {name: test.inputs[name] for name in names if name in test.inputs}})
            for test in cases
        ]
    wrong += [f"tests: there are none for {name!r}." for name in by_name if not tests.get(name)]
    if wrong:
        raise GenerationError("\n".join(wrong))
    return found


def _mismatches(test: FunctionTest, spec: FunctionSpec) -> list[str]:
    """Unknown and missing arguments."""
    names = [each.name for each in spec.inputs]
    unknown = [name for name in test.inputs if name not in names]
    missing = [name for name in names if name not in test.inputs and not _is_optional(spec, name)]
    takes = ", ".join(map(repr, names)) or "none"
    found = [f"the function has no argument {name!r}; it has {takes}" for name in unknown]
    return found + [f"the argument {name!r} is not given" for name in missing]


def _is_optional(spec: FunctionSpec, name: str) -> bool:
    """Whether the type in the spec says that the argument may be omitted."""
    text = next(each.type for each in spec.inputs if each.name == name).lower()
    return "=" in text or "optional" in text or "default" in text


_WIDEST, _WIDEST_OF_ZERO = 0.1, 0.01


def tolerance_problem(test: FunctionTest) -> str:
    """Why the tolerances of a test are too wide for one of its expected numbers; empty if they are not."""
    numbers = [abs(each) for each in parts(test.expected_output) if type(each) in (int, float)]
    sizes = [_WIDEST * min(each, 2.0**1_000) if each else _WIDEST_OF_ZERO for each in numbers]
    most = min(sizes, default=_WIDEST)
    rel, slack = test.rel or 0, test.abs or 0
    if rel <= _WIDEST and slack <= most:
        return ""
    return f"rel={rel:g} and abs={slack:g} are too wide; at most rel={_WIDEST:g} and abs={most:g} here"
