"""Checks Python before it runs: the form of code, and what the scanner `bandit` finds."""

from __future__ import annotations

import ast
import contextlib
import io
import logging
import tempfile
import typing
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from coderoom.generation.languages import (
    CodeProblem,
    Level,
    SecurityFinding,
    binding_problem,
    import_problem,
    parameter_problems,
)
from coderoom.generation.specs import FunctionSpec
from coderoom.judge.source import parsed, words

_LONGEST = 200_000
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = _Function | ast.ClassDef | ast.Lambda
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def check_implementation(
    source: str,
    spec: FunctionSpec,
    *,
    taken: Mapping[str, str] | None = None,
    allowed_imports: Collection[str] | None = None,
) -> list[CodeProblem]:
    """Check the code of a function.

    Its top level runs when the code is loaded; a block `if __name__ == "__main__":` never does. See
    `Language.without_examples` for what is removed before.

    Args:
        source: The code.
        spec: The function that it must define.
        taken: Names that the code of other functions defines, each with that function.
        allowed_imports: The modules that may be imported, with their submodules; `None`: all.

    Returns:
        The problems, in the order of the lines.
    """
    tree = _parse(source)
    if isinstance(tree, CodeProblem):
        return [tree]
    found = [*_of_imports(tree, allowed_imports), *_of_function(tree, spec)]
    for node in tree.body:
        problems = [binding_problem(name, spec, taken) for name, _ in bindings(node)]
        found += [CodeProblem(line=node.lineno, text=text) for text in problems if text]
    return sorted(found, key=lambda problem: problem.line or 0)


def names_defined(source: str) -> list[str]:
    """The names that code defines at its top level; none if it is invalid."""
    tree = _parse(source)
    if isinstance(tree, CodeProblem):
        return []
    return [name for node in tree.body for name, imported in bindings(node) if not imported]


def _parse(source: str) -> ast.Module | CodeProblem:
    if len(source) > _LONGEST:
        return CodeProblem(line=None, text=f"the code has {len(source):,} characters; at most {_LONGEST:,} are allowed")
    try:
        return parsed(source)
    except SyntaxError as error:
        return CodeProblem(line=error.lineno, text=f"this is not valid Python: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return CodeProblem(line=None, text=f"this is not valid Python: {error}")


def without_examples(source: str) -> tuple[str, list[str]]:
    """See `Language.without_examples`: `print`, `assert`, and calls of functions that print or assert, also in loops.

    Other calls stay: they may prepare what the functions use, and otherwise do no harm.
    """
    tree = _parse(source)
    if isinstance(tree, CodeProblem):
        return source, []
    functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
    preparing = {name for name, node in functions.items() if _prepares(node, parameters_of(node.args))}
    while others := {name for name, node in functions.items() if _called(node) & preparing} - preparing:
        preparing |= others
    own = {name for name, node in functions.items() if _shows(node) and not _prepares(node)} - preparing
    examples = [node for node in tree.body if _is_example(node, own)]
    lines: list[str | None] = [*source.split("\n")]
    notes = []
    for node in examples:
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        alone = sum(other.lineno - 1 < last and (other.end_lineno or 0) > first for other in tree.body) == 1
        if alone and "\r" not in source:
            lines[first:last] = [None] * (last - first)
            notes.append(f"line {node.lineno}, an example at the top level, was removed")
    return "\n".join(line for line in lines if line is not None), notes


def _called(node: ast.AST) -> set[str]:
    """The names that are called in statements of their own."""
    calls = (each.value for each in ast.walk(node) if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call))
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def _shows(node: _Function) -> bool:
    """Whether a function prints or asserts something."""
    called = {getattr(each.func, "id", "") for each in ast.walk(node) if isinstance(each, ast.Call)}
    return "print" in called or any(isinstance(each, ast.Assert) for each in ast.walk(node))


def _prepares(node: _Function, parameters: Iterable[tuple[ast.arg, bool]] = ()) -> bool:
    """Whether a function changes values other than its own and these parameters, such as a table for later calls."""
    own = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
    own.update(each.arg for each, _ in parameters)
    for each in ast.walk(node):
        target = each.func if isinstance(each, ast.Call) else each
        if isinstance(each, ast.Global):
            return True
        if isinstance(target, ast.Subscript | ast.Attribute):
            stores = isinstance(target.ctx, ast.Store | ast.Del)
            changes = isinstance(each, ast.Call) and isinstance(target, ast.Attribute) and target.attr in _CHANGING
            while (stores or changes) and isinstance(target, ast.Subscript | ast.Attribute):
                target = target.value
            if isinstance(target, ast.Name) and target.id not in own:
                return True
    return False


_CHANGING = words(
    "add append appendleft clear discard extend insert pop popleft push put register remove reverse setdefault sort "
    "update"
)
"""Methods that change their object."""


def _is_example(node: ast.stmt, own: Collection[str]) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        return isinstance(function, ast.Name) and (function.id == "print" or function.id in own)
    names = {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)} if isinstance(node, ast.If) else ()
    if isinstance(node, ast.For | ast.If) and "__name__" not in names:
        return not node.orelse and all(_is_example(each, own) for each in node.body)
    return isinstance(node, ast.Assert)


def _of_imports(tree: ast.Module, allowed: Collection[str] | None) -> Iterator[CodeProblem]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield CodeProblem(line=node.lineno, text="relative imports are not possible here")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            problems = [import_problem(name, name.split("."), allowed, ".") for name in names]
            yield from (CodeProblem(line=node.lineno, text=text) for text in problems if text)
        elif allowed is not None and isinstance(node, ast.Name) and node.id == "__import__":
            text = "__import__() is not available; import one of the allowed modules"
            yield CodeProblem(line=node.lineno, text=text)


