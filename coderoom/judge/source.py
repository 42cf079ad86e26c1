"""Python source as the judge reads it: how it is parsed, the expressions of properties, and types in words."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The exceptions that parsing raises for invalid Python."""


def parsed(source: str) -> ast.Module:
    """Parse code without showing its syntax warnings."""
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(source)


def parsed_expression(source: str) -> ast.expr:
    """Parse an expression without showing its syntax warnings."""
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(source, mode="eval").body


def words(text: str) -> frozenset[str]:
    """The words of a text, which are names."""
    return frozenset(text.split())


_OPEN = frozenset(dir(builtins)) | {"math"}
_VARYING = words("breakpoint callable compile exec globals hash id input locals open")
_PLAIN = "collections|decimal|fractions|itertools|json|math|re|string"
_REACHING = rf"__import__(?!\(['\"](?:{_PLAIN})['\"]\))|__(?:builtins|globals|loader|spec|subclasses)__"
"""Also forbidden within text that `eval` gets."""


_ASKING = words("isinstance issubclass hasattr __import__")
_EXACT = words("type str repr ascii format")
"""Functions that ask for types, and those that ask for the exact one, or a text."""


def check_property(text: str, inputs: Mapping[str, Any]) -> None:
    """Check the Python expression of a property, which may use the inputs of its test; a mistake is a `ValueError`."""
    try:
        tree = parsed_expression(text)
        names = names_in(text)
        with warnings.catch_warnings(action="ignore"):
            compile(text, "property", "eval")  # Finds some errors that parsing does not.
    except UNREADABLE as error:
        raise ValueError(f"property: it is not valid Python: {error}") from error
    varying = sorted(names & _VARYING) or re.findall(_REACHING, text)
    if varying:
        raise ValueError(f"property: it must depend only on the values that it sees; do not use {varying[0]!r}")
    unknown = sorted(names - _OPEN - {"result", "after", *inputs})
    if unknown:
        listed = ", ".join(map(repr, unknown))
        known = "result, the inputs, after, math and builtins"
        raise ValueError(f"property: unknown name {listed}; known are {known}")
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    if any(_has_order_of_set(side) for node in compared for side in (node.left, *node.comparators)):
        raise ValueError("property: the order of a set is another one in each process; compare with sorted(...)")
    identities = [node for node in compared if any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops)]
    if not all(any(map(_is_single, (node.left, *node.comparators))) for node in identities):
        raise ValueError(
            "property: it sees copies of the values, so `is` compares only with None, True, False and types"
        )
    changing = any(isinstance(data, dict | list) for data in inputs.values())  # Other arguments stay as they are.
    results = {"result"} | ({"after"} & names if changing else set()) - set(inputs)
    if not any(isinstance(node, ast.Name) and node.id in results for node in ast.walk(tree)):
        raise ValueError("property: it does not use result")


def judged_by(text: str) -> str:
    """What a property sees of the values, as `Job` says."""
    found = {"values"}
    for node in ast.walk(parsed_expression(text)):
        subject: ast.AST | None = None
        asks = exact = False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            exact = node.func.id in _EXACT
            asks = exact or node.func.id in _ASKING
            subject = node.args[0] if node.args else None
        elif isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            asks = any(isinstance(each, ast.Constant) and isinstance(each.value, bool) for each in sides) and any(
                isinstance(each, ast.Is | ast.IsNot) for each in node.ops
            )
        elif isinstance(node, ast.Attribute | ast.FormattedValue):
            asks = exact = getattr(node, "attr", "__class__") in ("__class__", "__dict__", "format")
            subject = node.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            asks = exact = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
            subject = node.right
        found |= {"types"} if asks else set()
        found |= {"exact"} if exact else set()
        found |= {"result"} if asks and isinstance(subject, ast.Name) and subject.id == "result" else set()
    return " ".join(sorted(found))


def _is_single(node: ast.expr) -> bool:
    """Whether an expression is None, a truth value or the type of something, of which there is only one."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "type"
    return isinstance(node, ast.Constant) and isinstance(node.value, bool | None)


def _has_order_of_set(node: ast.expr) -> bool:
    """Whether an expression is a list or tuple of a set."""
    if isinstance(node, ast.List | ast.Tuple):
        return any(isinstance(each, ast.Starred) and _is_set(each.value) for each in node.elts)
    is_copy = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple")
    return is_copy and any(map(_is_set, node.args))  # type: ignore[attr-defined]


def _is_set(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(node, ast.Set | ast.SetComp) or getattr(called, "id", "") in ("set", "frozenset")


def names_in(text: str) -> set[str]:
    """The names that an expression does not define itself."""
    with warnings.catch_warnings(action="ignore"):
        whole, *inner = scopes_of(symtable.symtable(text, "property", "eval"))
    names = {symbol.get_name() for symbol in whole.get_symbols() if not symbol.is_assigned()}
    return names.union(symbol.get_name() for scope in inner for symbol in scope.get_symbols() if symbol.is_global())


def scopes_of(scope: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """A scope and all scopes in it."""
    yield scope
    for child in scope.get_children():
        yield from scopes_of(child)


WRAPPERS = ("annotated", "promise", "awaitable", "readonly")
"""Types, in lowercase, that stand for the one that they are given."""
_BRACKETS = str.maketrans("<>;", "[],")
_NONE = ast.Constant(None)


def named(kind: ast.expr) -> tuple[str, Sequence[ast.expr]]:
    """The last name of a type and its parameters. Optional types and those joined with `|` are `Union`."""
    if isinstance(kind, ast.BinOp) and isinstance(kind.op, ast.BitOr):
        return "Union", (kind.left, kind.right)
    if isinstance(kind, ast.Subscript):
        inner, name = kind.slice, named(kind.value)[0]
        parts = inner.elts if isinstance(inner, ast.Tuple) and inner.elts else [inner]
        return ("Union", [*parts, _NONE]) if name == "Optional" else (name, parts)
    if isinstance(kind, ast.Attribute):
        return kind.attr, ()
    if isinstance(kind, ast.Constant) and kind.value is None:
        return "None", ()
    return (kind.id if isinstance(kind, ast.Name) else ""), ()


def read_type(text: str) -> ast.expr:
    """A type as an expression: Python's, `T[]` and `Array<T>` of TypeScript, `str (a note)`."""
    return parsed_expression(text.partition(" (")[0].translate(_BRACKETS).replace("[]", "[...]").strip())


def is_dots(kind: ast.expr) -> bool:
    """Whether a type is `...`, of which there may be any number."""
    return isinstance(kind, ast.Constant) and kind.value is ...
