"""What languages have in common: the jobs of tests, checks of code, and which definitions of a reply repeat others."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coderoom.generation.specs import FunctionSpec

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest


def plain_inputs(test: FunctionTest) -> dict[str, Any]:
    """The inputs that a property sees: those that are data."""
    if not test.has_steps:
        return test.inputs
    return {name: data for name, data in test.inputs.items() if '"$name"' not in json.dumps(data)}


def job_of(function: str, test: FunctionTest, functions: Sequence[str]) -> dict[str, Any]:
    """The job for the process with the code. It has neither the name of the test nor what is expected."""
    job: dict[str, Any] = {"function": function, "inputs": test.inputs}
    if test.has_steps:
        steps = test.model_dump(mode="json", include={"setup", "then"})
        job |= {"functions": list(functions), **{kind: each for kind, each in steps.items() if each}}
    if test.expects == "property":
        job["judged"] = True
    return {**job, "after": True} if test.sees_after else job


def parameter_problems(spec: FunctionSpec, parameters: Sequence[tuple[str, bool]]) -> list[str]:
    """What is wrong with parameters: their names (empty for a pattern), and whether each may be omitted."""
    names = [name for name, _ in parameters]
    wanted = [each.name for each in spec.inputs]
    signature = f"{spec.name}({', '.join(wanted)})"
    wrong = [f"the parameter {name!r} of {signature} is missing" for name in wanted if name not in names]
    wrong += [
        f"{name or 'a pattern'!r} is not a parameter of {signature}; remove it or give it a default"
        for name, optional in parameters
        if name not in wanted and not (optional and name)
    ]
    if not wrong and [name for name in names if name in wanted] != wanted:
        wrong.append(f"the parameters must be in the order of {signature}")
    return wrong


def binding_problem(name: str, spec: FunctionSpec, taken: Mapping[str, str] | None) -> str:
    """Why the code of a function may not bind a name at its top level; empty if it may."""
    owner = (taken or {}).get(name, spec.name)
    if name in spec.dependencies:
        return f"{name!r} is another function, which exists when this code runs; do not define it"
    if owner == spec.name:
        return ""
    if owner == name:
        return f"{name!r} is another function of the program; do not define it here, or use another name"
    return f"{name!r} is already defined by the code of {owner!r}; use another name"


def import_problem(name: str, parts: Sequence[str], allowed: Collection[str] | None, separator: str) -> str:
    """Why a module may not be imported; empty if it or a package that it is in is allowed."""
    if allowed is None or any(separator.join(parts[:count]) in allowed for count in range(1, len(parts) + 1)):
        return ""
    return f"the module {name!r} may not be imported; allowed are {', '.join(sorted(allowed)) or 'none'}"


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement at the top level of code.

    Attributes:
        node: Its node.
        name: The one name that it defines; empty if it is not a definition.
        text: The same text for the same definition.
        uses: The names in it.
        is_callable: Whether it defines a function or a class.
        is_constant: Whether it defines one of these, or an immutable value.
    """

    node: Any
    name: str
    text: str
    uses: Collection[str]
    is_callable: bool
    is_constant: bool


def find_repeats(own: Sequence[Statement], known: Collection[str], beside: Sequence[Statement]) -> list[Statement]:
    """The statements of code that repeat others. Names that are then still defined twice are refused later.

    Args:
        own: The statements of the code.
        known: The functions that exist when it runs. Definitions of them are repeats.
        beside: The statements of these functions. Their helpers are repeats if they are the same or not used.
    """
    found: list[Statement] = []
    there = {each.name: each.text for each in beside if each.name}
    count = -1
    while len(found) > count:  # Removing a repeat may leave others unused.
        count = len(found)
        for each in [one for one in own if one not in found]:
            used = any(each.name in other.uses for other in own if other is not each and other not in found)
            same = each.is_constant and each.text == there.get(each.name)
            if each.is_callable if each.name in known else each.name in there and (same or not used):
                found.append(each)
    return found
