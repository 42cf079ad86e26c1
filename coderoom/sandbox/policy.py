"""The policies: early feedback on what code may do, before it runs. They are never security; the walls are.

This module has the rules of the policy `restricted` and applies them to a syntax tree; `guest.restricted` applies them
while the code runs.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from coderoom.sandbox.guest.cells import dedented
from coderoom.sandbox.guest.restricted import Rulebook
from coderoom.sandbox.result import CodeError

MAX_CHARACTERS: Final = 250_000
"""Checking takes memory and time on the host: longer code is refused unchecked."""

# Kagura's lists, and what ordinary Python of a model needs. `abc`, `asyncio`, `contextlib`, `numbers`,
# `types` and `__future__` belong to the language (abstract classes, `async`, `with`, annotations); `bisect`, `cmath`,
# `heapq`, `pprint` and `textwrap` only compute. Where a module can do more than that, its harmless names are listed.
_MODULES: Final[dict[str, str | None]] = {
    **dict.fromkeys(["math", "random", "statistics", "json", "re", "string", "datetime", "collections"]),
    **dict.fromkeys(["itertools", "functools", "operator", "copy"]),
    **dict.fromkeys(["decimal", "fractions", "typing", "dataclasses", "enum", "time"]),
    **dict.fromkeys(["__future__", "abc", "contextlib", "numbers"]),
    **dict.fromkeys(["bisect", "cmath", "heapq", "pprint", "textwrap"]),
    **dict.fromkeys(["collections.abc", "json.decoder", "json.encoder"]),
    "asyncio": """
        ALL_COMPLETED FIRST_COMPLETED FIRST_EXCEPTION Barrier BoundedSemaphore BrokenBarrierError CancelledError
        Condition Event Future InvalidStateError LifoQueue Lock PriorityQueue Queue QueueEmpty QueueFull Runner
        Semaphore Task TaskGroup Timeout TimeoutError all_tasks as_completed create_task current_task ensure_future
        gather isfuture iscoroutine iscoroutinefunction run shield sleep timeout timeout_at wait wait_for
    """,
    "types": """
        AsyncGeneratorType BuiltinFunctionType BuiltinMethodType CoroutineType DynamicClassAttribute EllipsisType
        FunctionType GeneratorType GenericAlias LambdaType MappingProxyType MethodType ModuleType NoneType
        NotImplementedType SimpleNamespace TracebackType UnionType coroutine get_original_bases new_class
        prepare_class resolve_bases
    """,
}

_FILES: Final = "files are out of reach under this policy, put the data in the code"
_NETWORK: Final = "the network cannot be used under this policy, put the data in the code"
_PROGRAMS: Final = "other programs and threads are out of reach under this policy, compute it here"
_INSIDES: Final = "the interpreter's insides are out of reach under this policy"
_PACKAGES: Final = "there are no third-party packages under this policy, use the standard modules and lists"
_EVALUATE: Final = "write the code out, or read data with `json.loads`"
_NAMESPACE: Final = "keep named values in a dict of your own"
_CLASSES: Final = "use `isinstance` or `issubclass`"

# The reason, and the nearest alternative.
_MODULE_HINTS: Final = {
    _FILES: "codecs csv fileinput glob gzip io linecache mmap os pathlib pickle posix shelve shutil sqlite3 tarfile "
    "tempfile zipfile",
    _NETWORK: "aiohttp ftplib http httpx requests select selectors smtplib socket socketserver ssl urllib urllib3 "
    "webbrowser xmlrpc",
    _PROGRAMS: "_thread concurrent ctypes fcntl multiprocessing pty queue resource signal subprocess threading",
    _INSIDES: "ast atexit builtins code codeop dis gc importlib inspect marshal pkgutil pydoc runpy site tracemalloc "
    "weakref",
    _PACKAGES: "attr bs4 lxml matplotlib networkx numpy pandas PIL plotly polars pydantic scipy seaborn sklearn sympy "
    "tensorflow torch yaml",
    "to end early, use `raise SystemExit`": "sys",
    "write the checks with `assert`": "doctest pytest unittest",
    "what is raised is reported anyway": "faulthandler traceback",
    "use `print`": "logging",
}

_BUILTINS: Final = {
    "open": _FILES,
    "eval": _EVALUATE,
    "exec": _EVALUATE,
    "compile": _EVALUATE,
    "__import__": "use an `import` statement",
    "input": "nobody can answer, put the values in the code",
    "breakpoint": "use `print`",
    "help": "nobody reads it",
    "globals": _NAMESPACE,
    "locals": _NAMESPACE,
}

_NAMES: Final = "__build_class__ __builtins__ __cached__ __file__ __loader__ __path__ __spec__"

_FRAMES: Final = """
    f_back f_builtins f_code f_globals f_locals f_trace gi_code gi_frame gi_yieldfrom cr_await cr_code cr_frame
    cr_origin ag_await ag_code ag_frame tb_frame tb_next func_closure func_code func_dict func_globals
