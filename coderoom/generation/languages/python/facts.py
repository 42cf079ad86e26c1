"""Finds what the code of a program requires of its pytest file, for example isolation of each test."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coderoom.generation.parsing import UNREADABLE, parsed

__all__ = ["Facts", "facts_of", "imports_in", "modules_of", "tree_of"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef

# What is in these has no state that one test could leave to another, and returns nothing that `==` sees otherwise.
_HARMLESS = frozenset(
    str.split(
        "__future__ abc array ast base64 bisect calendar cmath collections contextlib copy csv dataclasses datetime "
        "difflib enum fractions functools graphlib hashlib heapq hmac html inspect ipaddress itertools json keyword "
        "math numbers operator re secrets statistics string struct textwrap types typing unicodedata urllib uuid zlib "
        "asyncio"
    )
)
_REACHING = frozenset(str.split("open input exec eval compile __import__ globals vars setattr delattr breakpoint"))
_DECORATORS = frozenset(str.split("property staticmethod classmethod abstractmethod dataclass total_ordering wraps"))


@dataclass(frozen=True)
class Facts:
    """What is known of a program; what is not known is taken for the worse.

    Attributes:
        functions: The functions of its top level.
        classes: The classes of its top level.
        state: Whether calls may leave something in the module that later ones find.
        reaching: Whether calls may change something outside of the module: files, settings, other modules.
        modules: The modules of the standard library that it imports.
        plain: Whether what it returns is of Python's own classes, so that `==` and `is` can be relied on.
        coroutines: Whether anything in it is asynchronous.
    """

    functions: Mapping[str, _Function] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()
    state: bool = True
    reaching: bool = True
    modules: tuple[str, ...] = ()
    plain: bool = False
    coroutines: bool = True


def facts_of(sources: Mapping[str, str] | None) -> Facts:
    """What is known of a program from its code; `None`: nothing."""
    trees = [tree_of(source) for source in (sources or {}).values()]
    body = [node for tree in trees if tree is not None for node in tree.body]
    if not body or None in trees:
        return Facts()
    nodes = [node for each in body for node in ast.walk(each)]
    imported = {name.split(".")[0] for node in nodes for name in _imported(node)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    harmless = imported <= _HARMLESS
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    return Facts(
        functions={node.name: node for node in body if isinstance(node, _Function)},
        classes=frozenset(node.name for node in body if isinstance(node, ast.ClassDef)),
        state=not all(map(_is_fixed, body)) or bool(names & _REACHING) or any(_leaves(node) for node in nodes),
        reaching=not harmless or bool(names & _REACHING) or _assigns_outside(nodes),
        modules=modules_of(imported),
        plain=harmless and not classes and not names & _REACHING and not any(map(_makes_class, nodes)),
        coroutines=any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in nodes) or "asyncio" in imported,
    )


def tree_of(source: str) -> ast.Module | None:
    """The tree of code; `None` if it is no Python."""
    try:
        return parsed(source)
    except UNREADABLE:
        return None


def modules_of(names: set[str]) -> tuple[str, ...]:
    """Those of some modules that are of the standard library, and whose names can be put back after a test."""
    return tuple(sorted((names & sys.stdlib_module_names) - {"__future__", "typing"}))


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield node.module or ""


def imports_in(source: str) -> set[str]:
    """The modules that code imports."""
    tree = tree_of(source)
    return set() if tree is None else {name.split(".")[0] for node in ast.walk(tree) for name in _imported(node)}


def _is_fixed(node: ast.stmt) -> bool:
    """Whether what a statement of the top level, or of a class, defines stays as it is."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass):
        return True
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return node.value is None or _is_constant(node.value)
    if isinstance(node, _Function):
        defaults = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
        return all(map(_is_constant, defaults)) and all(map(_is_known, node.decorator_list))
    if isinstance(node, ast.ClassDef):
        return not node.keywords and all(map(_is_fixed, node.body)) and all(map(_is_known, node.decorator_list))
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(map(_is_constant, node.elts))
    if isinstance(node, ast.BinOp):
        return _is_constant(node.left) and _is_constant(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_constant(node.operand)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("re.compile", "frozenset", "TypeVar", "auto", "enum.auto")
    return isinstance(node, ast.Constant | ast.Name | ast.Attribute)


def _is_known(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(called).split(".")[-1] in _DECORATORS


def _makes_class(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "type" and len(node.args) != 1


def _leaves(node: ast.AST) -> bool:
    """Whether a piece of code may change what outlives a call: a global, an attribute of a function or a class."""
    if isinstance(node, ast.Global):
        return True
    if not isinstance(node, ast.Attribute):
        return False
    stored = isinstance(node.ctx, ast.Store | ast.Del) and not _is_own(node.value)
    return stored or node.attr in ("__dict__", "__globals__", "__class__", "__defaults__")


def _is_own(node: ast.expr) -> bool:
    """Whether an object is `self`, or something below it."""
    return isinstance(node, ast.Name) and node.id == "self"


def _assigns_outside(nodes: list[ast.AST]) -> bool:
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return any(
        isinstance(node, ast.Attribute | ast.Subscript)
        and isinstance(node.ctx, ast.Store | ast.Del)
        and bool(imported & {each.id for each in ast.walk(node) if isinstance(each, ast.Name)})
        for node in nodes
    )
