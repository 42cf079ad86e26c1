"""Function specs: their checks and the order in which functions can be written."""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from coderoom.errors import GenerationError
from coderoom.judge.data import Data, Name, validated

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