"""

# With hints where there is a harmless alternative. Other names with two underscores on both sides are refused, except
# those in the list below.
_ATTRIBUTES: Final = {
    "__class__": "use `type(x)`",
    "__dict__": "use `vars(x)`",
    "__base__": _CLASSES,
    "__bases__": _CLASSES,
    "__mro__": _CLASSES,
    "__subclasses__": "keep a list of the classes of your own",
    "__getattribute__": "define `__getattr__`, or use `getattr`",
    "__reduce__": "use `copy.copy`",
    "__reduce_ex__": "use `copy.copy`",
}

_ARITHMETIC: Final = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"

_DUNDERS: Final = """
    name qualname doc module version annotations wrapped defaults kwdefaults type_params
    new init del post_init init_subclass class_getitem set_name call slots match_args prepare
    instancecheck subclasscheck subclasshook abstractmethods isabstractmethod
    repr str bytes format hash bool int float complex index round trunc floor ceil neg pos abs invert
    lt le eq ne gt ge
    len length_hint getitem setitem delitem missing contains iter next reversed
    getattr setattr delattr dir get set delete
    enter exit await aiter anext aenter aexit
    copy deepcopy replace getstate setstate getnewargs getnewargs_ex fspath sizeof
    cause context suppress_context traceback notes
    members dataclass_fields dataclass_params origin args parameters supertype bound constraints
    total required_keys optional_keys
