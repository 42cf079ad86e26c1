"""Finds out by static analysis on what the answers of a program can depend, so that it is run often enough.

`PythonLanguage` uses it. In all cases of doubt the result is the worst one.
"""

from __future__ import annotations

import ast
import builtins
import collections
import datetime
import decimal
import fractions
import functools
import importlib
import re
import statistics
import types
from collections.abc import Iterator

from coderoom.generation.languages import Variation
from coderoom.generation.languages.python.check import UNREADABLE, parsed, words

# Built-in names with which code can neither reach anything outside the program nor see hashes or addresses.
_HARMLESS = words(
    "abs all any bin bool bytearray bytes callable chr classmethod complex dict divmod enumerate filter float format "
    "hasattr hex int isinstance issubclass iter len list map max min next oct ord pow print property range reversed "
    "round slice sorted staticmethod str sum super tuple type zip NotImplemented Ellipsis __debug__ __name__ "
    "ascii repr"
) | {name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, BaseException)}
_OF_PROCESS = words("frozenset hash id object set")
_NAMED_ATTRIBUTES = words("delattr getattr setattr")

# Modules whose public names are harmless, with the exceptions below.
_MODULES = words(
    "__future__ abc base64 binascii bisect calendar cmath collections collections.abc contextlib copy dataclasses "
    "datetime decimal enum fractions functools hashlib heapq itertools json math numbers operator re statistics string "
    "struct textwrap typing unicodedata"
)
_RANDOM = words("random secrets")
_CLOCKS = words("now today utcnow")
_ZONES = words("astimezone fromtimestamp strftime timestamp")  # They may depend on the time zone of the machine.
_RECURSION = words("RecursionError RuntimeError Exception BaseException")
_FORMATS = words("format format_map")
_REACHING = {
    name
    for kind in (types.FrameType, types.CodeType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType,
                 types.TracebackType)
    for name in dir(kind)
    if not name.startswith("_") and "_" in name
}  # fmt: skip
# Public names that take the names of attributes, evaluate text, draw random numbers, turn objects into text or give
# access to the process.
_EXCEPTIONS = words(
    "Formatter ForwardRef NormalDist UserString attrgetter chdir get_type_hints imod kde_random methodcaller mod "
    "redirect_stderr redirect_stdout singledispatch singledispatchmethod update_wrapper"
)
_DUNDERS = words(
    "__abs__ __add__ __and__ __bool__ __call__ __class__ __contains__ __delitem__ __doc__ __enter__ __eq__ __exit__ "
    "__float__ __floordiv__ __ge__ __getitem__ __gt__ __init__ __int__ __iter__ __le__ __len__ __lt__ __mul__ "
    "__name__ __ne__ __neg__ __new__ __next__ __or__ __post_init__ __pow__ __qualname__ __radd__ __reversed__ "
    "__setitem__ __sub__ __truediv__ __xor__"
)
_SHOWING = words("__format__ __hash__ __repr__ __str__")

_ORDER_FREE = words("any all bool frozenset len set")  # And `sorted` without arguments by name.
_CONSUMERS = words("all any bytes dict enumerate filter frozenset list map max min set sorted sum tuple zip join")
_LAZY = words("enumerate filter iter map reversed zip")
_MAKING = words("functools heapq itertools operator")  # Modules that make iterators and functions.
_METHODS = {
    name
    for kind in (*(each for each in vars(builtins).values() if isinstance(each, type)), collections.Counter,
                 collections.OrderedDict, collections.ChainMap, collections.deque, re.Pattern, re.Match,
                 datetime.datetime, datetime.timedelta, decimal.Decimal, fractions.Fraction, re, statistics)
    for name in dir(kind)
    if not name.startswith("_") and callable(getattr(kind, name))
}  # fmt: skip


def variation(sources: tuple[str, ...]) -> Variation:
    """On what the answers of a program can depend, apart from arguments and kept state."""
    return max(map(_of_source, sources), default=Variation.NONE)


@functools.lru_cache(maxsize=512)
def _of_source(source: str) -> Variation:
    try:
        tree = parsed(source)
    except UNREADABLE:  # It cannot be loaded either.
        return Variation.NONE
    return _Source(tree).variation()


