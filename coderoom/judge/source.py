"""Python source as the judge reads it: parsing, the expressions of properties, types in words, and what is pure.

`is_pure` proves by static analysis that the answers of a program are always the same; in cases of doubt, they are not.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import symtable
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

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


_EXCEPTIONS: Final = {
    name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, Exception)
}
_RECURSION: Final = words("RecursionError RuntimeError Exception")  # The depth differs from process to process.
_BUILTINS: Final = _EXCEPTIONS | words(
    "abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter float format "
    "frozenset hex int isinstance issubclass iter len list map max min next oct ord pow print range repr "
    "reversed round set slice sorted str sum tuple zip"
)

# The members of modules that have no state and do not give access to any. They can only be read or called.
_MODULES: Final = {
    module: words(names)
    for module, names in {
        "base64": "b64decode b64encode urlsafe_b64decode urlsafe_b64encode",
        "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
        "collections": "Counter OrderedDict defaultdict deque",
        "collections.abc": "Callable Collection Generator Hashable Iterable Iterator Mapping Sequence Set",
        "copy": "copy deepcopy",
        "decimal": "Decimal InvalidOperation ROUND_CEILING ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN "
        "ROUND_HALF_UP ROUND_UP",
        "fractions": "Fraction",
        "functools": "cmp_to_key reduce",
        "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
        "itertools": "accumulate chain combinations combinations_with_replacement compress count cycle dropwhile "
        "filterfalse groupby islice pairwise permutations product repeat starmap takewhile zip_longest",
        "json": "JSONDecodeError dumps loads",
        "math": "acos asin atan atan2 ceil comb cos degrees dist e erf exp fabs factorial floor fmod fsum gcd "
        "hypot inf isclose isfinite isinf isnan isqrt lcm ldexp log log10 log1p log2 modf nan perm pi pow prod "
        "radians remainder sin sqrt tan tau trunc",
        "re": "ASCII DOTALL I IGNORECASE M MULTILINE Match Pattern S VERBOSE X compile error escape "
        "findall finditer fullmatch match search split sub subn",
        "statistics": "fmean mean median median_high median_low mode multimode pstdev pvariance stdev variance",
        "string": "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits printable punctuation "
        "whitespace",
        "textwrap": "dedent fill indent shorten wrap",
        "typing": "Any Callable Dict FrozenSet Generator Iterable Iterator List Mapping Optional Sequence Set "
        "Tuple Union",
        "unicodedata": "category combining name normalize",
    }.items()
}
_OF_FLOATS: Final = words("decimal fractions json math statistics")
_MAKING: Final = words("functools heapq itertools")  # Modules that make iterators and functions.
_OF_CONSTANTS: Final = words("collections collections.abc math string")
"""Modules whose members have texts that are always the same. The text of a function in Python has its address."""

# Without classes, all objects are of these types. Abstract classes are left out: `register` changes them permanently.
_TYPES: Final[tuple[type, ...]] = (
    str, bytes, bytearray, int, float, complex, list, dict, set, frozenset, tuple, range, slice, Counter, OrderedDict,
    defaultdict, deque, Decimal, Fraction, re.Pattern, re.Match, re.error, StopIteration,
    UnicodeDecodeError, OSError, type({}.items()),
)  # fmt: skip
_ATTRIBUTES: Final = {name for kind in _TYPES for name in dir(kind) if not name.startswith("_")} - {"format_map"}
# A format string may access attributes, also within nested fields.
_FIELD: Final = re.compile(r"\{[^{}:!]*[.\[]")

# In a file, a comment of this kind lets Python read other code than in a text: `# coding: utf-7`.
_ENCODING: Final = re.compile(r"#[^\r\n]*coding[:=](?![ \t]*(?i:utf-?8)\b)")

_CONSTANT: Final = (ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)
_ANNOTATION: Final = (*_CONSTANT, ast.Name, ast.Attribute, ast.Subscript, ast.List)
_NODES: Final = (
    *(ast.Lambda, ast.arguments, ast.arg, ast.keyword, ast.Return, ast.Assign, ast.AugAssign),
    *(ast.AnnAssign, ast.Delete, ast.For, ast.While, ast.If, ast.Raise, ast.Try, ast.Assert, ast.ExceptHandler),
    *(ast.Import, ast.ImportFrom, ast.alias, ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Nonlocal, ast.BoolOp),
    *(ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict, ast.ListComp, ast.DictComp, ast.GeneratorExp),
    *(ast.comprehension, ast.Yield, ast.YieldFrom, ast.Compare, ast.Call, ast.FormattedValue, ast.JoinedStr),
    *(ast.Constant, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice),
    *(ast.Module, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
)

# Uses of a top-level list, dict or set that neither change it nor pass it on.
_READING_CALLS: Final = words("all any dict enumerate frozenset len list max min reversed set sorted sum tuple")
_READING_METHODS: Final = words("copy count get index items keys values")

_ORDER_FREE: Final = words("any all bool frozenset len set")  # And `sorted` without arguments by name.
_CONSUMERS: Final = words("all any bytes dict frozenset join list max min set sorted sum tuple")
_LAZY: Final = words("elements enumerate filter finditer iter map reversed scanner zip")
_READING: Final = words("args filename filename2 format msg reason strerror value")
"""Attributes with a text made by `format`, or of an exception."""


@functools.lru_cache(maxsize=512)
def is_pure(sources: tuple[str, ...]) -> bool:
    """Whether provably the answers of the functions in these sources depend on nothing but their arguments.

    That holds if they access only their arguments, each other, constants, and parts of Python that have no state: no
    classes, assigned attributes, `global`, decorators, or mutable defaults and constants that could be changed, and
    nothing that depends on the time, the order of sets, or the addresses of objects.
    """
    if any(_ENCODING.search(source) for source in sources):
        return False
    try:
        body = [node for source in sources for node in parsed(source).body]
        body = [node for node in body if getattr(node, "module", "") != "__future__"]
        tree = ast.Module(body, [])
        scopes = [*scopes_of(symtable.symtable(ast.unparse(tree), "<code>", "exec"))]
    except UNREADABLE:
        return False
    for node in ast.walk(tree):  # No annotation may call anything. They are removed, since nothing can read them.
        for name in ("annotation", "returns"):
            if (kind := getattr(node, name, None)) is not None:
                if not all(isinstance(each, _ANNOTATION) for each in ast.walk(kind)):
                    return False
                setattr(node, name, None)
    return _Program(tree, scopes).is_pure()


@functools.lru_cache(maxsize=4_096)
def is_pure_expression(source: str, names: frozenset[str]) -> bool:
    """The same for an expression that uses `math` and named values that are created for each evaluation."""
    try:
        text = ast.unparse(parsed_expression(source))
    except UNREADABLE:
        return False
    function = f"import math\ndef evaluated_({', '.join(sorted(names))}):\n    return {text}\n"
    return all(name.isascii() and name.isidentifier() for name in names) and is_pure((function,))


def _name(node: ast.AST) -> str:
    """The name of a variable or an attribute; empty for other nodes."""
    return getattr(node, "id", "") or getattr(node, "attr", "")


class _Program:
    """The code of all sources, without annotations."""

    def __init__(self, tree: ast.Module, scopes: Sequence[symtable.SymbolTable]) -> None:
        self._body = tree.body
        self._scopes = scopes
        self._nodes = [*ast.walk(tree)]
        self._parents = {child: node for node in self._nodes for child in ast.iter_child_nodes(node)}
        self._bound = {each.get_name() for scope in scopes for each in scope.get_symbols() if each.is_local()}
        self._modules: dict[str, str] = {}
        self._imported: set[str] = set()  # The modules of which something is imported.
        self._types: set[str] = set()  # Those of `typing`.
        self._functions = {node.name for node in self._nodes if isinstance(node, ast.FunctionDef)}
        self._values: set[str] = set()  # Functions and immutable constants.
        self._tables: set[str] = set()  # Lists and dicts of constants.

    def is_pure(self) -> bool:
        """See `is_pure`."""
        if not all(map(self._import, self._nodes)) or not all(map(self._define, self._body)):
            return False
        # A name must be of the same kind in all sources.
        kinds = [self._values, self._tables, set(self._modules)]
        return (
            sum(map(len, kinds)) == len(set().union(*kinds))
            and all(map(self._names_are_known, self._scopes))
            and all(map(self._is_allowed, self._nodes))
            and not self._varies()
        )

    def _import(self, node: ast.AST) -> bool:
        """Whether a node imports nothing but known modules and members."""
        if isinstance(node, ast.ImportFrom):
            module, names = node.module or "", {each.asname or each.name for each in node.names}
            self._imported.add(module)
            self._functions |= names
            self._types |= names if module == "typing" else set()
            return not node.level and {each.name for each in node.names} <= _MODULES.get(module, set())
        for each in node.names if isinstance(node, ast.Import) else ():
            self._imported.add(each.name)
            # Without `as`, `import collections.abc` would bind all of `collections`.
            whole = bool(each.asname) or "." not in each.name
            if each.name not in _MODULES or each.name == "typing" or not whole:
                return False
            if self._modules.setdefault(each.asname or each.name, each.name) != each.name:
                return False
        return True

    def _define(self, node: ast.stmt) -> bool:
        """Whether a statement only defines functions and constants, and perhaps imports."""
        if isinstance(node, ast.FunctionDef):
            self._values.add(node.name)
            return all(map(self._is_constant, [*node.args.defaults, *filter(None, node.args.kw_defaults)]))
        if isinstance(node, ast.ImportFrom):
            self._values |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            if node.value is None:  # It defines nothing: the name may be that of something built in.
                return False
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for each in targets if isinstance(each, ast.Name)]
            parts = [*ast.iter_child_nodes(node.value)] if isinstance(node.value, ast.List | ast.Dict) else []
            (self._tables if parts else self._values).update(names)
            constants = parts or [node.value]
            return len(names) == len(targets) and all(map(self._is_constant, constants))
        else:
            return isinstance(node, ast.Import) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        return True

    def _is_constant(self, value: ast.AST) -> bool:
        """Whether a top-level value is immutable."""
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                known = getattr(node.func, "attr", "") == "compile"
            elif isinstance(node, ast.Attribute):
                known = isinstance(node.value, ast.Name) and self._modules.get(node.value.id) in ("math", "re")
            else:
                known = isinstance(node, _CONSTANT) or (isinstance(node, ast.Name) and node.id in self._modules)
            if not known:
                return False
        return True

    def _names_are_known(self, scope: symtable.SymbolTable) -> bool:
        """Whether all global names that a scope uses are known."""
        known = _BUILTINS | self._values | self._tables | set(self._modules)
        return all(
            symbol.get_name() in known
            for symbol in scope.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or scope.get_type() == "module")
        )

    def _is_allowed(self, node: ast.AST) -> bool:
        if isinstance(node, ast.FunctionDef):
            return not node.decorator_list
        if isinstance(node, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                return False
            if isinstance(node.value, ast.Name) and node.value.id in self._modules:
                return node.attr in _MODULES[self._modules[node.value.id]]
            if node.attr == "format":
                text = node.value.value if isinstance(node.value, ast.Constant) else None
                return isinstance(text, str) and not _FIELD.search(text)
            return node.attr in _ATTRIBUTES
        if isinstance(node, ast.Compare) and any(isinstance(each, ast.Is | ast.IsNot) for each in node.ops):
            # The identity of other objects could reveal objects that are kept from earlier calls.
            return all(
                isinstance(each, ast.Constant) and isinstance(each.value, bool | None) for each in node.comparators
            )
        if isinstance(node, ast.Set | ast.SetComp):
            return self._is_order_free(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            return self._is_allowed_name(node)
        return isinstance(node, _NODES)

    def _is_allowed_name(self, node: ast.Name) -> bool:
        parent = self._parents[node]
        if node.id in self._types:
            return False
        if node.id in self._modules:
            return isinstance(parent, ast.Attribute)
        if node.id in ("set", "frozenset"):
            return isinstance(parent, ast.Call) and parent.func is node and self._is_order_free(parent)
        if node.id not in self._tables:
            return True
        if isinstance(parent, ast.Subscript):
            return parent.value is node and isinstance(parent.ctx, ast.Load)
        if isinstance(parent, ast.Attribute):
            return parent.attr in _READING_METHODS
        if isinstance(parent, ast.Call):  # With a second argument, some of them return the first one unchanged.
            return self._called(parent) in _READING_CALLS and parent.args == [node]
        if isinstance(parent, ast.For | ast.comprehension):
            return parent.iter is node
        return isinstance(parent, ast.Compare) and all(isinstance(each, ast.In | ast.NotIn) for each in parent.ops)

    def _called(self, node: ast.Call) -> str:
        """The built-in function or the method that is called; empty if it may be something else."""
        return "" if _name(node.func) in self._bound else _name(node.func)

    def _is_order_free(self, node: ast.AST) -> bool:
        """Whether the order of a set has no effect where the set is used."""
        parent = self._parents[node]
        if not isinstance(parent, ast.Call):
            return isinstance(parent, ast.Compare)
        name = self._called(parent) if node in parent.args else ""
        if name in ("list", "tuple"):  # A copy in the order of the set, which may be compared.
            return isinstance(self._parents[parent], ast.Call) and self._is_order_free(parent)
        return name in _ORDER_FREE or (name == "sorted" and not parent.keywords and not self._makes_floats())

    def _makes_floats(self) -> bool:
        """Whether there may be a NaN: the hash of one depends on its address, and nothing can be sorted with it."""
        return bool(self._imported & _OF_FLOATS) or any(
            (isinstance(node, ast.Constant) and isinstance(node.value, float | complex))
            or (isinstance(node, ast.Name) and node.id in ("complex", "float", "pow"))
            or isinstance(node, ast.Div | ast.Pow)
            for node in self._nodes
        )

    def _varies(self) -> bool:
        """Whether a combination of nodes lets answers differ from process to process."""
        makes = self._imported & _MAKING or any(map(self._has_address, self._nodes))
        # Views of a dict can be combined to a set.
        views = any(getattr(node, "attr", "") in ("keys", "items") for node in self._nodes)
        calls_itself = self._any(ast.Lambda) or any(_name(node) in self._functions for node in self._nodes)
        return bool(
            (makes and any(map(self._shows, self._nodes)))
            or (views and self._any(ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub))
            or (calls_itself and any(map(self._catches_recursion, self._nodes)))
            # The `finally` of a generator could run whenever it is collected, even in a later call.
            or (self._any(ast.Try) and self._any(ast.Yield, ast.YieldFrom))
        )

    def _any(self, *kinds: type[ast.AST]) -> bool:
        return any(isinstance(node, kinds) for node in self._nodes)

    def _catches_recursion(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Try):  # What leaves a `finally` drops the exception.
            inner = [each for statement in node.finalbody for each in ast.walk(statement)]
            return any(isinstance(each, ast.Return | ast.Break | ast.Continue) for each in inner)
        if not isinstance(node, ast.ExceptHandler):
            return False
        others = _EXCEPTIONS - _RECURSION - self._bound
        return node.type is None or any(
            isinstance(each, ast.expr) and not isinstance(each, ast.Tuple) and _name(each) not in others
            for each in ast.walk(node.type)
        )

    def _shows(self, node: ast.AST) -> bool:
        """Whether a node can turn objects into text, except in the message of an exception."""
        if isinstance(node, ast.Name):
            return node.id in ("ascii", "format", "repr", "str")
        if isinstance(node, ast.Attribute):
            return node.attr in _READING
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Mod):
            sides = [getattr(node, name, None) for name in ("left", "right", "value")]
            return not any(isinstance(each, ast.Constant) and isinstance(each.value, int | float) for each in sides)
        if not isinstance(node, ast.FormattedValue):
            return False
        call = self._parents[self._parents[node]]
        if not isinstance(call, ast.Call) or not isinstance(self._parents[call], ast.Raise) or len(call.args) > 1:
            return True
        return not isinstance(call.func, ast.Name) or self._called(call) not in _EXCEPTIONS

    def _has_address(self, node: ast.AST) -> bool:
        """Whether a node makes an object whose text is its address."""
        if isinstance(node, ast.Lambda | ast.Yield | ast.YieldFrom):
            return True
        if isinstance(node, ast.GeneratorExp) or (isinstance(node, ast.Call) and _name(node.func) in _LAZY):
            return not self._is_consumed(node)
        parent = self._parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            return False
        if isinstance(node, ast.Attribute):
            return self._modules.get(_name(node.value)) not in _OF_CONSTANTS and not node.attr.isupper()
        return isinstance(node, ast.Name) and node.id in (_LAZY & _BUILTINS) | self._functions

    def _is_consumed(self, node: ast.AST) -> bool:
        parent = self._parents[node]
        if not isinstance(parent, ast.Call):
            return isinstance(parent, ast.For | ast.comprehension) and parent.iter is node
        name = self._called(parent)
        if name in _LAZY:
            return self._is_consumed(parent)
        chosen = name in ("max", "min") and len(parent.args) > 1
        return node in parent.args[:1] and name in _CONSUMERS and not chosen