def _is_overload(node: ast.stmt) -> bool:
    return any(ast.unparse(each).split(".")[-1] == "overload" for each in getattr(node, "decorator_list", ()))


def _definitions(node: ast.stmt, name: str) -> Iterator[_Definition]:
    """The definitions of a function in a statement, also within `if` and `try`."""
    if isinstance(node, _DEFINING):
        if node.name == name and not _is_overload(node):
            yield node
    elif isinstance(node, ast.Assign):
        if isinstance(node.value, ast.Lambda) and [each for each, _ in bindings(node)] == [name]:
            yield node.value
    elif isinstance(node, ast.If | ast.Try):
        for each in ast.iter_child_nodes(node):
            for inner in each.body if isinstance(each, ast.ExceptHandler) else [each]:
                if isinstance(inner, ast.stmt):
                    yield from _definitions(inner, name)


def _of_function(tree: ast.Module, spec: FunctionSpec) -> list[CodeProblem]:
    found = [[*_definitions(node, spec.name)] for node in tree.body]
    defining = [several for several in found if several]
    if not defining:
        return [CodeProblem(line=None, text=f"it does not define the function {spec.name!r} at its top level")]
    first = defining[0][0]
    if len(defining) > 1:
        return [CodeProblem(line=defining[1][0].lineno, text=f"it defines the function {spec.name!r} twice")]
    others = [node for node, several in zip(tree.body, found, strict=True) if not several and not _is_overload(node)]
    if any(spec.name == name for node in others for name, _ in bindings(node)):
        text = f"{spec.name!r} is defined as the function and as something else"
        return [CodeProblem(line=first.lineno, text=text)]
    problems = []
    for function in defining[0]:
        makers: list[Any] = [function]
        if isinstance(function, ast.ClassDef):
            makers = [node for node in function.body if isinstance(node, _Function) and node.name == "__init__"]
        if makers:
            taken = parameters_of(makers[0].args, skipped=function is not makers[0])
            texts = parameter_problems(spec, [(each.arg, optional) for each, optional in taken])
            problems += [CodeProblem(line=makers[0].lineno, text=text) for text in texts]
    return problems


def parameters_of(arguments: ast.arguments, skipped: int = 0) -> list[tuple[ast.arg, bool]]:
    """The parameters of a function, and whether each may be omitted."""
    positional = [*arguments.posonlyargs, *arguments.args][skipped:]
    first = len(positional) - len(arguments.defaults)
    found = [(each, number >= first) for number, each in enumerate(positional)]
    found += [(arguments.vararg, True)] if arguments.vararg else []
    found += [
        (each, default is not None) for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return found + ([(arguments.kwarg, True)] if arguments.kwarg else [])


def bindings(statement: ast.stmt) -> Iterator[tuple[str, str | None]]:
    """The names that a statement binds in its own scope, each with what it imports; empty if nothing.

    It is `None` for a name that stays what it is, but an attribute or item of which is set.
    """
    left: list[ast.AST] = [statement]
    while left:
        node = left.pop()
        base = node
        while isinstance(base, ast.Attribute | ast.Subscript):
            base = base.value
        if isinstance(node, ast.Import):
            for each in node.names:
                yield (each.asname, each.name) if each.asname else 2 * (each.name.partition(".")[0],)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for each in node.names:
                module = node.module or ""
                if module == "typing":  # Aliases there count as their originals in `collections.abc`.
                    origin = getattr(getattr(typing, each.name, None), "__origin__", None)
                    of_origin = getattr(origin, "__module__", ""), getattr(origin, "__name__", "")
                    module = "collections.abc" if of_origin == ("collections.abc", each.name) else module
                yield each.asname or each.name, f"{module}.{each.name}"
        elif isinstance(node, (*_DEFINING, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name, ""
        elif isinstance(base, ast.Name) and isinstance(getattr(node, "ctx", None), ast.Store):
            yield base.id, "" if base is node else None
        inside: list[ast.AST] = [node.target] if isinstance(node, ast.comprehension) else []  # It has its own scope.
        if isinstance(node, (*_DEFINING, ast.Lambda)):
            inside = [*node.body] if isinstance(node.body, list) else [node.body]
        left += [each for each in reversed([*ast.iter_child_nodes(node)]) if each not in inside]


def scan(source: str, *, severity: Level = "medium", confidence: Level = "medium") -> list[SecurityFinding]:
    """Scan Python code for security problems. This is early feedback, not security.

    Comments like `# nosec` are ignored, since the author of the code is not trusted.

    Args:
        source: The code. Invalid Python has no findings.
        severity: The lowest severity to report.
        confidence: The lowest confidence to report.
    """
    with (
        contextlib.ExitStack() as stack,
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(action="ignore"),
        tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8", errors="replace") as file,
    ):
        from bandit.core import config, manager  # type: ignore[import-untyped]

        for each in map(logging.getLogger, ("bandit", "stevedore")):  # Invalid files are reported elsewhere.
            stack.callback(each.setLevel, each.level)
            each.setLevel(logging.CRITICAL)
        if not source:
            return []
        file.write(source)
        file.flush()
        scanner = manager.BanditManager(config.BanditConfig(), "file", quiet=True, ignore_nosec=True)
        scanner.discover_files([file.name])
        scanner.run_tests()
        issues = scanner.get_issue_list(severity.upper(), confidence.upper())
    found = [
        SecurityFinding(
            severity=issue.severity.lower(),
            confidence=issue.confidence.lower(),
            id=issue.test_id,
            text=issue.text,
            line=issue.lineno,
        )
        for issue in issues
    ]
    return sorted(found, key=lambda finding: (finding.line, finding.id))
