"""Proves by static analysis that the answers of stateless code are always the same; in cases of doubt, they are not.

Used by `PythonLanguage`, for programs that need not run again, and for properties.
"""

from __future__ import annotations

import ast
import functools
import re
import statistics
from collections.abc import Iterator
from typing import Final

from coderoom.generation.languages.python.check import parsed, parsed_expression, words
from coderoom.generation.languages.python.stateless import TYPES, is_stateless, is_stateless_expression


@functools.lru_cache(maxsize=512)
def is_pure(sources: tuple[str, ...]) -> bool:
    """Whether provably the answers of the functions depend on nothing but their arguments.

    Beyond state, that is the time, its zone, the order of sets, and the addresses of objects.
    """
    if not is_stateless(sources):
        return False
    body = [node for source in sources for node in parsed(source).body]
    return not _Code(ast.Module(body, [])).varies()


@functools.lru_cache(maxsize=4_096)
def is_pure_expression(source: str, names: frozenset[str]) -> bool:
    """The same for an expression; see `is_stateless_expression`."""
    return is_stateless_expression(source, names) and not _Code(parsed_expression(source)).varies()


_CLOCKS: Final = words("now today utcnow astimezone fromtimestamp strftime timestamp")
_RECURSION: Final = words("RecursionError RuntimeError Exception BaseException")
_ORDER_FREE: Final = words("any all bool frozenset len set")  # And `sorted` without arguments by name.
_CONSUMERS: Final = words(
    "all any bytes dict enumerate filter frozenset list map max min set sorted sum tuple zip join"
)
_LAZY: Final = words("enumerate filter iter map reversed zip")
_READING: Final = words("args filename filename2 format msg reason strerror value")
"""Attributes with a text made by `format`, or of an exception."""
_VARYING: Final = words("calendar datetime hashlib")  # Of the time zone, and of objects whose text is their address.
_OF_FLOATS: Final = words("decimal fractions json math statistics")
_WITHOUT_ADDRESS: Final = words("collections collections.abc math string")
"""Modules whose members have texts that are always the same. The text of a function in Python has its address."""
_MAKING: Final = words("functools heapq itertools")  # Modules that make iterators and functions.
_METHODS: Final = {
    name
    for kind in (*TYPES, re, statistics)
    for name in dir(kind)
    if not name.startswith("_") and callable(getattr(kind, name))
}


