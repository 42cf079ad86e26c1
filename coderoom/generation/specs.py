"""What a program must do: specs of functions, in the order in which they can be written, and tests, read from data."""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from coderoom.errors import GenerationError
from coderoom.judge import FunctionTest
from coderoom.judge.cases import Data, Name, problems_of_steps, validated
from coderoom.judge.values import parts

_MOST = 200
_LONGEST = 20_000


class FunctionInput(Data):
    """An argument of a function.

    Attributes:
        name: Its name.
        type: Its type, in words or as an annotation.
    """

    name: Name
    type: str = Field(max_length=_LONGEST)


class FunctionOutput(Data):
    """What a function returns.

    Attributes:
        type: Its type, in words or as an annotation.
        description: What it means.
    """

    type: str = Field(max_length=_LONGEST)
    description: str = Field(default="", max_length=_LONGEST)


class FunctionSpec(Data):
    """The specification of a function.

    Attributes:
        name: Its name.
        purpose: What it does.
        inputs: Its arguments, in order.
        outputs: What it returns.
        dependencies: The functions of the same program that it calls.
        complexity: How hard it is to write.
    """

    name: Name
    purpose: str = Field(min_length=1, max_length=_LONGEST)
    inputs: tuple[FunctionInput, ...] = Field(default=(), max_length=50)
    outputs: FunctionOutput
    dependencies: tuple[Name, ...] = Field(default=(), max_length=_MOST)
    complexity: Literal["simple", "medium", "complex"] = "medium"

    @model_validator(mode="after")
    def _check(self) -> FunctionSpec:
        if twice := _twice([each.name for each in self.inputs]):
            raise ValueError(f"the argument {twice!r} of {self.name!r} is listed twice")
        if self.name in self.dependencies:
            raise ValueError(f"{self.name!r} is one of its own dependencies; recursion is not a dependency")
        if twice := _twice(self.dependencies):
            raise ValueError(f"the dependency {twice!r} of {self.name!r} is listed twice")
        return self


_SPECS: TypeAdapter[list[FunctionSpec]] = TypeAdapter(list[FunctionSpec])


def read_specs(data: Any) -> list[FunctionSpec]:
    """Read specs from JSON-like data and check them, each alone and all together.

    Args:
        data: A list of mappings.

    Raises:
        GenerationError: The data is invalid; the message lists every mistake.
    """
    specs = validated(_SPECS, data, "specs")
    order(specs)
    return specs


def order(specs: Sequence[FunctionSpec]) -> list[list[FunctionSpec]]:
    """Group functions into layers, each of which depends only on earlier ones.

    Args:
        specs: The specs. A layer keeps their order.

    Raises:
        GenerationError: A function is listed twice, a dependency is unknown, or there is a dependency cycle; the
            message names it.
    """
    by_name = {spec.name: spec for spec in specs}
    wrong = []
    if not specs:
        wrong.append("There is no function; at least one is needed.")
    if len(specs) > _MOST:
        wrong.append(f"There are {len(specs)} functions; at most {_MOST} are allowed.")
    if twice := _twice([spec.name for spec in specs]):
        wrong.append(f"The function {twice!r} is listed twice.")
    for spec in specs:
        if unknown := ", ".join(repr(name) for name in spec.dependencies if name not in by_name):
            known = ", ".join(map(repr, by_name))
            wrong.append(f"{spec.name!r} depends on {unknown}, which is not among the functions {known}.")
    if wrong:
        raise GenerationError("\n".join(wrong))
    sorter = graphlib.TopologicalSorter({spec.name: spec.dependencies for spec in by_name.values()})
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise GenerationError(
            f"There is a dependency cycle: {cycle}. Remove one of these dependencies, or merge the functions."
        ) from error
    layers = []
    while sorter.is_active():
        ready = sorter.get_ready()
        sorter.done(*ready)
        layers.append([spec for spec in specs if spec.name in ready])
    return layers


def _twice(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


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
            takes = ", ".join(repr(each.name) for each in spec.inputs) or "none"
            known = {each.name for each in spec.inputs}
            unknown = [name for name in test.inputs if name not in known]
            optional = ("=", "optional", "default")  # In the words of the type.
            needed = [each.name for each in spec.inputs if not any(word in each.type.lower() for word in optional)]
            missing = [name for name in needed if name not in test.inputs]
            problems = [
                *(f"the function has no argument {name!r}; it has {takes}" for name in unknown),
                *(f"the argument {name!r} is not given" for name in missing),
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