"""

FindingKind = Literal["import", "name", "attribute", "size"]
# The part of a template for `str.format` before conversion and format.
_FIELD: Final = re.compile(r"\{([^{}:!]*)")
_KEY_OR_NAME_OF_CLASS: Final = re.compile(r"\[[^\]]*\]?|\.__class__(?=\.__(?:qual)?name__)")
POLICIES: Final = ("restricted", "open")
_SHOWN: Final = 20
# The filters of warnings belong to the whole process.
_filtering = threading.Lock()


def restricted_rules() -> dict[str, Any]:
    """The rules as JSON-like data, for `guest.restricted.Rulebook`."""
    dunders = [
        *_DUNDERS.split(),
        *(prefix + name for prefix in ("", "r", "i") for name in _ARITHMETIC.split()),
    ]
    return {
        "modules": {name: None if members is None else members.split() for name, members in _MODULES.items()},
        "module_hints": {name: hint for hint, names in _MODULE_HINTS.items() for name in names.split()},
        "builtins": dict(_BUILTINS),
        "names": _NAMES.split(),
        "attributes": {**_ATTRIBUTES, **dict.fromkeys(_FRAMES.split(), _INSIDES)},
        "dunders": [f"__{name}__" for name in dunders],
    }


RULES: Final = Rulebook(restricted_rules())


@dataclass(frozen=True, order=True)
class PolicyFinding:
    """A violation of the policy; the `message` says what it is and, where one is near, the way out."""

    line: int
    message: str
    kind: FindingKind

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def find(tree: ast.Module, rules: Rulebook = RULES) -> list[PolicyFinding]:
    """Find violations, in the order of lines, each once a line.

    Args:
        tree: The code.
        rules: The policy's rules.
    """
    visitor = _Visitor(rules)
    stack: list[ast.AST] = [tree]
    while stack:  # Parents first, and without recursion: code can be nested deeper than Python's stack.
        node = stack.pop()
        visitor.visit(node)
        # As `ast.iter_child_nodes`, but twice as fast.
        for field in node._fields:
            value = getattr(node, field, None)
            if type(value) is list:
                stack.extend([item for item in value if isinstance(item, ast.AST)])
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                stack.append(value)
    return sorted(set(visitor.findings()))


class _Visitor(ast.NodeVisitor):
    """Collects violations. Names are checked at the end, when it is known which of them the code binds itself."""

    def __init__(self, rules: Rulebook) -> None:
        self._rules = rules
        self._found: list[PolicyFinding] = []
        self._named_classes: set[ast.expr] = set()
        self._members: list[ast.Attribute] = []
        self._names: list[ast.Name] = []
        self._bound: set[str] = set()
        self._imported: dict[str, str] = {}

    def findings(self) -> list[PolicyFinding]:
        """All violations."""
        for name in self._names:
            if name.id in self._rules.names or not (name.id in self._bound or name.id in self._imported):
                self._refuse(name, "name", self._rules.name(name.id))
        for node in self._members:
            module = self._module(node.value)
            if module in self._rules.modules:
                self._refuse(node, "attribute", self._rules.member(module, node.attr, _value(module, node.attr)))
        return self._found

    def generic_visit(self, node: ast.AST) -> None:
        """Other nodes are harmless; what is in them is visited in its turn."""

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._refuse(node, "import", self._rules.module(alias.name))
            name = alias.asname or alias.name.partition(".")[0]
            self._bind(node, name, alias.name if alias.asname else name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        problem = self._rules.relative if node.level else self._rules.module(module)
        self._refuse(node, "import", problem)
        for alias in node.names:
            inner = f"{module}.{alias.name}"
            self._bind(node, alias.asname or alias.name, inner if inner in self._rules.modules else None)
            if problem is None and alias.name != "*":
                self._refuse(node, "attribute", self._rules.member(module, alias.name, _value(module, alias.name)))

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._bind(node, node.id)
        elif node.id in self._rules.builtins or node.id in self._rules.names:
            self._names.append(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        inner = node.value
        if node.attr in ("__name__", "__qualname__") and isinstance(inner, ast.Attribute):
            self._named_classes.add(inner)
        # Ordinary classes use `self.__class__`, which gives no more than `type` does: only the next step climbs.
        ordinary = isinstance(inner, ast.Name) or node in self._named_classes
        if node.attr == "__class__" and isinstance(node.ctx, ast.Load) and ordinary:
            return
        problem = self._rules.attribute(node.attr)
        if problem is None and isinstance(inner, (ast.Name, ast.Attribute)):
            self._members.append(node)
        self._refuse(node, "attribute", problem)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "delattr"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                self._refuse(node, "attribute", self._rules.attribute(name))
            case ast.Call(func=ast.Name(id="vars"), args=[]):
                self._refuse(node, "name", self._rules.vars_alone)

    def visit_Constant(self, node: ast.Constant) -> None:
        # In any text: it may get a name first, and be used as a template later.
        if type(node.value) is not str or "{" not in node.value or "_" not in node.value:
            return
        for field in _FIELD.findall(node.value):
            for step in _KEY_OR_NAME_OF_CLASS.sub("", field).split(".")[1:]:
                problem = self._rules.attribute(step)
                self._refuse(node, "attribute", problem and f"in a template, {problem}")

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        for name in node.kwd_attrs:
            self._refuse(node, "attribute", self._rules.attribute(name))

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._bind(node, node.rest)

    def visit_arg(self, node: ast.arg) -> None:
        self._bind(node, node.arg)

    def _visit_named(self, node: Any) -> None:
        self._bind(node, node.name)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _visit_named  # noqa: N815 (the names of nodes)
    visit_ExceptHandler = visit_MatchAs = visit_MatchStar = _visit_named  # noqa: N815

    def _refuse(self, node: ast.AST, kind: FindingKind, message: str | None) -> None:
        """Add a violation, if there is a reason."""
        if message is not None:
            self._found.append(PolicyFinding(getattr(node, "lineno", 1), message, kind))

    def _bind(self, node: ast.AST, name: str | None, module: str | None = None) -> None:
        """Note a name that the code binds, and its module if it is always bound to one."""
        if name is None:
            return
        if name in self._rules.names:
            self._refuse(node, "name", self._rules.name(name))
        if module is None or self._imported.get(name, module) != module:
            self._bound.add(name)
        else:
            self._imported[name] = module

    def _module(self, node: ast.expr) -> str:
        """The name of the module that an expression is; otherwise a text that is not a module's name."""
        if isinstance(node, ast.Name) and node.id not in self._bound:
            return self._imported.get(node.id, "")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return f"{self._module(node.value)}.{node.attr}"
        return ""


