"""Analyses the code of a program and joins its functions to one module."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from coderoom.generation.languages.python.check import UNREADABLE, bindings, parsed
from coderoom.generation.languages.shared import Statement, find_repeats

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def tree_of(source: str) -> ast.Module | None:
    """The tree of code; `None` if it is invalid."""
    try:
        return parsed(source)
    except UNREADABLE:
        return None


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield node.module or ""


def imports_in(source: str) -> set[str]:
    """The top-level names of the modules that code imports."""
    tree = tree_of(source)
    return set() if tree is None else {name.split(".")[0] for node in ast.walk(tree) for name in _imported(node)}


def imported_names(source: str) -> dict[str, str]:
    """The names that the top level imports and does not rebind, and what each refers to; a star import has `*`."""
    tree = tree_of(source)
    found: dict[str, set[str]] = {}
    others: set[str] = set()
    for name, what in (each for node in (tree.body if tree is not None else ()) for each in bindings(node)):
        if what:
            found.setdefault(name, set()).add(what)
        elif what is not None:
            others.add(name)
    return {name: " or ".join(sorted(several)) for name, several in found.items() if name not in others}


_MOST = 300
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def without_repeats(source: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
    """See `Language.without_repeats`.

    Removed are definitions of the known functions, and of their helpers if they are the same or unused in the rest.
    Definitions that differ and are used stay, as do names bound other than by a definition; a later check rejects them.
    """
    lines = source.replace("\r\n", "\n").replace("\r", "\n")
    try:
        own = [*map(_statement, parsed(lines).body)]
        beside = [_statement(node) for code in known.values() for node in parsed(code).body]
        repeats = find_repeats(own, known, beside) if known and len(own) <= _MOST else []
        text = _without(lines, [each.node for each in repeats])
        # The removed lines may contain other statements, too.
        if repeats and [*map(ast.dump, parsed(text).body)] == [each.text for each in own if each not in repeats]:
            return text, [each.name for each in repeats]
    except UNREADABLE:
        pass
    return source, []


def _statement(node: ast.stmt) -> Statement:
    inside = [*ast.walk(node)]
    changes = {name for each in inside if isinstance(each, ast.Global) for name in each.names}
    uses = changes | {each.id for each in inside if isinstance(each, ast.Name)}
    is_callable = isinstance(node, _DEFINING)
    return Statement(node, _name(node), ast.dump(node), uses, changes, is_callable, _is_lasting(node))


def _name(node: ast.stmt) -> str:
    """The one name that a statement defines; empty if it is not a definition."""
    if isinstance(node, _DEFINING):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


def _is_lasting(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return all(map(_is_immutable, [*node.args.defaults, *filter(None, node.args.kw_defaults)]))
    return isinstance(node, _DEFINING) or _is_immutable(getattr(node, "value", None))


def _is_immutable(node: ast.expr | None) -> bool:
    """Whether a value is immutable."""
    if isinstance(node, ast.Tuple):
        return all(map(_is_immutable, node.elts))
    if isinstance(node, ast.BinOp):
        return _is_immutable(node.left) and _is_immutable(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_immutable(node.operand)
    return isinstance(node, ast.Constant)


def _without(source: str, repeats: Sequence[ast.stmt]) -> str:
    lines: list[str | None] = [*source.split("\n")]
    for node in repeats:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        last = node.end_lineno or node.lineno
        while last < len(lines) and not (lines[last] or "").strip():
            last += 1
        lines[first - 1 : last] = [None] * (last - first + 1)
    return "\n".join(line for line in lines if line is not None)


def python_module(implementations: Mapping[str, str], about: str) -> str:
    """The source of the module; its purpose becomes the docstring."""
    future: dict[str, None] = {}
    parts = []
    for source in implementations.values():
        text, features = _without_future(source)
        future.update(dict.fromkeys(features))
        parts.append(text.strip("\n"))
    head = _docstring(about)
    if future:  # It must come first.
        head += f"\n\nfrom __future__ import {', '.join(future)}"
    return "\n\n\n".join([head, *parts]) + "\n"


def _without_future(source: str) -> tuple[str, list[str]]:
    """Code without its `from __future__ import` statements, and the features that they enable."""
    lines = source.split("\n")
    features: list[str] = []
    tree = tree_of(source)
    for node in tree.body if tree is not None else ():  # Invalid code is reported elsewhere.
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            features += [alias.name for alias in node.names]
            last = node.end_lineno or node.lineno
            begin = lines[node.lineno - 1].encode()[: node.col_offset].decode()
            end = lines[last - 1].encode()[node.end_col_offset :].decode()
            # The same lines may contain other statements.
            lines[node.lineno - 1 : last] = [f"{begin}pass{end}" if (begin + end).strip() else ""] + [""] * (
                last - node.lineno
            )
    return "\n".join(lines), features


def _docstring(about: str) -> str:
    text = "".join(char if char.isprintable() or char == "\n" else " " for char in about).strip() or "Functions."
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    space = " " if text.endswith('"') else ""
    return f'"""{text}{space}"""'
