"""Removes examples from the top level of Python code, and keeps calls that prepare what its functions use."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from coderoom.generation.languages.python.check import LONGEST, UNREADABLE, bindings, parsed, words

_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CHANGING = words(
    "add append appendleft clear discard extend insert pop popitem popleft push put register remove reverse setdefault "
    "sort update"
)
_SHOWING = words(
    "critical debug display error exception flush info log main mainloop pprint print run serve_forever show warning "
    "write writelines"
)
"""Methods that change their object, and what is called for another effect."""
_FIXED = words("Field TypeVar compile field getLogger namedtuple")
"""Functions whose result never changes, or that give each object its own one."""


def without_examples(source: str) -> tuple[str, list[str]]:
    """See `Language.without_examples`: `print`, `assert`, and calls that change nothing that lasts, also in loops."""
    try:
        body = parsed(source).body if len(source) <= LONGEST else []
    except UNREADABLE:
        return source, []
    program = _Program(body)
    lines: list[str | None] = [*source.split("\n")]
    notes = []
    for node in filter(program.is_example, body):
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        alone = sum(other.lineno - 1 < last and (other.end_lineno or 0) > first for other in body) == 1
        if alone and "\r" not in source:
            lines[first:last] = [None] * (last - first)
            notes.append(f"line {node.lineno}, an example at the top level, was removed")
    return "\n".join(line for line in lines if line is not None), notes


class _Program:
    """What calls at the top level of code change. In cases of doubt, they change something."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self._own = {node.name: node for node in body if isinstance(node, _DEFINING)}
        inside = [each for node in body for each in ast.walk(node)]
        imports = [each for each in inside if isinstance(each, ast.Import | ast.ImportFrom)]
        self._imported = {name for each in imports for name, _ in bindings(each)}
        self._variables = {*_variables(body)} - self._own.keys() | {"cls"}
        self._shared = {"__class__"}.union(
            *(_variables(each.body) for each in inside if isinstance(each, ast.ClassDef))
        )
        self._effects = functools.cache(self._find_effects)

    def is_example(self, node: ast.stmt) -> bool:
        """Whether a statement only shows or checks something."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name = getattr(node.value.func, "id", "")
            return name == "print" or (name in self._own and not self._changes(node))
        if isinstance(node, ast.For | ast.If) and not (isinstance(node, ast.If) and "__name__" in _names(node.test)):
            return not node.orelse and all(map(self.is_example, node.body))
        return isinstance(node, ast.Assert)

    def _changes(self, statement: ast.stmt) -> bool:
        """Whether a statement, or a function that it calls, may change what the program keeps."""
        parameters = passes = False
        called: set[str] = set()
        left: list[ast.stmt] = [statement]
        while left:
            lasting, of_parameters, passes_on, calls = self._effects(left.pop())
            parameters |= of_parameters
            passes |= passes_on
            if lasting or (parameters and passes):
                return True
            left += [self._own[name] for name in calls - called]
            called |= calls
        return False

    def _find_effects(self, node: ast.stmt) -> tuple[bool, bool, bool, set[str]]:
        """Whether a part itself changes what lasts, or parameters, and passes on what lasts; the functions it calls."""
        parts = [*ast.walk(node)]
        parameters = {each.arg for each in parts if isinstance(each, ast.arg)} - {"self", "cls"}
        bound = {each.id for each in parts if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
        bound |= parameters
        lasting = self._variables | self._own.keys() | self._imported
        sources: dict[str, set[str]] = {}
        for name, root in self._sources(parts):
            if root in self._variables | bound:
                sources.setdefault(name, set()).add(root)
        changed = _closure(self._changed(parts, bound), sources)
        shows = any(isinstance(each, ast.Assert) or _called(each) == "print" for each in parts)
        if shows:  # What it computes to show it may fill a cache, for instance.
            bare = [each.value for each in parts if isinstance(each, ast.Expr) and _called(each.value) != "print"]
            parts = [each for value in bare for each in ast.walk(value)]
        calls = self._own.keys() & {each.id for each in parts if isinstance(each, ast.Name)}
        passed = {self._root(given) for each in parts if _called(each) in self._own for given in _arguments(each)}
        passes = not (_closure(passed, sources) - bound).isdisjoint(self._variables)
        is_global = any(isinstance(each, ast.Global) for each in parts)
        return is_global or not (changed - bound).isdisjoint(lasting), bool(changed & parameters), passes, calls

    def _changed(self, parts: Iterable[ast.AST], bound: set[str]) -> Iterator[str]:
        """The names of what a part changes, or attributes and items of which."""
        for each in parts:
            if isinstance(each, ast.Subscript | ast.Attribute) and not isinstance(each.ctx, ast.Load):
                yield self._root(each.value)
            elif isinstance(each, ast.Call) and getattr(each.func, "attr", "") in _CHANGING:
                yield self._root(each.func)
            elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):  # It is called for its effect.
                call = each.value
                is_method = not _called(call) and self._root(call.func) not in self._imported
                objects = {self._root(part) for part in ([call.func] if is_method else _arguments(call))}
                if _name(call.func) not in _SHOWING and _called(call) not in self._own:
                    yield from objects & (self._variables | bound)

    def _sources(self, parts: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
        """Names, each with that of an object that it may be a part of."""
        for each in parts:
            if isinstance(each, ast.Assign | ast.AnnAssign) and each.value:
                yield from ((name, self._root(each.value)) for name, origin in bindings(each) if origin == "")
            elif isinstance(each, ast.For):
                yield from itertools.product(_names(each.target), _names(each.iter))

    def _root(self, node: ast.AST) -> str:
        """The name of the object that an expression is a part of; `cls` for what all objects of a class share."""
        attribute = ""
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
            if _called(node):
                return "cls" if _called(node) in ("globals", "type") else ""
            attribute = getattr(node, "attr", "")
            node = node.func if isinstance(node, ast.Call) else node.value
        name = getattr(node, "id", "")
        return ("cls" if attribute in self._shared else "") if name == "self" else name


def _variables(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names of a module or class whose values may change."""
    for node in body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else node
        is_fixed = isinstance(value, (*_DEFINING, ast.Constant)) or _name(getattr(value, "func", None)) in _FIXED
        if value is not None and not is_fixed:
            yield from (name for name, origin in bindings(node) if origin == "")


def _closure(names: Iterable[str], sources: Mapping[str, set[str]]) -> set[str]:
    """Names, and those of all objects that they may be parts of."""
    found: set[str] = set()
    left = [*names]
    while left:
        name = left.pop()
        left += sources.get(name, set()) - found
        found.add(name)
    return found


def _name(node: ast.AST | None) -> str:
    return getattr(node, "id", "") or getattr(node, "attr", "")


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _called(node: ast.AST) -> str:
    """The name of a function that is called; empty for methods and all else."""
    return getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""


def _arguments(node: ast.AST) -> list[ast.expr]:
    return [*node.args, *(each.value for each in node.keywords)] if isinstance(node, ast.Call) else []
