"""Functions in Python."""

from __future__ import annotations

import builtins
import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources

from coderoom.generation._language import Job, Language
from coderoom.generation._python_tests import pytest_file
from coderoom.generation._specs import name_problem
from coderoom.generation._tests import FunctionTest

__all__ = ["PythonLanguage"]

# A name that no program has; what is inside finds its own parts by it.
_PACKAGE = "_coderoom_tests_"
_MODULES = ("records", "values", "reading", "calls", "batches")

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
_INSIDE = f"__import__('sys').modules['{_PACKAGE}.{{}}']"


class PythonLanguage(Language):
    """Python, tested in a session of the engine `cpython`."""

    name = "python"
    suffix = ".py"

    def name_problem(self, name: str) -> str | None:
        """See `Language.name_problem`."""
        return name_problem(name)

    def load(self) -> str:
        """See `Language.load`."""
        return _load_cell()

    def begin(self) -> str:
        """See `Language.begin`."""
        return f"{_INSIDE.format('batches')}.begin(__import__('tempfile').gettempdir())"

    def run_alone(self, job: Job, longest: int) -> str:
        """See `Language.run_alone`."""
        return f"{_setting(longest)} or {_INSIDE.format('batches')}.alone({_literal(job)})"

    def run(self, jobs: Sequence[Job], each: float, whole: float, longest: int, room: int) -> str:
        """See `Language.run`."""
        call = f"{_INSIDE.format('batches')}.run({_literal(list(jobs))}, {each}, {whole}, {longest}, {room})"
        return f"{_setting(longest)} or {call}"

    def error_matches(self, expected: str, types: Sequence[str], base: str) -> bool:
        """See `Language.error_matches`.

        One line of classes counts, that of the nearest class of Python's own: a process that lies cannot have raised
        everything at once.
        """
        own = getattr(builtins, base, None)
        known = own.__mro__ if isinstance(own, type) and issubclass(own, BaseException) else ()
        if isinstance(getattr(builtins, expected, None), type):
            return any(each.__name__ == expected for each in known)
        return bool(known) and expected in types

    def write_tests(self, tests: Mapping[str, Sequence[FunctionTest]], module: str) -> str:
        """The tests as a file for pytest."""
        return pytest_file(tests, module)


@functools.cache
def _load_cell() -> str:
    folder = resources.files("coderoom.generation._inside")
    modules = [("", ""), *((name, (folder / f"{name}.py").read_text("utf-8")) for name in _MODULES)]
    return _LOAD.format(modules=modules, package=_PACKAGE)


def _setting(longest: int) -> str:
    return f"{_INSIDE.format('calls')}.budget.update(text={longest})"


def _literal(data: object) -> str:
    """JSON as an expression of one line, which nothing in the data can leave."""
    return f"__import__('json').loads({json.dumps(data, separators=(',', ':'))!r})"
