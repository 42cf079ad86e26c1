"""Knows tests that see nothing of code but the results of calls, each on its own."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final


def plain_asserts(
    test: str, entry_point: str, before: str, names: Iterable[str]
) -> list[tuple[ast.Assert, list[ast.Call]]] | None:
    """The asserts of a test with their calls; `None` if it has more than asserts on calls with literal arguments.

    The arguments are the fields of a `TestCode`.
    """
    try:
        body = ast.parse(test).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    called = set(names)
    if entry_point:
        checks = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == "check"]
        others = [each for each in body if each not in checks and not _is_literal(getattr(each, "value", None))]
        if others or len(checks) != 1 or len(checks[0].args.args) != 1 or checks[0].decorator_list:
            return None
        body, called = checks[0].body, {checks[0].args.args[0].arg, entry_point}
    elif before.strip():
        return None
    found = []
    for each in body:
        if isinstance(each, ast.Assert) and _is_plain_assert(each, called, not entry_point):
            found.append((each, _calls(each.test, called, not entry_point)))
        elif not (isinstance(each, ast.Pass) or (isinstance(each, ast.Expr) and _is_literal(each.value))):
            return None
    return found


def _is_plain_assert(statement: ast.Assert, called: set[str], is_module: bool) -> bool:
    calls = _calls(statement, called, is_module)
    given = [each for call in calls for each in (*call.args, *(keyword.value for keyword in call.keywords))]
    functions = {call.func for call in calls}
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node not in functions]
    return (
        all(isinstance(node, _PLAIN) for node in ast.walk(statement))
        and all(map(_is_literal, given))
        and all(keyword.arg is not None for call in calls for keyword in call.keywords)
        and all(node.id in _PURE and node.id not in called for node in names)
    )


def _calls(node: ast.AST, called: set[str], is_module: bool) -> list[ast.Call]:
    """The calls of functions of the code, each after the others in it."""
    return [
        each
        for each in ast.walk(node)
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Name)
        and (each.func.id in called or (is_module and each.func.id not in _PURE))
    ]


def _is_literal(node: ast.AST | None) -> bool:
    return node is not None and all(isinstance(each, _LITERAL) for each in ast.walk(node))


_PURE: Final = frozenset(
    [
        *("abs", "all", "any", "bool", "bytes", "complex", "dict", "divmod", "float", "frozenset", "int", "isinstance"),
        *("len", "list", "max", "min", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple"),
    ]
)
_LITERAL: Final = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.UnaryOp, ast.BinOp),
    *(ast.unaryop, ast.operator, ast.expr_context),
)
_PLAIN: Final = (
    *(*_LITERAL, ast.Assert, ast.Compare, ast.Call, ast.Name, ast.BoolOp, ast.Subscript, ast.Slice, ast.keyword),
    *(ast.cmpop, ast.boolop, ast.JoinedStr, ast.FormattedValue),
)
