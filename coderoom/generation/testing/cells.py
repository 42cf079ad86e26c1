"""Cells of Python that put what runs inside into a session, and call it."""

from __future__ import annotations

import functools
import json
from importlib import resources

__all__ = ["call_inside", "load_inside", "setting"]

# A name that no program has; what is inside finds its own parts by it.
_PACKAGE = "_coderoom_tests_"
_MODULES = ("records", "values", "reading", "guard", "setup", "calls", "tidy", "batches")

# `__main__` is what cells run in. Under another name nobody takes the program for a script, and its classes are found.
_LOAD = """\
import sys, types
def load(modules, package):
    for name, text in modules:
        module = types.ModuleType(f"{{package}}.{{name}}" if name else package)
        module.__package__, module.__path__ = package, []
        sys.modules[module.__name__] = module
        exec(compile(text, f"<{{module.__name__}}>", "exec"), module.__dict__)
load({modules!r}, {package!r})
sys.modules["program"] = sys.modules["__main__"]
del load, sys, types
__name__ = "program"
"""


@functools.cache
def load_inside(*more: str) -> str:
    """The cell that loads the modules of `guest`.

    Args:
        more: Those that not every language needs.
    """
    folder = resources.files("coderoom.generation.guest")
    modules = [("", ""), *((name, (folder / f"{name}.py").read_text("utf-8")) for name in (*_MODULES, *more))]
    return _LOAD.format(modules=modules, package=_PACKAGE)


def call_inside(module: str, function: str, *arguments: object, plain: str = "") -> str:
    """An expression that calls a function of what is inside.

    Args:
        module: Its module.
        function: The function.
        arguments: JSON-like data.
        plain: More arguments, as code.
    """
    given = ", ".join([*map(_literal, arguments), *([plain] if plain else [])])
    return f"__import__('sys').modules['{_PACKAGE}.{module}'].{function}({given})"


def setting(longest: int) -> str:
    """An expression, not true, that says how long an answer may be."""
    return f"__import__('sys').modules['{_PACKAGE}.calls'].budget.update(text={longest})"


def _literal(data: object) -> str:
    """JSON as an expression of one line, which nothing in the data can leave."""
    return f"__import__('json').loads({json.dumps(data, separators=(',', ':'))!r})"
