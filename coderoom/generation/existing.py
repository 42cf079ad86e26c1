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


def existing_functions(
    source: str, functions: Sequence[str], remark: str
) -> tuple[str, list[FunctionSpec], dict[str, str]]:
    """The instruction to write tests for functions of a module, and their specs and code. Nothing is executed.

    By default, all public functions at the top level are taken. The first one stands for the whole module: it has the
    code, and the others depend on it. If the module is not valid, or has no such function, that is a `RequestError`.
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
    about = f"\nRemark: {remark}\n" if remark.strip() else ""
    instruction = _INSTRUCTION.format(names=", ".join(names), remark=about, source=source)
    code = {names[0]: source, **dict.fromkeys(names[1:], f"# It is in the code of {names[0]}.")}
    return instruction, [_spec(known[name], names[:1] if name != names[0] else []) for name in names], code


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
