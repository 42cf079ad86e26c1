"""`Harness`: how the functions of a language are loaded and called in a session; `PythonHarness` is that of Python."""

from __future__ import annotations

import functools
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar

from coderoom.judge.values import Comparison, compare
from coderoom.sandbox import SourceModule

if TYPE_CHECKING:
    from coderoom.judge.cases import FunctionTest
import ast

from coderoom.judge.guest.values import LIBRARIES
from coderoom.judge.source import UNREADABLE, is_pure, is_pure_expression, parsed
from coderoom.judge.values import error_matches

Job = Mapping[str, Any]
"""A call (`function`, `inputs`; for steps also `setup`, `then` and `functions`), or the evaluation of a property
(`property`, `result`, `inputs`).

The `after` of a call says whether its answer includes the arguments after it; that of a property has these arguments.
The `judged` of a call says that a property judges its answer, and by what: its `values`, and perhaps their `types`, the
`exact` types or texts, or the type of the `result` itself.
"""


def job_of(function: str, test: FunctionTest, functions: Sequence[str]) -> dict[str, Any]:
    """The job for the process with the code. It has neither the name of the test nor what is expected."""
    job: dict[str, Any] = {"function": function, "inputs": test.inputs}
    if test.has_steps:
        steps = test.model_dump(mode="json", include={"setup", "then"})
        job |= {"functions": list(functions), **{kind: each for kind, each in steps.items() if each}}
    if test.expects == "property":
        job["judged"] = test.judges_by
    return {**job, "after": True} if test.sees_after else job


def look_of(test: FunctionTest, result: Any, after: Any) -> Job:
    """The job that evaluates the property of a test for a result; it sees those inputs that are data."""
    inputs = test.inputs
    if test.has_steps:
        inputs = {name: data for name, data in inputs.items() if '"$name"' not in json.dumps(data)}
    job = {"property": test.property, "result": result, "inputs": inputs}
    return {**job, "after": after} if test.sees_after else job


class Harness(ABC):
    """What the judge needs to know of a language.

    Several methods return cells: Python code for a `coderoom.sandbox.Session`. The values of cells are untrusted, since
    the code under test may have forged them. The cells call functions that exist as Python functions in the session;
    for JavaScript, the module `nodes` does that.

    Attributes:
        name: The name of the language.
        processes: In how many new processes a program that is not pure has to give the same answers; 0 if the language
            has no `program`.
        runs_jobs: The modules of the harness that run jobs apart from each other, and in order.
    """

    name: ClassVar[str]
    processes: ClassVar[int] = 0
    runs_jobs: ClassVar[tuple[str, str]] = ("batches", "plain")

    def job(self, job: Job) -> Job:
        """A job as the modules of the harness read it."""
        return job

    def harness(self) -> Sequence[SourceModule]:
        """The modules that `load` needs. A sandbox may preload them into its worker."""
        return harness_modules()

    def load(self, sources: Collection[str]) -> str:
        """The cell that prepares a session for sources; a text as its value: what lacks."""
        return START

    @abstractmethod
    def define(self, function: str, source: str) -> str:
        """The cell that loads the code of a function, after its dependencies.

        Loading failed if the cell raises or its value is an answer with an error. Tracebacks name the code `<cell N>`,
        where N is the number of the cell in its session; that of `load` is 1.
        """

    def is_stateless(self, sources: Collection[str], job: Job) -> bool:
        """Whether the source of the loaded code proves that a job leaves nothing behind for the next one."""
        return False

    def is_pure(self, sources: Collection[str]) -> bool:
        """Whether the source of a program proves that its answers depend on nothing but the arguments."""
        return False

    def program(self, sources: Mapping[str, str]) -> Any:
        """The program as a Python module, in which tests run in order; in JavaScript, as data.

        Args:
            sources: The code of each function, dependencies first.
        """
        raise NotImplementedError

    def compare(self, test: FunctionTest, actual: Any) -> Comparison:
        """Compare an actual value with the one that a test expects."""
        return compare(test.expected_output, actual, rel=test.rel, abs=test.abs, exact_types=test.exact_types)

    @abstractmethod
    def error_matches(self, expected: str, types: Sequence[str], base: str) -> bool:
        """Whether an exception matches the name of an expected one.

        Args:
            expected: The expected name.
            types: The names of the exception's class and its base classes, without those of the language itself.
            base: The nearest base class of the language itself.
        """


PACKAGE = "_coderoom_tests_"  # A name that no program uses.
_VALUES = ("encoding", "decoding")  # The sandbox's modules for values.
_SERVING = (*_VALUES, "values", "steps", "calls", "serving")
_MODULES = (*_SERVING, "batches", "plain", "versions")

START = """\
import os, sys
sys.modules["program"] = sys.modules["__main__"]
__name__, __file__ = "program", os.path.join(os.getcwd(), "program.py")
del os, sys
"""
"""What a session runs before the program. Cells run in `__main__`; under the name `program`, scripts guarded by
`if __name__ == "__main__"` do not run, and classes of the program are still found by their module."""

_MAKE = """\
import sys, types
def make(modules, package):
    for name, source in modules:
        module = sys.modules[name] = types.ModuleType(name)
        module.__package__, module.__path__ = package, []
        module.__code__ = compile(source, f"<{{name}}>", "exec")
        exec(module.__code__, module.__dict__)
make({modules!r}, {package!r})
del make, sys, types
"""


