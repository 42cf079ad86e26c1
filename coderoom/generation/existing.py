"""Reads functions that exist already, so that tests can be written for them. Used by the generator."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from coderoom.errors import RequestError
from coderoom.generation.languages.python.check import UNREADABLE, parameters_of, parsed
from coderoom.generation.specs import FunctionInput, FunctionOutput, FunctionSpec

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_INSTRUCTION = """\
Write tests for {names}, functions of a module that exists already. The tests say what the functions should do according
to their names, their documentation and the remark, if there is one. The code may have faults, which the tests find.
{remark}
The module:

{source}"""


def instruction_for(source: str, specs: Sequence[FunctionSpec], remark: str) -> str:
    """The instruction with which a model writes tests for functions of a module."""
    names = ", ".join(spec.name for spec in specs)
    return _INSTRUCTION.format(names=names, remark=f"\nRemark: {remark}\n" if remark.strip() else "", source=source)


def code_of(source: str, specs: Sequence[FunctionSpec]) -> dict[str, str]:
    """The code for each function: the first one has the whole module."""
    first = specs[0].name
    return {spec.name: source if spec.name == first else f"# It is in the code of {first}." for spec in specs}


def existing_specs(source: str, functions: Sequence[str] = ()) -> list[FunctionSpec]:
    """The specs of functions of a module, from their signatures and documentation. Nothing is executed.

    Args:
        source: The source of the module.
        functions: The functions; by default all public ones at the top level.

    Returns:
        The specs. The first function stands for the whole module, so the others depend on it.

    Raises:
        RequestError: The source is not valid Python, or there is no such function.
    """
    try:
        body = parsed(source).body
    except UNREADABLE as error:
        raise RequestError(f"The module is not valid Python: {error}") from error
    known = {node.name: node for node in body if isinstance(node, _Function)}
    names = list(dict.fromkeys(functions)) or [name for name in known if not name.startswith("_")]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        there = f"; there are {', '.join(map(repr, known))}" if known else ""
        what = f"no function {unknown[0]!r}" if unknown else "no public function"
        raise RequestError(f"The module has {what} at its top level{there}.")
    return [_spec(known[name], names[:1] if name != names[0] else []) for name in names]


def _spec(node: _Function, dependencies: Sequence[str]) -> FunctionSpec:
    return FunctionSpec(
        name=node.name,
        purpose=ast.get_docstring(node) or f"See the code of {node.name}.",
        inputs=tuple(
            FunctionInput(name=each.arg, type=_type(each.annotation) + (" = default" if optional else ""))
            for each, optional in parameters_of(node.args)
        ),
        outputs=FunctionOutput(type=_type(node.returns)),
        dependencies=tuple(dependencies),
    )


def _type(annotation: ast.expr | None) -> str:
    return "Any" if annotation is None else ast.unparse(annotation)
