"""`Language`: what the generator needs to know of a language beside its harness; what languages have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from coderoom.generation.specs import FunctionSpec
from coderoom.judge import FunctionTest, Harness
from coderoom.judge.cases import Data, name_problem

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


class Language(Harness):
    """A language for generated functions: how models write it, how it is checked, and how its files are written.

    Attributes:
        labels: The labels of its code blocks in Markdown, including its name, in lower case.
        suffix: The suffix of its files.
        about: What the program is for, as in the written module, of which code could see the difference.
        comment: What starts a one-line comment.
        reserved: Names that functions and their inputs must not have, besides those that Python reserves.
        ways: Instructions for the model on how functions in this language are written and tested.
    """

    labels: ClassVar[frozenset[str]]
    suffix: ClassVar[str]
    about: str = ""
    comment: ClassVar[str] = "#"
    reserved: ClassVar[frozenset[str]] = frozenset()
    ways: ClassVar[str]

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

    def marked(self, text: str) -> str:
        """A source file that says who has written it."""
        return f"{self.comment} {MARK}.\n{text}"

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