class _Code:
    """Stateless code, of which only a part of Python has to be known."""

    def __init__(self, tree: ast.AST) -> None:
        self._nodes = [*ast.walk(tree)]
        self._parents = {child: node for node in self._nodes for child in ast.iter_child_nodes(node)}
        imports = [node for node in self._nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        self._modules = {getattr(node, "module", None) or each.name for node in imports for each in node.names}
        self._named_modules = {
            each.asname or each.name: each.name
            for node in imports
            if isinstance(node, ast.Import)
            for each in node.names
        }
        self._functions = {node.name for node in self._nodes if isinstance(node, ast.FunctionDef)}
        self._functions |= {
            each.asname or each.name for node in imports if isinstance(node, ast.ImportFrom) for each in node.names
        }
        roots = [getattr(node, name, None) for node in self._nodes for name in ("annotation", "returns")]
        annotations = [[*ast.walk(root)] for root in roots if isinstance(root, ast.AST)]
        plain = [nodes for nodes in annotations if not any(isinstance(each, ast.Call) for each in nodes)]
        self._in_annotations = {each for nodes in plain for each in nodes}
        self._rebound = {name for node in self._nodes for name in _bound_by(node)}

    def varies(self) -> bool:
        """Whether answers may differ from process to process, or from time to time."""
        plain = [node for node in self._nodes if node not in self._in_annotations]
        shown = any(map(self._shows, plain)) and (self._modules & _MAKING or any(map(self._has_address, plain)))
        # Views of a dict can be combined to a set.
        views = any(isinstance(node, ast.Attribute) and node.attr in ("keys", "items") for node in self._nodes)
        combined = views and any(map(_combines_sets, self._nodes))
        deep = any(map(_catches_recursion, self._nodes)) and any(map(self._is_recursive, self._nodes))
        varies = bool(shown or combined or deep or self._modules & _VARYING)
        return varies or any(map(self._reads_clock_or_order, self._nodes))

    def _reads_clock_or_order(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Import):  # `typing` keeps the types that it makes; those of annotations are not shown.
            return any(each.name == "typing" for each in node.names)
        if isinstance(node, ast.Attribute):
            return node.attr in _CLOCKS
        if isinstance(node, ast.Set | ast.SetComp):
            return not self._is_order_free(node)
        if isinstance(node, ast.Name) and node.id in ("set", "frozenset"):
            parent = self._parents.get(node)
            return not (isinstance(parent, ast.Call) and parent.func is node and self._is_order_free(parent))
        return False

    def _is_recursive(self, node: ast.AST) -> bool:
        """Whether a function may call itself."""
        inside = {each.id if isinstance(each, ast.Name) else each.attr for each in ast.walk(node)
                  if isinstance(each, ast.Name | ast.Attribute)}  # fmt: skip
        return isinstance(node, ast.Lambda) or (isinstance(node, ast.FunctionDef) and bool(inside & self._functions))

    def _is_order_free(self, node: ast.AST) -> bool:
        """Whether the order of a set has no effect where the set is used."""
        parent = self._parents.get(node)
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
            name = parent.func.id
            free = name in _ORDER_FREE or (name == "sorted" and not parent.keywords and not self._makes_floats())
            # A copy in the order of the set, which may be compared.
            copied = name in ("list", "tuple") and isinstance(self._parents.get(parent), ast.Call)
            free = free or (copied and self._is_order_free(parent))
            return node in parent.args and free and name not in self._rebound
        return isinstance(parent, ast.Compare)

    def _makes_floats(self) -> bool:
        """Whether there may be a NaN: the hash of one depends on its address, and nothing can be sorted with it."""
        return bool(self._modules & _OF_FLOATS) or any(
            (isinstance(node, ast.Constant) and isinstance(node.value, float))
            or (isinstance(node, ast.Name) and node.id in ("complex", "float"))
            or isinstance(node, ast.Div)
            for node in self._nodes
        )

    def _shows(self, node: ast.AST) -> bool:
        """Whether a node can turn objects into text, except in the message of an exception."""
        if isinstance(node, ast.Name):
            return node.id in ("ascii", "format", "repr", "str")
        if isinstance(node, ast.Attribute):
            return node.attr in _READING
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Mod):
            left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            return not _is_number(left) and not _is_number(right)
        if not isinstance(node, ast.FormattedValue):
            return False
        message = self._parents[node]
        raised = self._parents.get(message)
        in_call = isinstance(raised, ast.Call) and message in raised.args
        return not (raised is not None and in_call and isinstance(self._parents.get(raised), ast.Raise))

    def _has_address(self, node: ast.AST) -> bool:
        """Whether a node makes an object whose text is its address."""
        parent = self._parents.get(node)
        called = isinstance(parent, ast.Call) and parent.func is node
        if isinstance(node, ast.Lambda | ast.Yield | ast.YieldFrom):
            return True
        if isinstance(node, ast.GeneratorExp) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LAZY
        ):
            return not self._is_consumed(node)
        if isinstance(node, ast.Name) and node.id in _LAZY:
            return not called
        if isinstance(node, ast.Name) and node.id in self._functions:
            return not called and not self._is_consumed(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = self._named_modules.get(node.value.id, "math")
            if module not in _WITHOUT_ADDRESS and not node.attr.isupper() and not called:
                return not self._is_consumed(node)
        if isinstance(node, ast.Attribute):
            return node.attr in (("elements", "finditer", "scanner") if called else _METHODS | self._functions)
        return False

    def _is_consumed(self, node: ast.AST) -> bool:
        parent = self._parents.get(node)
        is_key = isinstance(parent, ast.keyword) and parent.arg == "key"
        if is_key:
            node, parent = parent, self._parents[parent]  # type: ignore[index, assignment]
        if isinstance(parent, ast.Call):
            function = parent.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            if name in self._rebound:
                return False
            if is_key:
                return name in ("max", "min", "sort", "sorted")
            if name in _LAZY:
                return node is not function and self._is_consumed(parent)
            chosen = name in ("max", "min") and len(parent.args) > 1
            return node in parent.args[:1] and name in _CONSUMERS and not chosen
        return isinstance(parent, ast.For | ast.comprehension) and parent.iter is node


def _bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node binds, perhaps to something else than what is built in."""
    reads = isinstance(getattr(node, "ctx", None), ast.Load)
    if not reads and not isinstance(node, ast.Attribute | ast.Constant | ast.keyword):
        yield from (each for _, each in ast.iter_fields(node) if isinstance(each, str))


def _catches_recursion(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    return node.type is None or any(
        isinstance(each, ast.Attribute) or (isinstance(each, ast.Name) and each.id in _RECURSION)
        for each in ast.walk(node.type)
    )


def _combines_sets(node: ast.AST) -> bool:
    combining = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
    return isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, combining)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