@cache
def _value(module: str, name: str) -> object:
    """The value of a name in an allowed module here; the sandbox may have another version."""
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return None
    return vars(importlib.import_module(module)).get(name)


def check_restricted(code: str) -> CodeError | None:
    """The `PolicyError` of code that the policy `restricted` rejects, before it runs; `None` if it may run.

    Code with a syntax error has no findings: the interpreter that runs it reports the error. If that interpreter knows
    newer syntax than this one, the rules hold while the code runs.
    """
    findings = _findings(code)
    return CodeError("PolicyError", _message(findings), line=findings[0].line) if findings else None


def check_apart(code: str) -> CodeError | None:
    """As `check_restricted`, in a process of its own: Python's parser stops all threads of the one that it is in."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", _APART],
        input=code.encode("utf-8", "surrogatepass"),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode:  # The parser has ended its process.
        return CodeError("PolicyError", "the code cannot be checked: split it\nNothing of this code was run.")
    found = json.loads(done.stdout)
    return None if found is None else CodeError(**found)


_APART: Final = """
import dataclasses, json, sys
from coderoom.sandbox.policy import check_restricted
found = check_restricted(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
print(json.dumps(found and dataclasses.asdict(found)))
"""


def _findings(code: str) -> list[PolicyFinding]:
    if len(code) > MAX_CHARACTERS:
        limit = f"the code has {len(code):,} characters, and {MAX_CHARACTERS:,} are allowed here: split it"
        return [PolicyFinding(1, limit, "size")]
    try:
        with _filtering, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The interpreter that runs the code shows them.
            tree = ast.parse(dedented(code))
    except (RecursionError, MemoryError):
        return [PolicyFinding(1, "the code is nested too deeply to be checked: split its expressions", "size")]
    except (SyntaxError, ValueError):  # Null bytes and lone surrogates are a `ValueError`.
        return []
    return find(tree)


def _message(findings: Sequence[PolicyFinding]) -> str:
    """Every finding with its lines; equal findings, and the list of allowed modules, only once."""
    lines: dict[str, list[int]] = {}
    for finding in findings:
        lines.setdefault(finding.message, []).append(finding.line)
    texts = [f"{_place(where)}: {message}" for message, where in list(lines.items())[:_SHOWN]]
    first = next((finding.message for finding in findings if finding.kind == "import"), None)
    texts = [
        f"{text}; {RULES.allowed}" if message == first else text for text, message in zip(texts, lines, strict=False)
    ]
    if len(lines) > _SHOWN:
        texts.append(f"and {len(lines) - _SHOWN} more")
    return "\n".join([*texts, "Nothing of this code was run."])


def _place(lines: Sequence[int]) -> str:
    if len(lines) == 1:
        return f"line {lines[0]}"
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return f"lines {', '.join(map(str, lines[:5]))}{more}"