class _Source:
    """One source of a program."""

    def __init__(self, tree: ast.Module) -> None:
        self._nodes = [*ast.walk(tree)]
        self._parents = {child: node for node in self._nodes for child in ast.iter_child_nodes(node)}
        self._modules: dict[str, str] = {}
        for node in self._nodes:
            for each in node.names if isinstance(node, ast.Import) else ():
                first = each.name.partition(".")[0]
                self._modules[each.asname or first] = each.name if each.asname else first
        functions = [node for node in self._nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        imported = [each for node in self._nodes if isinstance(node, ast.ImportFrom) for each in node.names]
        self._imported = {*self._modules.values(), *(getattr(node, "module", "") for node in self._nodes)}
        self._functions = {each.name for each in functions} | {each.asname or each.name for each in imported}
        roots = [getattr(node, name, None) for node in self._nodes for name in ("annotation", "returns")]
        self._in_annotations = {each for root in roots if isinstance(root, ast.AST) for each in ast.walk(root)}
        self._rebound = {name for node in self._nodes for name in _bound_by(node)}

    def variation(self) -> Variation:
        found = max((each for node in self._nodes for each in self._of_node(node)), default=Variation.NONE)
        plain = [node for node in self._nodes if node not in self._in_annotations]
        shown = any(map(self._shows, plain)) and any(map(self._has_address, plain))
        # Views of a dict can be combined to a set.
        views = any(isinstance(node, ast.Attribute) and node.attr in ("keys", "items") for node in self._nodes)
        combined = views and any(map(_combines_sets, self._nodes))
        deep = any(map(_catches_recursion, self._nodes)) and any(map(self._is_recursive, self._nodes))
        return max(found, Variation.PROCESS if shown or combined or deep else Variation.NONE)

    def _is_recursive(self, node: ast.AST) -> bool:
        """Whether a function may call itself."""
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return isinstance(node, ast.Lambda)
        inside = {each.id if isinstance(each, ast.Name) else each.attr for each in ast.walk(node)
                  if isinstance(each, ast.Name | ast.Attribute)}  # fmt: skip
        return bool(inside & self._functions)

    def _of_node(self, node: ast.AST) -> Iterator[Variation]:
        if isinstance(node, ast.Name):
            yield self._of_name(node)
        elif isinstance(node, ast.Attribute):
            yield self._of_attribute(node)
        elif isinstance(node, ast.Import):
            yield from (_of_module(each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield _of_module(module) if not node.level else Variation.CLOCK
            if module in _MODULES:
                yield from (_of_member(module, each.name) for each in node.names)
            if any(each.name == "wraps" and each.asname for each in node.names):
                yield Variation.CLOCK
        elif isinstance(node, ast.MatchClass):
            yield from map(_of_attribute_name, node.kwd_attrs)
            if node.patterns:
                yield Variation.CLOCK  # The class names the attributes.
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "%s" in node.value:
            yield Variation.PROCESS if "datetime" in self._imported else Variation.NONE
        elif isinstance(node, ast.Set | ast.SetComp) and not self._is_order_free(node):
            yield Variation.PROCESS

    def _of_name(self, node: ast.Name) -> Variation:
        parent = self._parents[node]
        if node.id == "wraps":
            return self._of_wraps(node)
        if node.id in self._modules:
            return Variation.NONE if isinstance(parent, ast.Attribute) else Variation.CLOCK
        if node.id in _NAMED_ATTRIBUTES:
            called = isinstance(parent, ast.Call) and parent.func is node and len(parent.args) > 1
            second = parent.args[1] if called else None  # type: ignore[attr-defined]
            named = isinstance(second, ast.Constant) and isinstance(second.value, str)
            return _of_attribute_name(second.value) if named else Variation.CLOCK  # type: ignore[union-attr]
        if node.id in _OF_PROCESS:
            made = isinstance(parent, ast.Call) and parent.func is node and node.id in ("set", "frozenset")
            return Variation.NONE if made and self._is_order_free(parent) else Variation.PROCESS
        is_own = node.id not in vars(builtins) and not (node.id.startswith("__") and node.id.endswith("__"))
        return Variation.NONE if is_own or node.id in _HARMLESS else Variation.CLOCK

    def _of_wraps(self, node: ast.expr) -> Variation:
        """With more than the function, it may copy any attribute."""
        call = self._parents[node]
        plain = isinstance(call, ast.Call) and call.func is node and len(call.args) == 1 and not call.keywords
        return Variation.NONE if plain and not isinstance(call.args[0], ast.Starred) else Variation.CLOCK  # type: ignore[attr-defined]

    def _of_attribute(self, node: ast.Attribute) -> Variation:
        if node.attr == "wraps":
            return self._of_wraps(node)
        if isinstance(node.value, ast.Name) and node.value.id in self._modules:
            module = self._modules[node.value.id]
            return _of_member(module, node.attr) if module in _MODULES else Variation.NONE  # Its import counts.
        if node.attr in _FORMATS:
            text = node.value.value if isinstance(node.value, ast.Constant) else None
            plain = isinstance(text, str) and not any(each in text for each in ("__", *_REACHING))
            return Variation.NONE if plain else Variation.CLOCK
        return _of_attribute_name(node.attr)

    def _is_order_free(self, node: ast.AST) -> bool:
        """Whether the order of a set has no effect where the set is used."""
        parent = self._parents[node]
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
            name = parent.func.id
            free = name in _ORDER_FREE or (name == "sorted" and not parent.keywords)
            free = free or (name in ("list", "tuple") and self._is_order_free(parent))
            return node in parent.args and free and name not in self._rebound
        return isinstance(parent, ast.Compare)

    def _shows(self, node: ast.AST) -> bool:
        """Whether a node can turn objects into text, except in the message of an exception."""
        if isinstance(node, ast.Name):
            return node.id in ("ascii", "format", "repr", "str")
        if isinstance(node, ast.Attribute):
            return node.attr in ("args", "format", "format_map", "substitute", "safe_substitute")
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Mod):
            left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            return not _is_number(left) and not _is_number(right)
        if not isinstance(node, ast.FormattedValue):
            return False
        while not isinstance(node, ast.stmt):
            node = self._parents[node]
        return not isinstance(node, ast.Raise)

    def _has_address(self, node: ast.AST) -> bool:
        """Whether a node makes an object whose text is its address."""
        parent = self._parents.get(node)
        if isinstance(node, ast.ClassDef | ast.Lambda | ast.Yield | ast.YieldFrom):
            return True
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {each.name for each in node.names} | {getattr(node, "module", None)}
            return bool(names & _MAKING)
        if isinstance(node, ast.GeneratorExp):
            return not self._is_consumed(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LAZY:
            return not self._is_consumed(node)
        if isinstance(node, ast.Name) and node.id in (*_LAZY, *self._functions):
            return not (isinstance(parent, ast.Call) and parent.func is node) and not self._is_consumed(node)
        if isinstance(node, ast.Attribute):
            called = isinstance(parent, ast.Call) and parent.func is node
            return (
                node.attr in ("elements", "finditer", "scanner") if called else node.attr in _METHODS | self._functions
            )
        return False

    def _is_consumed(self, node: ast.AST) -> bool:
        parent = self._parents[node]
        if isinstance(parent, ast.keyword) and parent.arg == "key":
            node, parent = parent, self._parents[parent]
        if isinstance(parent, ast.Call):
            function = parent.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            if name in self._rebound:
                return False
            if name in _LAZY:
                return self._is_consumed(parent)
            chosen = name in ("max", "min") and len(parent.args) > 1
            return node is not function and name in _CONSUMERS and not chosen
        return isinstance(parent, ast.For | ast.comprehension) and parent.iter is node


def _of_module(module: str) -> Variation:
    if module in _MODULES:
        return Variation.NONE
    return Variation.CALL if module in _RANDOM else Variation.CLOCK


@functools.cache
def _public(module: str) -> frozenset[str]:
    """The public names of a module that are not modules themselves."""
    found = importlib.import_module(module)
    names = getattr(found, "__all__", None) or [name for name in dir(found) if not name.startswith("_")]
    return frozenset(name for name in names if not isinstance(getattr(found, name, None), types.ModuleType))


def _of_member(module: str, name: str) -> Variation:
    if f"{module}.{name}" in _MODULES:
        return Variation.NONE
    return _of_attribute_name(name) if name in _public(module) - _EXCEPTIONS else Variation.CLOCK


def _of_attribute_name(name: str) -> Variation:
    if name in _SHOWING or name in _ZONES:
        return Variation.PROCESS
    if name.startswith("__") and name.endswith("__"):
        return Variation.NONE if name in _DUNDERS else Variation.CLOCK
    return Variation.CLOCK if name in _REACHING or name in _CLOCKS or name in _FORMATS else Variation.NONE


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
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor | ast.Sub)
    names = [node.attr] if isinstance(node, ast.Attribute) else [node.name] if isinstance(node, ast.alias) else []
    return any(each.strip("_") in ("and", "or", "xor", "sub", "rand", "ror", "rxor", "rsub") for each in names)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