_FUTURE = "from __future__ import annotations\n"
_OWN_BUILTINS = "__builtins__ = dict(vars(__import__('builtins')))\n"
"""Functions that are defined below it do not see what a program makes of built-in names."""


@functools.cache
def harness_modules(**more: str) -> tuple[SourceModule, ...]:
    """The modules of the test harness, and `more` modules of a language, each with code to append."""
    sources = {name: _source(name) for name in (*_MODULES, *more)}
    serving = [PACKAGE, *(f"{PACKAGE}.{name}" for name in _SERVING)]
    more = {**more, "plain": f"\nprepare({serving!r})\n"}
    modules = [SourceModule(f"{PACKAGE}.{name}", text + more.get(name, "")) for name, text in sources.items()]
    return (SourceModule(PACKAGE, ""), *modules)


def _source(name: str) -> str:
    """The source of a module, which finds those of the sandbox beside it."""
    package = "coderoom.sandbox.guest" if name in _VALUES else "coderoom.judge.guest"
    source = (resources.files(package) / f"{name}.py").read_text("utf-8")
    return source.replace("from coderoom.sandbox.guest.", "from .").replace(_FUTURE, _FUTURE + _OWN_BUILTINS, 1)


def make_harness(harness: Iterable[SourceModule], preloaded: Sequence[object]) -> str:
    """Code that creates the modules of the harness in a session; empty if its sandbox has preloaded them."""
    lacking = [tuple(each) for each in harness if each not in preloaded]
    return _MAKE.format(modules=lacking, package=PACKAGE) if lacking else ""


def call_inside(module: str, function: str, *arguments: object) -> str:
    """A Python expression that calls a function of a module of the harness with JSON-like data."""
    # No content can break out of such a literal, which is one line.
    given = ", ".join(f"__import__('json').loads({json.dumps(each, separators=(',', ':'))!r})" for each in arguments)
    return f"__import__('sys').modules['{PACKAGE}.{module}'].{function}({given})"


def run_inside(module: str, function: str, longest: int, *arguments: object) -> str:
    """A Python expression that has a module of the harness run jobs, with answers of at most `longest` characters."""
    setting = f"__import__('sys').modules['{PACKAGE}.calls'].budget.update(text={longest})"  # Its value is false.
    return f"{setting} or {call_inside(module, function, *arguments)}"


class PythonHarness(Harness):
    """Python, tested in a session of the engine `cpython`.

    Attributes:
        about: The docstring of the module that a program becomes.
    """

    name = "python"
    about: str = ""
    processes = 16  # A set of two has each order in half of them.
    error_matches = staticmethod(error_matches)

    def define(self, function: str, source: str) -> str:
        """See `Harness.define`."""
        return source

    def is_stateless(self, sources: Collection[str], job: Job) -> bool:
        """See `Harness.is_stateless`."""
        if not self.is_pure(sources) or "functions" in job:
            return False
        names = frozenset({*job["inputs"], "result", "after"})
        return "property" not in job or is_pure_expression(job["property"], names)

    def load(self, sources: Collection[str]) -> str:
        """See `Harness.load`."""
        named = [name for name in LIBRARIES if any(name in source for source in sources)]
        return START + call_inside("values", "keep_libraries", " ".join(named))

    def is_pure(self, sources: Collection[str]) -> bool:
        """See `Harness.is_pure`."""
        return is_pure(tuple(sources))

    def program(self, sources: Mapping[str, str]) -> str:
        """See `Harness.program`."""
        return self.write_module(sources, self.about)

    def write_module(self, implementations: Mapping[str, str], about: str) -> str:
        """The functions as a module, with its purpose as the docstring."""
        future: dict[str, None] = {}
        parts = []
        for source in implementations.values():
            code, features = _without_future(source)
            future.update(dict.fromkeys(features))
            parts.append(code.strip("\n"))
        text = "".join(char if char.isprintable() or char == "\n" else " " for char in about).strip() or "Functions."
        text = text.replace("\\", "\\\\").replace('"""', "'''")
        space = " " if text.endswith('"') else ""
        head = f'"""{text}{space}"""'
        if future:  # It must come first.
            head += f"\n\nfrom __future__ import {', '.join(future)}"
        return "\n\n\n".join([head, *parts]) + "\n"


def tree_of(source: str) -> ast.Module:
    """The tree of code; an empty one if it is invalid, which is reported elsewhere."""
    try:
        return parsed(source)
    except UNREADABLE:
        return ast.Module([], [])


def _without_future(source: str) -> tuple[str, list[str]]:
    """Code without its `from __future__ import` statements, and the features that they enable."""
    lines = source.split("\n")
    features: list[str] = []
    for node in tree_of(source).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            features += [alias.name for alias in node.names]
            last = node.end_lineno or node.lineno
            begin = lines[node.lineno - 1].encode()[: node.col_offset].decode()
            end = lines[last - 1].encode()[node.end_col_offset :].decode()
            # The same lines may contain other statements.
            lines[node.lineno - 1 : last] = [f"{begin}pass{end}" if (begin + end).strip() else ""] + [""] * (
                last - node.lineno
            )
    return "\n".join(lines), features
