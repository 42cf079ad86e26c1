"""Applies the rules of the policy `restricted` to a syntax tree; used by `policy`."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from coderoom.sandbox.guest.restricted import Rulebook
from coderoom.sandbox.policy_rules import restricted_rules

__all__ = ["RULES", "FindingKind", "PolicyFinding", "find"]

FindingKind = Literal["import", "name", "attribute", "size"]

RULES: Final = Rulebook(restricted_rules())


@dataclass(frozen=True, order=True)
class PolicyFinding:
    """A violation of the policy.

    Attributes:
        line: Its line, counted from 1.
        message: What it is and, where one is near, the way out.
        kind: What sort of thing it is; `size` is code that is too long or nested too deeply to be checked.
    """

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
    walk = _Walk(rules)
    walk.over(tree)
    return sorted(set(walk.findings()))


class _Walk:
    """Collects violations. Names are checked at the end, when it is known which of them the code binds itself."""

    def __init__(self, rules: Rulebook) -> None:
        self.rules = rules
        self.named_classes: set[ast.expr] = set()
        self.members: list[ast.Attribute] = []
        self.names: list[ast.Name] = []
        self._found: list[PolicyFinding] = []
        self._bound: set[str] = set()
        self._imported: dict[str, str] = {}

    def over(self, tree: ast.AST) -> None:
        """Visit every node, parents first, without recursion: code can be nested deeper than Python's stack."""
        stack = [tree]
        while stack:
            node = stack.pop()
            visit = _VISITS.get(type(node))
            if visit is not None:
                visit(self, node)
            # Not `__dict__`: other programs, such as bandit, put attributes on nodes that all trees share.
            for field in node._fields:
                value = getattr(node, field, None)
                if type(value) is list:
                    stack.extend([item for item in value if isinstance(item, ast.AST)])
                elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                    stack.append(value)

    def refuse(self, node: ast.AST, kind: FindingKind, message: str | None) -> None:
        """Add a violation, if there is a reason."""
        if message is not None:
            self._found.append(PolicyFinding(getattr(node, "lineno", 1), message, kind))

    def bind(self, node: ast.AST, name: str | None, module: str | None = None) -> None:
        """Note a name that the code binds, and its module if it is always bound to one."""
        if name is None:
            return
        if name in self.rules.names:
            self.refuse(node, "name", self.rules.name(name))
        if module is None or self._imported.get(name, module) != module:
            self._bound.add(name)
        else:
            self._imported[name] = module

    def findings(self) -> Iterator[PolicyFinding]:
        """All violations."""
        for name in self.names:
            if name.id in self.rules.names or not (name.id in self._bound or name.id in self._imported):
                self.refuse(name, "name", self.rules.name(name.id))
        for node in self.members:
            module = self._module(node.value)
            if module in self.rules.modules:
                self.refuse(node, "attribute", self.rules.member(module, node.attr, _value(module, node.attr)))
        yield from self._found

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


def _import(walk: _Walk, node: ast.Import) -> None:
    for alias in node.names:
        walk.refuse(node, "import", walk.rules.module(alias.name))
        name = alias.asname or alias.name.partition(".")[0]
        walk.bind(node, name, alias.name if alias.asname else name)


def _import_from(walk: _Walk, node: ast.ImportFrom) -> None:
    module = node.module or ""
    problem = walk.rules.relative if node.level else walk.rules.module(module)
    walk.refuse(node, "import", problem)
    for alias in node.names:
        inner = f"{module}.{alias.name}"
        walk.bind(node, alias.asname or alias.name, inner if inner in walk.rules.modules else None)
        if problem is None and alias.name != "*":
            walk.refuse(node, "attribute", walk.rules.member(module, alias.name, _value(module, alias.name)))


def _name(walk: _Walk, node: ast.Name) -> None:
    if not isinstance(node.ctx, ast.Load):
        walk.bind(node, node.id)
    elif node.id in walk.rules.builtins or node.id in walk.rules.names:
        walk.names.append(node)


def _attribute(walk: _Walk, node: ast.Attribute) -> None:
    inner = node.value
    if node.attr in ("__name__", "__qualname__") and isinstance(inner, ast.Attribute):
        walk.named_classes.add(inner)
    # Ordinary classes use `self.__class__`, which gives no more than `type` does: only the next step climbs.
    ordinary = isinstance(inner, ast.Name) or node in walk.named_classes
    if node.attr == "__class__" and isinstance(node.ctx, ast.Load) and ordinary:
        return
    problem = walk.rules.attribute(node.attr)
    if problem is None and isinstance(inner, (ast.Name, ast.Attribute)):
        walk.members.append(node)
    walk.refuse(node, "attribute", problem)


def _call(walk: _Walk, node: ast.Call) -> None:
    if not isinstance(node.func, ast.Name):
        return
    if node.func.id in ("getattr", "setattr", "delattr") and len(node.args) > 1:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            walk.refuse(node, "attribute", walk.rules.attribute(name.value))
    elif node.func.id == "vars" and not node.args:
        walk.refuse(node, "name", walk.rules.vars_alone)


# The part of a template for `str.format` before conversion and format.
_FIELD: Final = re.compile(r"\{([^{}:!]*)")
_KEY_OR_NAME_OF_CLASS: Final = re.compile(r"\[[^\]]*\]?|\.__class__(?=\.__(?:qual)?name__)")


def _constant(walk: _Walk, node: ast.Constant) -> None:
    # In any text: it may get a name first, and be used as a template later.
    if type(node.value) is not str or "{" not in node.value or "_" not in node.value:
        return
    for field in _FIELD.findall(node.value):
        for step in _KEY_OR_NAME_OF_CLASS.sub("", field).split(".")[1:]:
            problem = walk.rules.attribute(step)
            walk.refuse(node, "attribute", problem and f"in a template, {problem}")


def _match_class(walk: _Walk, node: ast.MatchClass) -> None:
    for name in node.kwd_attrs:
        walk.refuse(node, "attribute", walk.rules.attribute(name))


def _named(field: str) -> Callable[[_Walk, Any], None]:
    return lambda walk, node: walk.bind(node, getattr(node, field))


_VISITS: Final[dict[type, Callable[[_Walk, Any], None]]] = {
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Constant: _constant,
    ast.MatchClass: _match_class,
    ast.MatchMapping: _named("rest"),
    ast.arg: _named("arg"),
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), _named("name")),
    **dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar), _named("name")),
}
