"""What Python code binds, calls and loads, and in which scopes: read from its syntax tree, without running it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache

from coderoom.sandbox.guest.magics import translate

_LONGEST = 20_000
_MOST_LINES_WITH_COMMANDS = 500
_NAMESPACES = ("globals", "locals", "vars")
_OPENING = ("exec", "__builtins__", "__main__", *_NAMESPACES)
_OPENING_ATTRIBUTES = ("f_globals", "f_locals", "f_builtins", "run_path", "run_module", "run_cell", "__dict__")
_READS = ("get", "keys", "values", "items", "__contains__")
_RAISES = ("suppress", "raises", "assertRaises", "assertRaisesRegex")
_OPENING_COMMANDS = ("run ", "pylab", "load_ext", "capture")

Place = tuple[int, int]
"""A line, counted from 1, and a column in bytes, counted from 0."""


@dataclass(eq=False)
class Scope:
    """A module, a function, a class, or a comprehension.

    Attributes:
        parent: The scope around it; `None`: it is the module.
        bound: What it binds, and how often.
        called: The names that it calls.
        name: The function or class that it is the body of.
        is_class: Whether it is the body of a class.
    """

    parent: Scope | None = None
    bound: dict[str, int] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    name: str = ""
    is_class: bool = False

    def bind(self, name: str) -> None:
        """Note that the name is bound here."""
        self.bound[name] = self.bound.get(name, 0) + 1

    def owner(self, name: str) -> Scope | None:
        """The nearest scope from here on that binds the name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.bound:
            scope = scope.parent
        return scope


@dataclass(frozen=True)
class Use:
    """Where a name is loaded.

    Attributes:
        node: The name.
        parents: The nodes around it, from the nearest one to the module.
        scope: Its scope.
        guards: The exceptions that the code around it expects, by their names.
    """

    node: ast.Name
    parents: tuple[ast.AST, ...]
    scope: Scope
    guards: frozenset[str]

    @property
    def call(self) -> ast.Call | None:
        """The call whose function is this name."""
        call = self.parents[0]
        return call if isinstance(call, ast.Call) and call.func is self.node else None

    @property
    def is_conditional(self) -> bool:
        """Whether its function may run without it."""
        inside: ast.AST = self.node
        for around in self.parents:
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return False
            if isinstance(around, ast.If | ast.IfExp | ast.Assert) and inside is not around.test:
                return True
            if isinstance(around, ast.BoolOp) and inside is not around.values[0]:
                return True
            if isinstance(around, ast.ExceptHandler | ast.match_case):
                return True
            inside = around
        return False


