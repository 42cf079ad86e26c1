"""`Language`: what the generator needs to know of a language, and the test harness that every language uses."""

from __future__ import annotations

import functools
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from coderoom.generation.compare import Comparison, compare
from coderoom.generation.specs import Data, FunctionSpec, name_problem
from coderoom.sandbox import SourceModule

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

Job = Mapping[str, Any]
"""A call (`function`, `inputs`; for steps also `setup`, `then` and `functions`), or the evaluation of a property
(`property`, `result`, `inputs`).

The `after` of a call says whether its answer includes the arguments after it; that of a property has these arguments.
The `judged` of a call says that a property judges its answer.
"""


UNTIDY = "untidy"
"""The value of a cell that did nothing because an earlier one had left something behind."""

Level = Literal["low", "medium", "high"]


class CodeProblem(Data):
    """A problem that must be fixed before code may run.

    Attributes:
        line: The line, counted from 1; `None` if it concerns the whole code.
        text: The problem and how to fix it.
    """

    line: int | None
    text: str

    def __str__(self) -> str:
        return self.text if self.line is None else f"line {self.line}: {self.text}"


class SecurityFinding(Data):
    """A finding of a security scanner.

    Attributes:
        severity: Its severity.
        confidence: The scanner's confidence.
        id: The scanner's identifier, such as `B602`.
        text: The description.
        line: The line, counted from 1.
    """

    severity: Level
    confidence: Level
    id: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}: {self.id} ({self.severity}): {self.text}"


