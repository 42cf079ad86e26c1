"""`Language`: what the generator needs to know of a language, and the test harness that every language uses."""

from __future__ import annotations

import functools
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from coderoom.generation.compare import Comparison, compare
from coderoom.generation.specs import FunctionSpec
from coderoom.sandbox import SourceModule

if TYPE_CHECKING:
    from coderoom.generation.tests import FunctionTest

__all__ = [
    "START",
    "UNTIDY",
    "CodeProblem",
    "Job",
    "Language",
    "Level",
    "SecurityFinding",
    "call_inside",
    "harness_modules",
    "make_harness",
    "setting",
]

Job = Mapping[str, Any]
"""A call (`function`, `inputs`, `setup`), or a look at a property (`property`, `result`, `inputs`).

A call has `after` where its answer is to tell of the inputs after it too, and the look what they were then.
"""


UNTIDY = "untidy"
"""The value of a cell that found things left by an earlier one, and so did nothing."""

Level = Literal["low", "medium", "high"]


class CodeProblem(BaseModel):
    """Something that code has to do otherwise.

    Attributes:
        line: The line, counted from 1; `None` where all of it is meant.
        text: What, and what to do about it.
    """

    model_config = ConfigDict(frozen=True)

    line: int | None
    text: str

    def __str__(self) -> str:
        return self.text if self.line is None else f"line {self.line}: {self.text}"


class SecurityFinding(BaseModel):
    """Something that a security scanner has found.

    Attributes:
        severity: How bad it would be.
        confidence: How sure the scanner is.
        id: The scanner's name for it, `B602` for instance.
        text: What it is.
        line: The line, counted from 1.
    """

    model_config = ConfigDict(frozen=True)

    severity: Level
    confidence: Level
    id: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}: {self.id} ({self.severity}): {self.text}"


