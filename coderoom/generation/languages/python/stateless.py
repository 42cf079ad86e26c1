"""Proves by static analysis that no call of a program affects a later one; in all cases of doubt, that does not hold.

Used by `PythonLanguage`, for calls that may share a process, and by `pure`.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import re
import symtable
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from types import GeneratorType, MappingProxyType
from typing import Final, Literal

from coderoom.generation.languages.python.check import UNREADABLE, words

_Code = tuple[ast.AST, Sequence[symtable.SymbolTable]]


_BUILTINS: Final = words(
    "abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter float format "
    "frozenset hex int isinstance issubclass iter len list map max min next oct ord pow print range repr "
    "reversed round set slice sorted str sum tuple zip"
) | {name for name, each in vars(builtins).items() if isinstance(each, type) and issubclass(each, Exception)}

# The members of modules that have no state and do not give access to any. They can only be read or called.
_MODULES: Final = MappingProxyType(
    {
        module: words(names)
        for module, names in {
            "__future__": "annotations",
            "base64": "b64decode b64encode urlsafe_b64decode urlsafe_b64encode",
            "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
            "calendar": "isleap leapdays monthrange timegm weekday",
            "collections": "Counter OrderedDict defaultdict deque",
            "collections.abc": "Callable Collection Generator Hashable Iterable Iterator Mapping Sequence Set",
            "copy": "copy deepcopy",
            "datetime": "date datetime time timedelta timezone",
            "decimal": "Decimal InvalidOperation ROUND_CEILING ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN "
            "ROUND_HALF_UP ROUND_UP",
            "fractions": "Fraction",
            "functools": "cmp_to_key reduce",
            "hashlib": "blake2b blake2s md5 sha1 sha224 sha256 sha384 sha512",
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
)

# Prefixes of attributes that give access to frames and code, or (with an underscore) to anything.
_REACHING: Final = ("_", "ag_", "co_", "cr_", "f_", "gi_", "tb_")

# Without classes, all objects are of these types. Abstract classes are left out: `register` changes them permanently.
TYPES: Final[tuple[type, ...]] = (
    str, bytes, bytearray, int, float, complex, list, dict, set, frozenset, tuple, range, slice, Counter, OrderedDict,
    defaultdict, deque, date, datetime, time, timedelta, timezone, Decimal, Fraction, re.Pattern, re.Match, re.error,
    StopIteration, UnicodeError, UnicodeDecodeError, OSError, type({}.items()), GeneratorType,
    type(hashlib.md5(b"", usedforsecurity=False)),
)  # fmt: skip
_ATTRIBUTES: Final = frozenset(name for kind in TYPES for name in dir(kind) if not name.startswith(_REACHING))
# A format string may access attributes, also within nested fields.
_FIELD: Final = re.compile(r"\{[^{}:!]*[.\[]")

_NODES: Final = (
    *(ast.Module, ast.Expression, ast.FunctionDef, ast.Lambda, ast.arguments, ast.arg, ast.keyword, ast.Return),
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.For, ast.While, ast.If, ast.Raise, ast.Try, ast.Assert),
    *(ast.ExceptHandler, ast.Import, ast.ImportFrom, ast.alias, ast.Expr, ast.Pass, ast.Break, ast.Continue),
    *(ast.Nonlocal, ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict, ast.Set, ast.ListComp),
    *(ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.Yield, ast.YieldFrom, ast.Compare, ast.Call),
    *(ast.FormattedValue, ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List),
    *(ast.Tuple, ast.Slice, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop),
)

# Uses of a top-level list, dict or set that neither change it nor pass it on.
_READING_CALLS: Final = words("all any dict enumerate frozenset len list max min reversed set sorted sum tuple")
_READING_METHODS: Final = words("copy count get index items keys values")


@functools.lru_cache(maxsize=512)
def is_stateless(sources: tuple[str, ...]) -> bool:
    """Whether provably no call of the functions in these sources affects a later call of any of them.

    That holds if they access only their arguments, each other, constants, and stateless parts of Python: no classes,
    assigned attributes, `global`, decorators, or mutable defaults and constants that could be changed. The result is
    false in all cases of doubt.
    """
    read = [_read(source, "exec") for source in sources]
    codes = [code for code in read if code is not None]
    program = _Program()
    return (
        len(codes) == len(read)
        and all(program.take(tree) for tree, _ in codes)
        and all(program.holds(tree, scopes) for tree, scopes in codes)
    )


@functools.lru_cache(maxsize=4_096)
def is_stateless_expression(source: str, names: frozenset[str]) -> bool:
    """The same for an expression that uses `math` and named values that are created for each evaluation."""
    code = _read(source, "eval")
    program = _Program(any_fields=True)
    program.values |= names
    program.modules["math"] = "math"
    return code is not None and program.holds(*code)


class _Program:
    """The top-level definitions of all sources, by kind. With `any_fields`, attributes may have any name."""

    def __init__(self, any_fields: bool = False) -> None:
        self._any_fields = any_fields
        self.values: set[str] = set()  # Functions and immutable constants.
        self.tables: set[str] = set()  # Lists, dicts and sets of constants.
        self.modules: dict[str, str] = {}
        self._parents: dict[ast.AST, ast.AST] = {}
        self._bound: set[str] = set()

    def take(self, tree: ast.AST) -> bool:
        """Add the definitions of a source; return whether all are of an allowed kind."""
        for node in ast.walk(tree):
            for each in node.names if isinstance(node, ast.Import) else ():
                if self.modules.setdefault(each.asname or each.name, each.name) != each.name:
                    return False
        return isinstance(tree, ast.Module) and all(self._take(node) for node in tree.body)

    def _take(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.FunctionDef):
            self.values.add(node.name)
            return self._are_constant([*node.args.defaults, *filter(None, node.args.kw_defaults)])
        if isinstance(node, ast.ImportFrom):
            self.values |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for each in targets if isinstance(each, ast.Name)]
            if len(names) < len(targets):
                return False
            if node.value is None or self._is_constant(node.value):
                self.values.update(names)
            elif self._is_table(node.value):
                self.tables.update(names)
            else:
                return False
        else:
            return isinstance(node, ast.Import) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        return True

    def holds(self, tree: ast.AST, scopes: Sequence[symtable.SymbolTable]) -> bool:
        """Whether code is allowed."""
        # A name must be of the same kind in all sources.
        kinds = [self.values, self.tables, set(self.modules)]
        if sum(map(len, kinds)) != len(set().union(*kinds)):
            return False
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._bound = {each.get_name() for scope in scopes for each in scope.get_symbols() if each.is_local()}
        return all(map(self._is_allowed, ast.walk(tree))) and all(map(self._names_are_known, scopes))

    def _is_allowed(self, node: ast.AST) -> bool:
        if not isinstance(node, _NODES):
            return False
        if isinstance(node, ast.FunctionDef):
            return not node.decorator_list
        if isinstance(node, ast.Import):
            # Without `as`, `import collections.abc` would bind all of `collections`.
            return all(each.name in _MODULES and (each.asname or "." not in each.name) for each in node.names)
        if isinstance(node, ast.ImportFrom):
            known = _MODULES.get(node.module or "", frozenset())
            return not node.level and all(each.name in known for each in node.names)
        if isinstance(node, ast.Attribute):
            return self._is_allowed_attribute(node)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            return all(map(_compares_values, node.ops, sides, sides[1:]))
        if isinstance(node, ast.NamedExpr):
            return self._is_in_body(node)
        if isinstance(node, ast.Yield | ast.YieldFrom):
            # The `finally` of a generator could run whenever it is collected, even in a later call.
            return not any(isinstance(each, ast.Try) for each in self._above(node))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            return self._is_allowed_name(node)
        return True

    def _is_allowed_attribute(self, node: ast.Attribute) -> bool:
        if not isinstance(node.ctx, ast.Load) or node.attr.startswith(_REACHING):
            return False
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            return node.attr in _MODULES.get(self.modules[node.value.id], frozenset())
        if node.attr in ("format", "format_map"):
            text = node.value.value if isinstance(node.value, ast.Constant) else None
            return node.attr == "format" and isinstance(text, str) and not _FIELD.search(text)
        return self._any_fields or node.attr in _ATTRIBUTES

    def _above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, up to its function."""
        while not isinstance(node, ast.FunctionDef | ast.Lambda) and (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def _is_in_body(self, node: ast.AST) -> bool:
        """Whether a node is evaluated when a function is called, not when it is defined."""
        while (parent := self._parents.get(node)) is not None and not isinstance(parent, ast.arguments):
            if isinstance(parent, ast.FunctionDef):
                return any(node is each for each in parent.body)
            node = parent
        return False

    def _is_allowed_name(self, node: ast.Name) -> bool:
        parent = self._parents.get(node)
        if node.id in self.modules:
            return isinstance(parent, ast.Attribute)
        if node.id not in self.tables:
            return True
        if isinstance(parent, ast.Subscript):
            return parent.value is node and isinstance(parent.ctx, ast.Load)
        if isinstance(parent, ast.Attribute):
            return parent.attr in _READING_METHODS
        if isinstance(parent, ast.Call):  # With a second argument, some of them return the first one unchanged.
            reads = isinstance(parent.func, ast.Name) and parent.func.id in _READING_CALLS - self._bound - self.values
            return reads and parent.args == [node]
        if isinstance(parent, ast.For | ast.comprehension):
            return parent.iter is node
        return isinstance(parent, ast.Compare) and all(isinstance(each, ast.In | ast.NotIn) for each in parent.ops)

    def _names_are_known(self, scope: symtable.SymbolTable) -> bool:
        """Whether all global names that a scope uses are known."""
        known = _BUILTINS | self.values | self.tables | set(self.modules)
        for symbol in scope.get_symbols():
            outside = symbol.is_global() or scope.get_type() == "module"
            if symbol.is_declared_global() or (outside and symbol.is_referenced() and symbol.get_name() not in known):
                return False
        return True

    def _is_constant(self, node: ast.expr | None) -> bool:
        """Whether a top-level value is immutable."""
        if isinstance(node, ast.UnaryOp):
            return self._is_constant(node.operand)
        if isinstance(node, ast.BinOp):
            return self._are_constant([node.left, node.right])
        if isinstance(node, ast.Tuple):
            return self._are_constant(node.elts)
        if isinstance(node, ast.Call):
            pattern = self._module_of(node.func) == "re" and ast.unparse(node.func).endswith(".compile")
            return pattern and not node.keywords and self._are_constant(node.args)
        return isinstance(node, ast.Constant) or self._module_of(node) in ("math", "re")

    def _is_table(self, node: ast.expr) -> bool:
        if isinstance(node, ast.List | ast.Set):
            return self._are_constant(node.elts)
        return isinstance(node, ast.Dict) and self._are_constant([*node.keys, *node.values])

    def _are_constant(self, nodes: Iterable[ast.expr | None]) -> bool:
        return all(map(self._is_constant, nodes))

    def _module_of(self, node: ast.expr | None) -> str | None:
        """The module whose member an expression is."""
        named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        return self.modules.get(node.value.id) if named else None  # type: ignore[union-attr]


def _read(source: str, mode: Literal["exec", "eval"]) -> _Code | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The user need not see warnings about a model's code.
            compile(source, "<code>", mode, dont_inherit=True)  # Finds some errors that parsing does not.
            return ast.parse(source, mode=mode), [*_scopes(symtable.symtable(source, "<code>", mode))]
    except UNREADABLE:
        return None


def _scopes(scope: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield scope
    for child in scope.get_children():
        yield from _scopes(child)


def _compares_values(operator: ast.cmpop, left: ast.expr, right: ast.expr) -> bool:
    """Whether a comparison does not depend on object identity, which could reveal objects kept from earlier calls."""
    lone = (None, True, False, ...)
    return not isinstance(operator, ast.Is | ast.IsNot) or any(
        isinstance(each, ast.Constant) and any(each.value is known for known in lone) for each in (left, right)
    )
