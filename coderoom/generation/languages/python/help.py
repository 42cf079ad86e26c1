"""Selects the definitions of `guest/same.py` that a pytest file uses."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection
from importlib import resources

__all__ = ["HELPERS", "help_with"]

# What types and marks of linters say is for those who work on it here.
_FOR_US = re.compile(r"  # (?:type: ignore|noqa).*|: (?:Any|float|bool)(?=[,)= ])| -> (?:Any|bool|str|int|None)(?=:)")


@functools.cache
def _definitions() -> dict[str, str]:
    """The definitions by their names, in their order."""
    text = (resources.files("coderoom.generation.guest") / "same.py").read_text("utf-8")
    lines = _FOR_US.sub("", text).splitlines()
    found = {}
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        else:
            continue
        found[name] = "\n".join(lines[node.lineno - 1 : node.end_lineno]) + "\n"
    return found


HELPERS = frozenset(_definitions())


def help_with(names: Collection[str]) -> tuple[list[str], set[str]]:
    """The definitions of some names and of all that these use, and every other name in them."""
    left = list(names)
    wanted: set[str] = set()
    used: set[str] = set()
    while left:
        name = left.pop()
        if name in wanted:
            continue
        wanted.add(name)
        tree = ast.parse(_definitions()[name])
        found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        found -= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        left += found & HELPERS
        used |= found
    return [text for name, text in _definitions().items() if name in wanted], used
