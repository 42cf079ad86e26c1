"""`Language`: what the generator needs to know of a language; what languages have in common, and the test harness."""

from __future__ import annotations

import functools
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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


Level = Literal["low", "medium", "high"]
_MOST = 300  # Code with more statements keeps its repeats.


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
        runs_jobs: The modules of the harness that run jobs apart from each other, and in order.
    """

    name: ClassVar[str]
    labels: ClassVar[frozenset[str]]
    suffix: ClassVar[str]
    about: str = ""
    comment: ClassVar[str] = "#"
    reserved: ClassVar[frozenset[str]] = frozenset()
    ways: ClassVar[str]
    processes: ClassVar[int] = 0
    runs_jobs: ClassVar[tuple[str, str]] = ("batches", "plain")

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
            The code, and the names of the removed definitions: those of the known functions, and of their helpers if
            they are the same or unused in the rest. Definitions that differ and are used stay, as do names bound
            otherwise; a later check rejects them.
        """
        text = source.replace("\r\n", "\n").replace("\r", "\n")
        own = self.statements(text) if known else []
        beside = [each for code in known.values() for each in self.statements(code)]
        repeats = _repeats(own, known, beside) if len(own) <= _MOST else []
        data = text.encode("utf-8", "surrogatepass")
        for each in sorted(repeats, key=lambda one: -one.span[0]):
            data = data[: each.span[0]] + data[each.span[1] :].lstrip()
        left = data.decode("utf-8", "surrogatepass")
        # Where they stood, there may have been other statements, too.
        if not repeats or [each.text for each in self.statements(left)] != [e.text for e in own if e not in repeats]:
            return source, []
        return left, list(dict.fromkeys(each.name for each in repeats))

    def statements(self, text: str) -> list[Statement]:
        """The statements at the top level of code, for `without_repeats`; none if it is invalid."""
        return []

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

    def scan(self, source: str) -> list[SecurityFinding]:
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


def parameter_problems(spec: FunctionSpec, parameters: Sequence[tuple[str, bool]]) -> list[str]:
    """What is wrong with parameters: their names (empty for a pattern), and whether each may be omitted."""
    names = [name for name, _ in parameters]
    wanted = [each.name for each in spec.inputs]
    signature = f"{spec.name}({', '.join(wanted)})"
    wrong = [f"the parameter {name!r} of {signature} is missing" for name in wanted if name not in names]
    wrong += [
        f"{name or 'a pattern'!r} is not a parameter of {signature}; remove it or give it a default"
        for name, optional in parameters
        if name not in wanted and not (optional and name)
    ]
    if not wrong and [name for name in names if name in wanted] != wanted:
        wrong.append(f"the parameters must be in the order of {signature}")
    return wrong


def binding_problem(name: str, spec: FunctionSpec, taken: Mapping[str, str] | None) -> str:
    """Why the code of a function may not bind a name at its top level; empty if it may."""
    owner = (taken or {}).get(name, spec.name)
    if name in spec.dependencies:
        return f"{name!r} is another function, which exists when this code runs; do not define it"
    if owner == spec.name:
        return ""
    if owner == name:
        return f"{name!r} is another function of the program; do not define it here, or use another name"
    return f"{name!r} is already defined by the code of {owner!r}; use another name"


def import_problem(name: str, parts: Sequence[str], allowed: Collection[str] | None, separator: str) -> str:
    """Why a module may not be imported; empty if it or a package that it is in is allowed."""
    if allowed is None or any(separator.join(parts[:count]) in allowed for count in range(1, len(parts) + 1)):
        return ""
    return f"the module {name!r} may not be imported; allowed are {', '.join(sorted(allowed)) or 'none'}"


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement at the top level of code.

    Attributes:
        span: Where it begins and ends, in bytes.
        name: The one name that it defines; empty if it is not a definition.
        text: The same text for the same definition.
        uses: The names in it.
        is_callable: Whether it defines a function or a class.
        is_constant: Whether it defines one of these, or an immutable value.
    """

    span: tuple[int, int]
    name: str
    text: str
    uses: Collection[str]
    is_callable: bool
    is_constant: bool


def _repeats(own: Sequence[Statement], known: Collection[str], beside: Sequence[Statement]) -> list[Statement]:
    """The statements of code that repeat others: known functions, or those of the statements beside these."""
    found: list[Statement] = []
    there = {each.name: each.text for each in beside if each.name}
    count = -1
    while len(found) > count:  # Removing a repeat may leave others unused.
        count = len(found)
        for each in [one for one in own if one not in found]:
            used = any(each.name in other.uses for other in own if other is not each and other not in found)
            same = each.is_constant and each.text == there.get(each.name)
            if each.is_callable if each.name in known else each.name in there and (same or not used):
                found.append(each)
    return found


MARK = "Written by CodeRoom"
"""What files begin with that may be replaced."""

_PACKAGE = "_coderoom_tests_"  # A name that no program uses.
_VALUES = ("encoding", "decoding")  # The sandbox's modules for values.
_SERVING = (*_VALUES, "values", "steps", "calls", "serving")
_MODULES = (*_SERVING, "batches", "plain")

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
    serving = [_PACKAGE, *(f"{_PACKAGE}.{name}" for name in _SERVING)]
    more = {**more, "plain": f"\nprepare({serving!r})\n"}
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


def run_inside(module: str, function: str, longest: int, *arguments: object) -> str:
    """A Python expression that has a module of the harness run jobs, with answers of at most `longest` characters."""
    setting = f"__import__('sys').modules['{_PACKAGE}.calls'].budget.update(text={longest})"  # Its value is false.
    return f"{setting} or {call_inside(module, function, *arguments)}"