class Language(ABC):
    """A programming language for generated functions.

    Several methods return cells: Python code for a `coderoom.sandbox.Session`. The values of cells are untrusted, since
    the code under test may have forged them.

    Attributes:
        name: The name of the language.
        labels: The labels of its code blocks in Markdown, including its name, in lower case.
        suffix: The suffix of its files.
        about: What the program is for, as in the written module, of which code could see the difference.
        comment: What starts a one-line comment.
        reserved: Names that functions and their inputs must not have, besides those that Python reserves.
        ways: Instructions for the model on how functions in this language are written and tested.
        processes: In how many new processes a program that is not pure has to give the same answers; 0 if the language
            has no `program`.
    """

    name: ClassVar[str]
    labels: ClassVar[frozenset[str]]
    suffix: ClassVar[str]
    about: str = ""
    comment: ClassVar[str] = "#"
    reserved: ClassVar[frozenset[str]] = frozenset()
    ways: ClassVar[str]
    processes: ClassVar[int] = 0
    _runs_jobs: ClassVar[tuple[str, str]] = ("batches", "plain")  # The modules that run them apart, and in order.

    def tests_file(self, module: str) -> str:
        """The name of the test file of a module, as the language's test tool expects it."""
        return f"test_{module}{self.suffix}"

    def name_problem(self, name: str) -> str | None:
        """Why a string is not a valid function name; `None` if it is one."""
        return f"{name!r} is reserved in {self.name}; use another name" if name in self.reserved else name_problem(name)

    def spec_problem(self, spec: FunctionSpec) -> str | None:
        """Why no function of the language can have this spec; `None` if one can."""
        return None

    @abstractmethod
    def signature(self, spec: FunctionSpec) -> str:
        """The signature of a function as source code."""

    def as_declared(self, data: Any, declared: str, *, result: bool = False) -> Any:
        """Convert a test value from plain JSON to its declared type, where JSON has no such type.

        Args:
            data: The value as tagged data.
            declared: The type in the spec.
            result: Whether it is an expected result, which is compared with a tolerance if it is a float.
        """
        return data

    def fits(self, data: Any, declared: str) -> bool:
        """Whether a value is of its declared type or convertible by `as_declared`; true for unknown types.

        Args:
            data: The value as tagged data.
            declared: The type in the spec.
        """
        return True

    def unclear(self, data: Any, declared: str) -> str:
        """A question to the model about plain JSON that could mean several values of its type; empty if none.

        Args:
            data: The value as tagged data.
            declared: The type in the spec.
        """
        return ""

    def without_examples(self, source: str) -> tuple[str, list[str]]:
        """Remove examples from the top level of code, which would run when it is loaded.

        Args:
            source: The code.

        Returns:
            The code, and a note on each part that was removed.
        """
        return source, []

    def without_repeats(self, source: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
        """Remove definitions from code that repeat functions it can already call.

        Args:
            source: The code.
            known: The code of the functions that exist when it runs.

        Returns:
            The code, and the names of the removed definitions.
        """
        return source, []

    @abstractmethod
    def check(
        self,
        source: str,
        spec: FunctionSpec,
        *,
        taken: Mapping[str, str] | None = None,
        allowed_imports: Collection[str] | None = None,
    ) -> list[CodeProblem]:
        """Check the code of a function before it runs anywhere; see `check_implementation`."""

    @abstractmethod
    def names_defined(self, source: str) -> list[str]:
        """The names that code defines at its top level."""

    def imports(self, source: str) -> dict[str, str]:
        """The names that code imports at its top level and does not rebind, and what each refers to.

        `*` is one of the names if the code has a star import.
        """
        return {}

    def scan(self, source: str, *, severity: Level = "low", confidence: Level = "medium") -> list[SecurityFinding]:
        """Scan code for security problems; no findings if there is no scanner for the language."""
        return []

    # The cells below call functions that exist as Python functions in the session. For JavaScript, `nodes` does that.

    def job(self, job: Job) -> Job:
        """A job as the modules of the harness read it."""
        return job

    def harness(self) -> Sequence[SourceModule]:
        """The modules that `load` needs. A sandbox may preload them into its worker."""
        return harness_modules()

    def load(self, sources: Collection[str]) -> str:
        """The cell that prepares a session for sources, for `run` and `run_alone`; a text as its value: what lacks."""
        return START

    @abstractmethod
    def define(self, function: str, source: str) -> str:
        """The cell that loads the code of a function, after its dependencies.

        Loading failed if the cell raises or its value is an answer with an error. Tracebacks name the code `<cell N>`,
        where N is the number of the cell in its session; that of `load` is 1.
        """

    def begin(self) -> str:
        """The cell that records the state in which every test starts."""
        return call_inside("batches", "begin")

    def run_alone(self, job: Job, longest: int) -> str:
        """The cell that runs one job in the session itself; its value is an answer or `UNTIDY`.

        Args:
            job: The job.
            longest: The maximum length of the answer in characters.
        """
        return f"{setting(longest)} or {call_inside(self._runs_jobs[0], 'alone', self.job(job))}"

    def is_stateless(self, sources: Collection[str], job: Job) -> bool:
        """Whether the source of the loaded code proves that a job leaves nothing behind for the next one."""
        return False

    def is_pure(self, sources: Collection[str]) -> bool:
        """Whether the source of a program proves that its answers depend on nothing but the arguments."""
        return False

    def program(self, sources: Mapping[str, str]) -> Any:
        """The program as a Python module, for `run_in_order`; in JavaScript, as data.

        Args:
            sources: The code of each function, dependencies first.
        """
        raise NotImplementedError

    def run_in_order(
        self,
        sources: Mapping[str, str],
        jobs: Sequence[Job],
        count: int,
        seconds: float,
        longest: int,
        again: bool,
    ) -> str:
        """The cell that runs jobs one after the other in a new process in which the program is a module, several times.

        The cell's value has the different answers of each job; a `null` is among them if a process ended or took too
        long.

        Args:
            sources: The code of each function, dependencies first.
            jobs: The jobs.
            count: The number of processes.
            seconds: The time limit of each job.
            longest: The maximum length of all answers of a process together in characters.
            again: Whether to run all jobs again in each process, several times if they are fast.
        """
        how = count, seconds, longest, again
        cell = call_inside(self._runs_jobs[1], "run_in_order", self.program(sources), [*map(self.job, jobs)], *how)
        return f"{setting(longest)} or {cell}"

    def run(
        self, jobs: Sequence[Job], each: float, whole: float, longest: int, room: int, stateless: bool = False
    ) -> str:
        """The cell that runs as many jobs as time allows, each in a clean state; its value is a list of answers.

        Args:
            jobs: The jobs.
            each: The time limit of each job in seconds.
            whole: The seconds after which no further job is started.
            longest: The maximum length of an answer in characters.
            room: The maximum length of all answers together.
            stateless: Whether `is_stateless` holds for each job, so that they may share one state.
        """
        how = each, whole, longest, room, stateless
        cell = call_inside(self._runs_jobs[0], "run", [*map(self.job, jobs)], *how)
        return f"{setting(longest)} or {cell}"

    def compare(self, test: FunctionTest, actual: Any) -> Comparison:
        """Compare an actual value with the one that a test expects."""
        return compare(test.expected_output, actual, rel=test.rel, abs=test.abs, exact_types=test.exact_types)

    def marked(self, text: str) -> str:
        """A source file that says who has written it."""
        return f"{self.comment} {MARK}.\n{text}"

    @abstractmethod
    def error_matches(self, expected: str, types: Sequence[str], base: str) -> bool:
        """Whether an exception matches the name of an expected one.

        Args:
            expected: The expected name.
            types: The names of the exception's class and its base classes, without those of the language itself.
            base: The nearest base class of the language itself.
        """

    @abstractmethod
    def write_module(self, implementations: Mapping[str, str], about: str) -> str:
        """Write the functions as a module.

        Args:
            implementations: The code of each function, dependencies first.
            about: The purpose of the module.
        """

    @abstractmethod
    def write_tests(
        self, tests: Mapping[str, Sequence[FunctionTest]], module: str, specs: Sequence[FunctionSpec] = ()
    ) -> dict[str, str]:
        """Write the tests for the usual test tool of the language: the contents of files by name.

        The first one is `tests_file(module)`.

        Args:
            tests: The tests by function name.
            module: The name of the module with the functions, in Python perhaps after a folder: `../NAME`.
            specs: The functions, for languages with positional arguments only; by default the inputs of each test
                are in order.
        """


MARK = "Written by CodeRoom"
"""What files begin with that may be replaced."""

_PACKAGE = "_coderoom_tests_"  # A name that no program uses.
_VALUES = ("encoding", "decoding")  # The sandbox's modules for values.
_CALLING = (*_VALUES, "values", "steps", "calls")
_MODULES = (*_CALLING, "batches", "plain")

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
    calling = [_PACKAGE, *(f"{_PACKAGE}.{name}" for name in _CALLING)]
    more = {**more, "plain": f"\nprepare({calling!r})\n"}
    modules = [SourceModule(f"{_PACKAGE}.{name}", text + more.get(name, "")) for name, text in sources.items()]
    return (SourceModule(_PACKAGE, ""), *modules)


def _source(name: str) -> str:
    """The source of a module, which finds those of the sandbox beside it."""
    package = "coderoom.sandbox.guest" if name in _VALUES else "coderoom.generation.guest"
    source = (resources.files(package) / f"{name}.py").read_text("utf-8")
    return source.replace("from coderoom.sandbox.guest.", "from .").replace(_FUTURE, _FUTURE + _OWN_BUILTINS, 1)


def make_harness(harness: Iterable[SourceModule], preloaded: Sequence[object]) -> str:
    """Code that creates the modules of the harness in a session; empty if its sandbox has preloaded them."""
    lacking = [tuple(each) for each in harness if each not in preloaded]
    return _MAKE.format(modules=lacking, package=_PACKAGE) if lacking else ""


def call_inside(module: str, function: str, *arguments: object) -> str:
    """A Python expression that calls a function of a module of the harness with JSON-like data."""
    # No content can break out of such a literal, which is one line.
    given = ", ".join(f"__import__('json').loads({json.dumps(each, separators=(',', ':'))!r})" for each in arguments)
    return f"__import__('sys').modules['{_PACKAGE}.{module}'].{function}({given})"


def setting(longest: int) -> str:
    """A Python expression with a false value that sets the maximum length of an answer."""
    return f"__import__('sys').modules['{_PACKAGE}.calls'].budget.update(text={longest})"