class Language(ABC):
    """A language that functions are written in.

    Cells are Python for a `coderoom.sandbox.Session`; what they give back is text that the code under test may have
    forged.

    Attributes:
        name: What the language is called.
        labels: What blocks of it may be called in Markdown, its name among them, in lower case.
        suffix: The end of its files' names.
        comment: What a comment of one line begins with.
        ways: What a model has to know of how functions in it are written and tested here.
    """

    name: ClassVar[str]
    labels: ClassVar[frozenset[str]]
    suffix: ClassVar[str]
    comment: ClassVar[str] = "#"
    ways: ClassVar[str]

    def tests_file(self, module: str) -> str:
        """The name of the file with the tests of a module, by which its usual means find it."""
        return f"test_{module}{self.suffix}"

    @abstractmethod
    def name_problem(self, name: str) -> str | None:
        """Why a text cannot be the name of a function; `None` if it can."""

    @abstractmethod
    def signature(self, spec: FunctionSpec) -> str:
        """The head of a function, as its author would write it."""

    def as_declared(self, data: Any, declared: str) -> Any:
        """A test's value that was written as plain JSON, as one of its type where JSON cannot show such a value.

        Args:
            data: The value, as tagged data.
            declared: The type that the spec gives.
        """
        return data

    def fits(self, data: Any, declared: str) -> bool:
        """Whether a value is one of its type as `as_declared` takes it; what is not known may be.

        Args:
            data: The value, as tagged data.
            declared: The type that the spec gives.
        """
        return True

    def unclear(self, data: Any, declared: str) -> str:
        """What is to be asked of plain JSON that could be several values of its type; empty if nothing is.

        Args:
            data: The value, as tagged data.
            declared: The type that the spec gives.
        """
        return ""

    def without_repeats(self, source: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
        """Code without what it repeats of functions that are there when it runs.

        Args:
            source: The code.
            known: The code of these functions.

        Returns:
            The code, and the names that it defines no more.
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
    def check_setup(
        self,
        source: str,
        functions: Collection[str],
        *,
        allowed_imports: Collection[str] | None = None,
        known: bool = True,
    ) -> list[CodeProblem]:
        """Check the setup code of a test; see the function `check_setup`."""

    @abstractmethod
    def names_defined(self, source: str) -> list[str]:
        """The names that the top level of code defines."""

    def imports(self, source: str) -> dict[str, str]:
        """The names that the top level of code imports and gives no other value, and what each stands for.

        Where it imports names that it does not tell, `*` is one of them.
        """
        return {}

    @abstractmethod
    def scan(self, source: str, *, severity: Level = "low", confidence: Level = "medium") -> list[SecurityFinding]:
        """Look for what is dangerous in code; nothing where there is no scanner for the language."""

    def harness(self) -> Sequence[SourceModule]:
        """The modules that `load` needs; sessions of a sandbox that preloads them find them made."""
        return ()

    @abstractmethod
    def load(self) -> str:
        """The cell that gets a session ready for `run` and `run_alone`; a text as its value says what is missing."""

    @abstractmethod
    def define(self, function: str, source: str) -> str:
        """The cell that loads the code of a function, after that of those that it needs.

        It has failed if it raises, or if its value is an answer with an error. Lines of the code are told as those of
        `<cell N>`, where N is the number of the cell in its session; that of `load` is 1.
        """

    @abstractmethod
    def begin(self) -> str:
        """The cell that takes note of the state in which every test is to begin."""

    @abstractmethod
    def run_alone(self, job: Job, longest: int) -> str:
        """The cell that does one job in the session itself; its value is an answer, or `UNTIDY`.

        Args:
            job: The job.
            longest: The most characters that the answer may have.
        """

    def is_stateless(self, sources: Collection[str], job: Job) -> bool:
        """Whether reading the code that is loaded shows that a job can leave nothing behind for the next one."""
        return False

    @abstractmethod
    def run(
        self, jobs: Sequence[Job], each: float, whole: float, longest: int, room: int, stateless: bool = False
    ) -> str:
        """The cell that does as many jobs as it can, each in a clean state; its value is a list of answers.

        Args:
            jobs: The jobs.
            each: The seconds that each may take.
            whole: The seconds after which none is begun.
            longest: The most characters that an answer may have.
            room: The most that they may have all together.
            stateless: That `is_stateless` is true of each; so they may be done one after the other in the same state.
        """

    def compare(self, test: FunctionTest, actual: Any) -> Comparison:
        """Compare what came with what a test expects."""
        return compare(test.expected_output, actual, rel=test.rel, abs=test.abs, exact_types=test.exact_types)

    @abstractmethod
    def error_matches(self, expected: str, types: Sequence[str], base: str) -> bool:
        """Whether an exception is one of those that a name stands for.

        Args:
            expected: The name.
            types: The exception's own class and those above it that are not the language's own.
            base: The nearest class above it that is the language's own.
        """

    @abstractmethod
    def write_module(self, implementations: Mapping[str, str], about: str) -> str:
        """The functions as a module that others import.

        Args:
            implementations: The code of each function, each after what it needs.
            about: What the module is for.
        """

    @abstractmethod
    def write_tests(
        self,
        tests: Mapping[str, Sequence[FunctionTest]],
        module: str,
        *,
        specs: Sequence[FunctionSpec] = (),
        implementations: Mapping[str, str] | None = None,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> str:
        """The tests as a file that people of this language run by its usual means.

        Args:
            tests: The tests by the names of the functions.
            module: The module that has the functions.
            specs: The functions, for languages that know arguments by their order only. Without them it is the order
                of each test.
            implementations: Their code, for what it tells of how they are best tested; `None`: it is not known.
            outputs: What came of the tests, as tagged data, by the names of functions and tests; those of tests that
                returned nothing are not there.
        """


_PACKAGE = "_coderoom_tests_"  # A name that no program has.
_MODULES = ("values", "reading", "setup", "calls", "batches")

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
