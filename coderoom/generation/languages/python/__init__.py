"""`PythonLanguage`, used by the generator through `Language`, and functions that exist already, for their tests."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping, Sequence

from coderoom.errors import RequestError
from coderoom.generation.languages import Language, SecurityFinding, Statement
from coderoom.generation.languages.python import check as checks
from coderoom.generation.languages.python import declared
from coderoom.generation.languages.python.check import bindings, parameters_of
from coderoom.generation.languages.python.pytest_file import pytest_files
from coderoom.generation.specs import FunctionInput, FunctionOutput, FunctionSpec
from coderoom.judge import FunctionTest
from coderoom.judge.harness import PythonHarness, tree_of
from coderoom.judge.source import UNREADABLE, parsed, parsed_expression

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class PythonLanguage(PythonHarness, Language):
    """Python, tested in a session of the engine `cpython`."""

    name = "python"
    labels = frozenset({"python", "py", "python3"})
    suffix = ".py"
    ways = (
        "Python 3. The top level of the code has imports, definitions and constants, and no examples. The parameters "
        "have the names of the spec, in its order. A wrong argument raises a fitting built-in exception, such as "
        "ValueError or TypeError. There is no network, and nobody to answer input()."
    )

    as_declared = staticmethod(declared.as_declared)
    fits = staticmethod(declared.fits)
    unclear = staticmethod(declared.unclear)
    without_examples = staticmethod(checks.without_examples)
    check = staticmethod(checks.check_implementation)
    names_defined = staticmethod(checks.names_defined)

    def signature(self, spec: FunctionSpec) -> str:
        """See `Language.signature`; a type that is not a valid expression is omitted."""
        parameters = [f"{each.name}: {each.type}" if _is_type(each.type) else each.name for each in spec.inputs]
        returned = f" -> {spec.outputs.type}" if _is_type(spec.outputs.type) else ""
        return f"def {spec.name}({', '.join(parameters)}){returned}:"

    def statements(self, text: str) -> list[Statement]:
        """See `Language.statements`; each has all of its lines."""
        ends = [*itertools.accumulate(len(line) + 1 for line in text.encode("utf-8", "surrogatepass").split(b"\n"))]
        return [_statement(node, ends) for node in tree_of(text).body]

    def imports(self, source: str) -> dict[str, str]:
        """See `Language.imports`."""
        found: dict[str, set[str]] = {}
        others: set[str] = set()
        for name, what in (each for node in tree_of(source).body for each in bindings(node)):
            if what:
                found.setdefault(name, set()).add(what)
            elif what is not None:
                others.add(name)
        return {name: " or ".join(sorted(several)) for name, several in found.items() if name not in others}

    def scan(self, source: str) -> list[SecurityFinding]:
        """See `Language.scan`."""
        return checks.scan(source, severity="low")

    def program(self, sources: Mapping[str, str]) -> str:
        """See `Language.program`."""
        return self.marked(self.write_module(sources, self.about))

    def write_tests(
        self, tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec] = ()
    ) -> dict[str, str]:
        """See `Language.write_tests`; the files are for pytest."""
        return pytest_files(tests, module, [spec.name for spec in specs] or list(tests))


def _is_type(text: str) -> bool:
    try:
        parsed_expression(text)
    except UNREADABLE:
        return False
    return True


def imports_in(source: str) -> set[str]:
    """The top-level names of the modules that code imports."""
    names: list[str] = []
    for node in ast.walk(tree_of(source)):
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return {name.split(".")[0] for name in names}


def _statement(node: ast.stmt, ends: Sequence[int]) -> Statement:
    inside = [*ast.walk(node)]
    uses = {name for each in inside if isinstance(each, ast.Global) for name in each.names}
    uses |= {each.id for each in inside if isinstance(each, ast.Name)}
    is_callable = isinstance(node, _DEFINING)
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    value = getattr(node, "value", None)
    kinds = ast.Constant | ast.Tuple | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.expr_context
    is_immutable = value is not None and all(isinstance(each, kinds) for each in ast.walk(value))
    return Statement(
        span=(ends[first - 2] if first > 1 else 0, ends[(node.end_lineno or node.lineno) - 1]),
        name=_name(node),
        text=ast.dump(node),
        uses=uses,
        is_callable=is_callable,
        is_constant=is_callable or is_immutable,
    )


def _name(node: ast.stmt) -> str:
    """The one name that a statement defines; empty if it is not a definition."""
    if isinstance(node, _DEFINING):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


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
        raise RequestError(f"The module is not valid Python: {str(error).replace('<unknown>, ', '')}") from error
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
