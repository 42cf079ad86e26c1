"""Finds what the names imported at the top level stand for."""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterable, Iterator

from coderoom.generation.languages.python.facts import tree_of

__all__ = ["imported_names"]


def imported_names(source: str) -> dict[str, str]:
    """The names that the top level imports and gives no other value, and what each stands for; `*` is one of them."""
    tree = tree_of(source)
    found: dict[str, set[str]] = {}
    others: set[str] = set()
    for name, what in _bound(tree.body if tree is not None else ()):
        if what:
            found.setdefault(name, set()).add(what)
        else:
            others.add(name)
    return {name: " or ".join(sorted(several)) for name, several in found.items() if name not in others}


def _bound(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The names that statements bind, each with what is imported by it; empty where that is something else."""
    for node in body:
        if isinstance(node, ast.Import):
            for each in node.names:
                yield (each.asname, each.name) if each.asname else 2 * (each.name.partition(".")[0],)
        elif isinstance(node, ast.ImportFrom):
            if node.module != "__future__":
                yield from ((each.asname or each.name, _known(node.module or "", each.name)) for each in node.names)
        elif isinstance(node, ast.If | ast.Try):
            handlers = node.handlers if isinstance(node, ast.Try) else []
            final = node.finalbody if isinstance(node, ast.Try) else []
            yield from _bound([*node.body, *(each for one in handlers for each in one.body), *node.orelse, *final])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, ""
        else:
            names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            yield from ((each.id, "") for each in names if isinstance(each.ctx, ast.Store))


def _known(module: str, name: str) -> str:
    """What is imported; what `typing` has of `collections.abc` does for that."""
    origin = getattr(getattr(typing, name, None), "__origin__", None) if module == "typing" else None
    same = getattr(origin, "__module__", "") == "collections.abc" and getattr(origin, "__name__", "") == name
    return f"{'collections.abc' if same else module}.{name}"