class Names(ast.NodeVisitor):
    """What a module binds, loads and calls.

    Attributes:
        code: Its text, without commands of a notebook.
        module: Its scope.
        uses: Where names are loaded, by place.
        definitions: The plain functions at its top, undecorated, by their names.
        values: What a name at its top is assigned, where that is all there is of the name.
        texts: The texts in it.
        expected: The exceptions that are expected anywhere in it.
        is_open: Whether it may bind names that cannot be read.
    """

    def __init__(self, code: str, tree: ast.Module) -> None:
        self.code = code
        self.module = Scope()
        self.uses: dict[Place, Use] = {}
        self.definitions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.values: dict[str, ast.expr] = {}
        self.texts: set[str] = set()
        self.expected: set[str] = set()
        self.is_open = False
        self._scope = self.module
        self._scopes: list[Scope] = [self.module]
        self._parents: list[ast.AST] = []
        self._guards: frozenset[str] = frozenset()
        self._attributes: set[str] = set()
        self.visit(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list:
                self.definitions[node.name] = node
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.values[node.targets[0].id] = node.value
        for known in (self.definitions, self.values):
            for name in [name for name in known if self.module.bound.get(name) != 1]:
                del known[name]

    def reached(self) -> set[Scope]:
        """The scopes whose code runs with the module, as far as can be seen: not functions that nothing there calls."""
        found = {self.module}
        while True:
            called = {name for scope in found for name in scope.called}
            more = {each for each in self._scopes if each.parent in found and self._runs(each, called)}
            if more <= found:
                return found
            found |= more

    def _runs(self, scope: Scope, called: Set[str]) -> bool:
        """Whether the body of a scope runs, by the names that are called; the scope around it does."""
        around = scope.parent
        if not scope.name or scope.is_class:
            return True
        if around is None or not around.is_class:
            return scope.name in called
        return around.name in called and (scope.name in self._attributes or scope.name.startswith("__"))

    def visit(self, node: ast.AST) -> None:
        """Visit a node, and note what is around it."""
        self._parents.append(node)
        super().visit(node)
        self._parents.pop()

    def visit_Name(self, node: ast.Name) -> None:
        """Note a name."""
        if not isinstance(node.ctx, ast.Load):
            self._scope.bind(node.id)
            return
        around = tuple(reversed(self._parents[:-1]))
        use = self.uses[node.lineno, node.col_offset] = Use(node, around, self._scope, self._guards)
        if use.call is not None:
            self._scope.called.add(node.id)
        self.is_open = self.is_open or (node.id in _OPENING and not _is_read(node, around))

    def visit_Constant(self, node: ast.Constant) -> None:
        """Note a text."""
        if isinstance(node.value, str):
            self.texts.add(node.value)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Note the name of an attribute, and what opens a namespace."""
        self._attributes.add(node.attr)
        opens = node.attr in _OPENING_ATTRIBUTES or (node.attr == "modules" and not isinstance(node.ctx, ast.Store))
        self.is_open = self.is_open or opens
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Note a call, but not what a command of a notebook was translated to."""
        if not _is_command(node.func):
            self.generic_visit(node)
            return
        given = [each.value for each in node.args if isinstance(each, ast.Constant)]
        self.is_open = self.is_open or any(str(each).startswith(_OPENING_COMMANDS) for each in given)
        for each in node.args:
            if isinstance(each, ast.Lambda):  # A statement that is timed.
                self.visit(each)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Note what an import binds."""
        for each in node.names:
            if each.name == "*" or each.name in ("builtins", "__main__"):
                self.is_open = True
            self._scope.bind(each.asname or each.name.partition(".")[0])

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_Global(self, node: ast.Global) -> None:
        """Note the names of the module that a function may bind."""
        for name in node.names:
            self.module.bind(name)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """Note the name of an exception."""
        if node.name:
            self._scope.bind(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        """Note what a pattern binds."""
        if node.name:
            self._scope.bind(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs  # noqa: N815

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        """Note what a pattern binds."""
        if node.rest:
            self._scope.bind(node.rest)
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        """Note which exceptions are expected."""
        caught = {name for each in node.handlers for name in _exceptions(each.type)}
        self._visit_guarded(node.body, caught)
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(part)

    visit_TryStar = visit_Try  # noqa: N815

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        """Note which exceptions are expected."""
        caught: set[str] = set()
        for item in node.items:
            self.visit(item)
            call = item.context_expr
            if isinstance(call, ast.Call) and _last_name(call.func) in _RAISES:
                caught |= {name for each in call.args for name in _exceptions(each)}
        self._visit_guarded(node.body, caught)

    visit_AsyncWith = visit_With  # noqa: N815

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Note a function and what is in it."""
        self._scope.bind(node.name)
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)
        self._visit_inside(node.args, node.body, node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Note what is in a lambda."""
        self._visit_inside(node.args, [node.body], "<lambda>")  # Nothing says whether it is called.

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Note a class and what is in it."""
        self._scope.bind(node.name)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self._visit_inside(None, node.body, node.name, is_class=True)

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self._visit_inside(None, [*node.generators, *_elements(node)], "")

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension  # noqa: N815

    def _visit_guarded(self, body: list[ast.stmt], caught: set[str]) -> None:
        before, self._guards = self._guards, self._guards | caught
        self.expected |= caught
        for each in body:
            self.visit(each)
        self._guards = before

    def _visit_inside(
        self, arguments: ast.arguments | None, body: Sequence[ast.AST], name: str, *, is_class: bool = False
    ) -> None:
        outside, self._scope = self._scope, Scope(self._scope, name=name, is_class=is_class)
        self._scopes.append(self._scope)
        if arguments is not None:
            for each in ast.walk(arguments):
                if isinstance(each, ast.arg):
                    self._scope.bind(each.arg)
        for part in body:
            self.visit(part)
        self._scope = outside


def _elements(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> Iterator[ast.expr]:
    yield from (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)


def _is_command(node: ast.expr) -> bool:
    """Whether it is what a command of a notebook was translated to."""
    made = node.value if isinstance(node, ast.Attribute) else None
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name) or made.func.id != "__import__":
        return False
    return any(isinstance(each, ast.Constant) and each.value == "coderoom_guest.magics" for each in made.args)


def _is_read(node: ast.Name, parents: tuple[ast.AST, ...]) -> bool:
    """Whether `globals()` or the like is only looked into."""
    call, around = (*parents, None, None)[:2]
    if node.id not in _NAMESPACES or not isinstance(call, ast.Call) or call.func is not node:
        return False
    if node.id == "vars" and call.args:
        return not isinstance(around, ast.Subscript) or isinstance(around.ctx, ast.Load)
    return isinstance(around, ast.Compare) or (isinstance(around, ast.Attribute) and around.attr in _READS)


def _exceptions(node: ast.expr | None) -> list[str]:
    if node is None:
        return ["BaseException"]
    return [_last_name(each) for each in (node.elts if isinstance(node, ast.Tuple) else [node])]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@lru_cache(maxsize=256)
def read_names(code: str) -> Names | None:
    """The names of code; `None` if it is not Python, or is too much to read."""
    if len(code) > _LONGEST or "\0" in code:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tree = ast.parse(code)
            except SyntaxError:
                if code.count("\n") > _MOST_LINES_WITH_COMMANDS:
                    return None
                code = translate(code)
                tree = ast.parse(code)
        return Names(code, tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
