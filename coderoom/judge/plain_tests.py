"""Knows tests that see nothing of code but the results of calls, each on its own."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coderoom.judge.apart import TestCode


def is_plain(test: TestCode) -> bool:
    """Whether a test is made of asserts on the results of calls with literal arguments, and of nothing else."""
    try:
        body = ast.parse(test.test).body
    except (SyntaxError, ValueError, RecursionError):
        return False
    called = set(test.names)
    if test.entry_point:
        checks = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == "check"]
        others = [each for each in body if each not in checks and not _is_literal(getattr(each, "value", None))]
        if others or len(checks) != 1 or len(checks[0].args.args) != 1 or checks[0].decorator_list:
            return False
        body, called = checks[0].body, {checks[0].args.args[0].arg}
    elif test.before.strip():
        return False
    return all(_is_plain_assert(each, called, not test.entry_point) for each in body)


def _is_plain_assert(statement: ast.stmt, called: set[str], is_module: bool) -> bool:
    if isinstance(statement, ast.Pass) or (isinstance(statement, ast.Expr) and _is_literal(statement.value)):
        return True
    if not isinstance(statement, ast.Assert):
        return False
    functions = set()
    for node in ast.walk(statement):
        if not isinstance(node, _PLAIN):
            return False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in called or (is_module and name not in _PURE):
                functions.add(node.func)
                given = [*node.args, *(each.value for each in node.keywords)]
                if not all(map(_is_literal, given)) or any(each.arg is None for each in node.keywords):
                    return False
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node not in functions]
    return all(node.id in _PURE and node.id not in called for node in names)


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
