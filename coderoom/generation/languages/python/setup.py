"""Checks the source of setup code: it may only build inputs and call the program. The harness checks the rest."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator
from typing import Any, Final

from coderoom.sandbox import Rulebook, find_violations, restricted_rules

__all__ = [
    "DECORATORS",
    "DEFINED",
    "IN_PLACE",
    "PATCHED",
    "problems_of_setup",
    "setup_rules",
]

# Names that setup code may use, in addition to or instead of those of the policy. `None`: all public names. Functions
# that evaluate text, take attribute names as data, or modify the classes and functions passed to them are left out.
_MODULES: Final[dict[str, str | None]] = {
    **dict.fromkeys(["base64", "binascii", "calendar", "csv", "hashlib", "os.path", "secrets", "uuid"]),
    "abc": "ABC abstractmethod",
    "array": "array",
    "asyncio": """
        CancelledError Condition Event Future Lock PriorityQueue Queue QueueEmpty QueueFull Semaphore TimeoutError
        create_task gather run sleep wait_for
    """,
    "builtins": "input open print",
    "collections": "Counter OrderedDict abc defaultdict deque namedtuple",
    "contextlib": """
        AsyncExitStack ExitStack asynccontextmanager closing contextmanager nullcontext redirect_stderr redirect_stdout
        suppress
    """,
    "copy": "copy deepcopy",
    "dataclasses": "asdict astuple dataclass field fields is_dataclass replace",
    "enum": "Enum Flag IntEnum IntFlag StrEnum auto unique",
    "functools": """
        cache cached_property cmp_to_key lru_cache partial partialmethod reduce total_ordering wraps
    """,
    "gzip": "GzipFile compress decompress open",
    "io": "BytesIO StringIO TextIOWrapper",
    "logging": """
        CRITICAL DEBUG ERROR Formatter Handler INFO NOTSET NullHandler StreamHandler WARNING disable getLogger
    """,
    "operator": """
        add and_ concat contains countOf eq floordiv ge getitem gt indexOf itemgetter le lt mod mul ne neg not_ or_ pow
        sub truediv truth xor
    """,
    "os": """
        R_OK W_OK chdir chmod curdir environ fspath getcwd getenv linesep listdir makedirs mkdir name pardir putenv
        remove removedirs rename replace rmdir scandir sep stat symlink unlink unsetenv utime walk
    """,
    "pathlib": "Path PosixPath PurePath PurePosixPath",
    "sqlite3": "Connection Row connect",
    "string": """
        Template ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits printable punctuation
        whitespace
    """,
    "struct": " calcsize error iter_unpack pack unpack unpack_from",
    "sys": "argv byteorder float_info maxsize stderr stdin stdout version_info",
    "tempfile": "NamedTemporaryFile TemporaryDirectory TemporaryFile gettempdir mkdtemp",
    "types": "MappingProxyType NoneType SimpleNamespace",
    "typing": """
        Any AnyStr Callable ClassVar Dict FrozenSet Generator Generic Iterable Iterator List Literal Mapping NamedTuple
        NoReturn Optional Protocol Sequence Set Tuple Type TypeVar TypedDict Union cast
    """,
    "zipfile": "ZIP_DEFLATED ZIP_STORED ZipFile",
    "zoneinfo": "ZoneInfo",
    "numpy": """
        arange array asarray bool_ complex128 eye float32 float64 full identity inf int32 int64 linspace nan ndarray
        newaxis ones ones_like pi str_ uint8 zeros zeros_like random
    """,
    "numpy.random": "default_rng rand randint randn seed",
    "pandas": "DataFrame DatetimeIndex Index NA NaT Series Timedelta Timestamp concat date_range to_datetime",
}

_ATTRIBUTES: Final = "ctypes enable_load_extension eval get_field load_extension mro query tb_frame"
_DYNAMIC: Final = "write the attribute name literally"
_NAMESPACE: Final = "setup only calls the program's functions"
_FORBIDDEN_BUILTINS: Final = {
    **dict.fromkeys(["getattr", "setattr", "delattr"], _DYNAMIC),
    **dict.fromkeys(["globals", "locals", "vars"], _NAMESPACE),
}
_READ: Final = ("__name__", "__qualname__", "__doc__", "__version__", "__file__")

PATCHED: Final[dict[str, frozenset[str] | None]] = {
    "builtins": frozenset({"input", "open", "print"}),
    "datetime": frozenset({"date", "datetime"}),
    "os": frozenset({"environ"}),
    "random": None,
    "secrets": None,
    "sys": frozenset({"argv", "stderr", "stdin", "stdout"}),
    "time": None,
    "uuid": None,
}
"""What setup code may replace: clocks, random numbers, files and user input. `None`: any name of the module."""

IN_PLACE: Final = {
    "bisect": ("insort", "insort_left", "insort_right"),
    "heapq": ("heapify", "heappop", "heappush", "heappushpop", "heapreplace"),
    "random": ("shuffle",),
}
"""Functions that modify their argument in place."""

DECORATORS: Final = {
    "dataclasses": ("dataclass",),
    "enum": ("unique",),
    "functools": ("total_ordering", "wraps"),
}
"""Functions that modify the function or class passed to them, so they may only decorate definitions of the setup."""

DEFINED: Final = frozenset(restricted_rules()["dunders"]) - {"__module__", "__dict__", "__class__"}
"""The special methods and attributes that classes of setup code may define."""


def setup_rules() -> dict[str, Any]:
    """The rules for `coderoom.sandbox.Rulebook`."""
    rules = restricted_rules()
    modules = {name: None if members is None else members.split() for name, members in _MODULES.items()}
    builtins = {name: why for name, why in rules["builtins"].items() if name not in ("open", "input")}
    return {
        **rules,
        "modules": {**rules["modules"], **modules},
        "builtins": {**builtins, **_FORBIDDEN_BUILTINS},
        "attributes": {**rules["attributes"], **dict.fromkeys(_ATTRIBUTES.split(), _NAMESPACE)},
        "dunders": list(_READ),
    }


_RULES: Final = Rulebook(setup_rules())
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CALLING = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
_BUILTINS: Final = frozenset(dir(builtins)) - {"copyright", "credits", "exit", "license", "quit"}
_OF_NAMED_TUPLES: Final = frozenset({"_asdict", "_fields", "_make", "_replace"})
_GROWING: Final = frozenset({"append", "appendleft", "extend", "insert", "popitem", "reverse", "setdefault", "sort"})
_WAY_OUT: Final = "setup code builds inputs, calls the program's functions, and changes only objects of its own"


def problems_of_setup(
    tree: ast.Module, functions: Collection[str], known: bool = True
) -> Iterator[tuple[int | None, str]]:
    """Find what setup code does besides building inputs and calling the program's functions.

    Args:
        tree: The code, which is modified.
        functions: The names of the program's functions.
        known: Whether `functions` is complete.

    Returns:
        Lines and problems.
    """
    reader = _Reader(tree, functions, known)
    for node in ast.walk(tree):
        for text in reader.problems_of(node):
            yield getattr(node, "lineno", None), text
    for finding in find_violations(_without_super(tree), _RULES):
        yield finding.line, f"in setup code, {finding.message.replace(' under this policy', '')}"


class _Reader:
    """Analyses the names of setup code and their uses."""

    def __init__(self, tree: ast.Module, functions: Collection[str], known: bool) -> None:
        self._functions = functions
        self._known = known
        nodes = list(ast.walk(tree))
        self._bound = {name for node in nodes for name in _names_bound(node)}
        self._modules: dict[str, str] = {}
        self._members: dict[str, tuple[str, str]] = {}
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    self._modules[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom):
                members = {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
                self._members.update(members)
        self._over = [each for node in nodes if isinstance(node, _DEFINITIONS) for each in node.decorator_list]
        self._over += [each.func for each in self._over if isinstance(each, ast.Call)]
        self._bases = [node.value for node in nodes if isinstance(node, ast.Attribute)]
        self._called = [node.func for node in nodes if isinstance(node, ast.Call)]
        self._bare_super = [
            node for node in nodes if isinstance(node, ast.Call) and (node.args or node.keywords) and _is_super(node)
        ]
        self._made = {name: callee for node in nodes for name, callee in self._made_by_program(node)}

    def problems_of(self, node: ast.AST) -> Iterator[str]:
        """The problems of a node."""
        for name in _names_bound(node):
            if name.startswith("__") and name.endswith("__") and name not in DEFINED:
                yield f"setup code may not define {name!r}"
            elif name in self._modules and not isinstance(node, ast.Import | ast.alias):
                yield f"{name!r} is a module in this setup code; use another name"
        if isinstance(node, ast.ImportFrom):
            yield from _of_import(node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield from self._of_name(node)
        elif isinstance(node, ast.Attribute | ast.Subscript):
            yield from self._of_part(node)
            if not isinstance(node.ctx, ast.Load):
                yield from self._of_target(node)
        elif isinstance(node, ast.AugAssign) and any(isinstance(each, _CALLING) for each in ast.walk(node.target)):
            yield "setup code may change objects in place only by their names; assign it to a name first"

    def _of_name(self, node: ast.Name) -> Iterator[str]:
        name = node.id
        if name == "super" and (node not in self._called or any(node is each.func for each in self._bare_super)):
            yield "setup code may call super() only without arguments"
        if name in self._modules and node not in self._bases:
            yield f"setup code may use the module {name!r} only for its members, as in {name}.name"
        elif self._is_free(name) and self._known and name not in self._functions and not self._may_be_class(node):
            called = ", ".join(map(repr, self._functions))
            yield f"{name!r} is not known in setup code; it may call {called} and use classes of the program"
        yield from self._of_decorator(node)

    def _of_part(self, node: ast.Attribute | ast.Subscript) -> Iterator[str]:
        attribute = node.attr if isinstance(node, ast.Attribute) else ""
        private = attribute.startswith("_") and not attribute.endswith("__") and attribute not in _OF_NAMED_TUPLES
        if private and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            yield f"{attribute!r} is private; {_WAY_OUT}"
        made_by = self._made.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if attribute in _GROWING and made_by in self._functions:
            yield f"setup code may not change what {made_by!r} returned; copy it first"
        yield from self._of_decorator(node)

    def _of_decorator(self, node: ast.expr) -> Iterator[str]:
        module, name = self._member(node)
        if name in DECORATORS.get(module, ()) and node not in self._over:
            yield f"{name!r} may be used in setup code only as a decorator of its own definitions, as @{name}"

    def _of_target(self, node: ast.Attribute | ast.Subscript) -> Iterator[str]:
        root = _root(node)
        if not isinstance(root, ast.Name):
            return
        if root.id in self._modules:
            owner = node if isinstance(node, ast.Attribute) else node.value
            module, name = self._member(owner)
            patched = PATCHED.get(module, frozenset())
            if not name or (patched is not None and name not in patched):
                yield f"setup code may not change {ast.unparse(node)!r}"
        elif self._is_free(root.id):
            yield f"setup code may not change {root.id!r}, which belongs to the program: {_WAY_OUT}"
        elif root.id in self._made:
            yield f"setup code may not change what {self._made[root.id]!r} returned: {_WAY_OUT}"

    def _member(self, node: ast.expr) -> tuple[str, str]:
        """The module and the member that an expression refers to; two empty strings if it is something else."""
        if isinstance(node, ast.Name):
            return self._members.get(node.id, ("", ""))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self._modules:
            return self._modules[node.value.id], node.attr
        return "", ""

    def _is_free(self, name: str) -> bool:
        return name not in self._bound and name not in _BUILTINS and name != "inputs"

    def _may_be_class(self, node: ast.Name) -> bool:
        """Whether a name looks like a class name; other names are not available when the setup code runs."""
        return node.id[0].isupper() and (not node.id.isupper() or len(node.id) == 1 or node in self._called)

    def _made_by_program(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        """Names assigned from calls of functions or classes of the program, each with the callee."""
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            callee = _root(node.value)
            if isinstance(callee, ast.Name) and self._is_free(callee.id):
                yield from ((each.id, callee.id) for each in node.targets if isinstance(each, ast.Name))


def _of_import(node: ast.ImportFrom) -> Iterator[str]:
    module = node.module or ""
    for alias in node.names:
        if alias.name == "*":
            yield f"setup code must name what it imports from {module!r}"
        elif alias.name in IN_PLACE.get(module, ()):
            yield f"in setup code, write import {module}, and {module}.{alias.name}(...)"
        elif f"{module}.{alias.name}" in _RULES.modules:
            yield f"in setup code, write import {module}, and {module}.{alias.name}"


def _names_bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.alias):
        return [node.asname or node.name.partition(".")[0]]
    name = getattr(
        node, "arg" if isinstance(node, ast.arg) else "rest" if isinstance(node, ast.MatchMapping) else "name", None
    )
    return [name] if isinstance(name, str) else []


def _root(node: ast.expr) -> ast.expr:
    """The root of an expression: `a` in `a.b[0]` and in `a()[0]`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _without_super(tree: ast.Module) -> ast.Module:
    """Rename attributes of `super()`, so that the policy accepts them: they reach only classes of the setup code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_super(node.value) and node.attr in DEFINED:
            node.attr = node.attr.strip("_")
    return tree
