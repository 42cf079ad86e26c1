"""The test harness as modules for a sandbox, and the cells that call it. Every language uses this.

The harness is `coderoom.generation.guest`, which is not installed behind the wall. A sandbox of `make_sandbox` has it
in its warm worker, and each session inherits it; in any other sandbox `make_harness` makes it in each session.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from importlib import resources

from coderoom.sandbox import SourceModule

__all__ = ["START", "call_inside", "harness_modules", "make_harness", "setting"]

_PACKAGE = "_coderoom_tests_"  # A name that no program has.
_MODULES = ("records", "values", "reading", "guard", "setup", "calls", "tidy", "batches")

START = """\
import sys
sys.modules["program"] = sys.modules["__main__"]
del sys
__name__ = "program"
"""
"""What a session runs before the program. `__main__` is what cells run in; under another name nobody takes the program
for a script, and its classes are found."""

_MAKE = """\
import sys, types
def make(modules, package):
    for name, source in modules:
        module = sys.modules[name] = types.ModuleType(name)
        module.__package__, module.__path__ = package, []
        exec(compile(source, f"<{{name}}>", "exec"), module.__dict__)
make({modules!r}, {package!r})
del make, sys, types
"""


@functools.cache
def harness_modules(**more: str) -> tuple[SourceModule, ...]:
    """The modules of the harness.

    Args:
        more: Modules that not every language needs, each with code that is added at its end.
    """
    folder = resources.files("coderoom.generation.guest")
    sources = {name: (folder / f"{name}.py").read_text("utf-8") for name in (*_MODULES, *more)}
    modules = [SourceModule(f"{_PACKAGE}.{name}", text + more.get(name, "")) for name, text in sources.items()]
    return (SourceModule(_PACKAGE, ""), *modules)


def make_harness(harness: Iterable[SourceModule], there: Sequence[object]) -> str:
    """Code that makes the modules of the harness in a session; empty if its sandbox has them.

    Args:
        harness: The modules.
        there: What the sandbox preloads.
    """
    lacking = [tuple(each) for each in harness if each not in there]
    return _MAKE.format(modules=lacking, package=_PACKAGE) if lacking else ""


def call_inside(module: str, function: str, *arguments: object) -> str:
    """An expression that calls a function of the harness.

    Args:
        module: Its module.
        function: The function.
        arguments: JSON-like data.
    """
    given = ", ".join(map(_literal, arguments))
    return f"__import__('sys').modules['{_PACKAGE}.{module}'].{function}({given})"


def setting(longest: int) -> str:
    """An expression, not true, that sets how long an answer may be."""
    return f"__import__('sys').modules['{_PACKAGE}.calls'].budget.update(text={longest})"


def _literal(data: object) -> str:
    """JSON as an expression of one line, which nothing in the data can leave."""
    return f"__import__('json').loads({json.dumps(data, separators=(',', ':'))!r})"
