"""What the type checker knows of functions: those of the host, and those that earlier code has defined."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable

from coderoom.sandbox import HostFunction

_HEAD = """\
from typing import *
type _Bool = bool | Literal[0, 1]
type _List = list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]
type _ListOf[T] = list[T] | tuple[T, ...] | set[T] | frozenset[T]
"""
_LISTS = ("List", "Sequence", "Iterable", "Collection", "list")
_OTHER_LISTS = ("tuple", "set", "frozenset", "Tuple", "Set", "FrozenSet")


def host_stubs(functions: Iterable[HostFunction]) -> str:
    """A module with these functions; one whose signature is not Python takes anything."""
    return _HEAD + "\n".join(_host_stub(each) for each in functions)


def session_stubs(functions: Iterable[ast.FunctionDef | ast.AsyncFunctionDef]) -> str:
    """A module with these functions without their types, which Python does not check."""
    return "\n".join(["from typing import Any", *(_stub(each, typed=False) for each in functions)])


def as_shown(message: str) -> str:
    """A message of the checker, with the types as functions give them."""
    return message.replace("_ListOf[", "list[").replace("_List", "list").replace("_Bool", "bool")


def _host_stub(function: HostFunction) -> str:
    try:
        (node,) = ast.parse(f"{function.header}: ...").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return f"{function.name}: Any"
    return _stub(node, typed=True) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""


def _stub(node: ast.FunctionDef | ast.AsyncFunctionDef, *, typed: bool) -> str:
    given = copy.deepcopy(node.args)
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + given.defaults
    for each, default in [*zip(plain, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]:
        each.annotation = _as_taken(each.annotation, default) if typed and each.annotation else None
    for rest in (given.vararg, given.kwarg):
        if rest is not None:
            rest.annotation = None
    anything = ast.Constant(...)
    arguments = ast.arguments(
        posonlyargs=given.posonlyargs,
        args=given.args,
        vararg=given.vararg,
        kwonlyargs=given.kwonlyargs,
        kw_defaults=[each and anything for each in given.kw_defaults],
        kwarg=given.kwarg,
        defaults=[anything for _ in given.defaults],
    )
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{kind} {node.name}({ast.unparse(arguments)}) -> Any: ..."


def _as_taken(annotation: ast.expr, default: ast.expr | None) -> ast.expr:
    """The type of all that is taken for an argument: it crosses the wall as data, and its default may be given."""
    taken: ast.expr = _Wider().visit(annotation)
    if isinstance(default, ast.Constant) and default.value is None:
        return ast.BinOp(taken, ast.BitOr(), ast.Constant(None))
    return taken


class _Wider(ast.NodeTransformer):
    """Lets a list be a tuple or a set too, and the other way round, and a `bool` be 0 or 1."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        taken = "_Bool" if node.id == "bool" else "_List" if node.id in (*_LISTS, *_OTHER_LISTS) else node.id
        return ast.Name(taken, ast.Load())

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name == "Literal":
            return node
        if name in _OTHER_LISTS:
            return ast.Name("_List", ast.Load())
        if name not in _LISTS:
            self.generic_visit(node)
            return node
        return ast.Subscript(ast.Name("_ListOf", ast.Load()), self.visit(node.slice), ast.Load())
