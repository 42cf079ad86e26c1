"""The state of one generation (`Program`), and the work on one function: writing, testing and repairing its code."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coderoom.errors import GenerationError
from coderoom.generation.languages import Language, Level, SecurityFinding
from coderoom.generation.model_client import BudgetedModel
from coderoom.generation.prompts import REPAIR, code_request, failures, refusals, request
from coderoom.generation.replies import RepairForm, as_tests, code_in, read_repair, unclear_values
from coderoom.generation.solution import (
    Approach,
    Attempt,
    CodeRefused,
    CodeWritten,
    GenerationEvent,
    StopReason,
    TestChanged,
    TestsRun,
    Warned,
)
from coderoom.generation.specs import FunctionSpec, order
from coderoom.generation.tests import read_tests, tolerance_problem
from coderoom.judge import FrozenTests, FunctionTest, Judge, Verdict, changed
from coderoom.judge.other_values import vacuous_tests

_HASHES = frozenset({"B303", "B324"})  # Weak hashes are dangerous for secrets, not to run; instructions ask for md5.
_NO_TESTS = FrozenTests(tests={}, hash="")
_LEVELS: tuple[Level, ...] = ("low", "medium", "high")


@dataclass(frozen=True)
class Rules:
    """Limits and rules for the work on each function; see `AICodeGenerator`."""

    max_attempts: int = 6
    max_test_changes: int = 2
    allowed_imports: tuple[str, ...] | None = None
    block_severity: Level | None = "high"
    accept_changed_tests: bool = False


@dataclass
class Program:
    """The program under construction.

    In `specs`, dependencies come first. `tests` are those with all changes, and `original` those that were frozen
    first. `code` is the best one of each function so far, and `passed` has the functions whose code passes its tests.
    Of functions in `existing`, only the tests are written. `last` has the code, the hash of the tests and the results
    of the last run, if it was one of the whole program.
    """

    instruction: str
    language: Language
    rules: Rules
    emit: Callable[[GenerationEvent], None] = lambda _: None
    specs: dict[str, FunctionSpec] = field(default_factory=dict)
    tests: FrozenTests = _NO_TESTS
    original: FrozenTests = _NO_TESTS
    code: dict[str, str] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)
    existing: Mapping[str, str] = field(default_factory=dict)
    last: tuple[Mapping[str, str], str, list[Verdict]] | None = None
    _codes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def take_specs(self, specs: Sequence[FunctionSpec]) -> list[list[FunctionSpec]]:
        """Set the functions; return them in layers."""
        layers = order(specs)
        self.specs = {spec.name: spec for layer in layers for spec in layer}
        return layers

    def without_repeats(self, spec: FunctionSpec, code: str) -> tuple[str, tuple[str, ...]]:
        """Code without repeated definitions of its dependencies, and notes on what was removed."""
        known = {name: self.code[name] for name in self.in_order(self._needed(spec.name) - {spec.name})}
        code, notes = self.language.without_examples(code)
        code, names = self.language.without_repeats(code, known)
        return code, (*notes, *(f"its own {name!r} was removed; the tested function is used" for name in names))

    def check(self, spec: FunctionSpec, code: str) -> tuple[list[str], tuple[SecurityFinding, ...]]:
        """Why code may not be run, and what the scanner found. Names of accepted code are reserved until `tried`."""
        taken = {name: owner for owner, codes in self._codes.items() for name in self._defined(*codes)}
        taken |= {name: name for name in self.specs}  # Including functions that are not written yet.
        problems = self.language.check(code, spec, taken=taken, allowed_imports=self.rules.allowed_imports)
        if wrong := [*map(str, problems), *self._clashes(spec, code)]:
            return wrong, ()
        findings = tuple(self.language.scan(code))
        levels = _LEVELS[_LEVELS.index(self.rules.block_severity) :] if self.rules.block_severity is not None else ()
        serious = [each for each in findings if each.severity in levels and each.id not in _HASHES]
        blocked = [f"the security scanner blocks it: {each}" for each in serious]
        if not blocked:
            self._codes[spec.name] = code, self.code.get(spec.name, "")
        return blocked, findings

    def tried(self, spec: FunctionSpec, best: str) -> None:
        """Set the best code of a function after an attempt; only its names stay reserved."""
        self.code[spec.name] = best
        self._codes[spec.name] = (best,)

    async def run(self, runner: Judge, spec: FunctionSpec, code: str) -> list[Verdict]:
        """Run the tests of a function with the best code of its dependencies."""
        needed = self._needed(spec.name)
        sources = {name: code if name == spec.name else self.code[name] for name in self.specs if name in needed}
        whole = len(self.specs) == 1
        results = await runner.run(sources, self.tests, functions=[spec.name], final=whole)
        self.last = (sources, self.tests.hash, results) if whole else None
        return results

    def read_test(self, spec: FunctionSpec, data: Any) -> tuple[FunctionTest, list[str]]:
        """A test of a function, and what is unclear about it; `GenerationError` if it is not valid."""
        test = read_tests({spec.name: [data]}, [spec], functions=list(self.specs))[spec.name][0]
        return test, [*unclear_values(test, spec, self.language), *filter(None, [tolerance_problem(test)])]

    def tests_of(self, function: str) -> tuple[FunctionTest, ...]:
        """The tests of a function, with all changes."""
        return self.tests.tests.get(function, ())

    def warn(self, text: str) -> None:
        """Add a remark for the reader."""
        self.warnings.append(text)
        self.emit(Warned(text))

    def in_order(self, names: Collection[str]) -> list[str]:
        """Names of functions, dependencies first."""
        return [name for name in self.specs if name in names]

    def _needed(self, name: str) -> set[str]:
        """The function and all that it depends on, directly or not, as far as they have code."""
        found = {name}
        for spec in reversed(self.specs.values()):  # Its dependencies are still to come.
            if spec.name in found:
                found.update(each for each in spec.dependencies if each in self.code)
        return found

    def _defined(self, *codes: str) -> set[str]:
        """The names that pieces of code define other than by imports."""
        return {
            name for code in codes for name in {*self.language.names_defined(code)} - {*self.language.imports(code)}
        }

    def _clashes(self, spec: FunctionSpec, code: str) -> list[str]:
        """Imports that would conflict in one module: the same name for different things."""
        own, defined = self.language.imports(code), self._defined(code)
        found = dict[str, None]()
        if "*" in own and len(self.specs) > 1:
            found[f"names from {own['*']} could replace names of other functions; import each by its name"] = None
        others = [(owner, each) for owner, codes in self._codes.items() if owner != spec.name for each in codes]
        for owner, other in others:
            for name, what in self.language.imports(other).items():
                here = own.get(name, "something else" if name in defined else what)
                if here != what:
                    text = f"{name!r} is {here} here, but {what} in the code of {owner!r}, which is in the same module"
                    found[f"{text}; import the same, or take another name"] = None
        return [*found]


_MOST_PATCHES = 2  # After this many failed patches, another approach is requested.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


class FunctionWork:
    """The work on one function.

    It has the `attempts` so far, the `results` of the last one that was tested, what the scanner found in the best code
    (`findings`), and in the end the `reason` to stop.
    """

    def __init__(self, spec: FunctionSpec, program: Program, client: BudgetedModel, runner: Judge) -> None:
        self.spec = spec
        self._program = program
        self._client = client
        self._runner = runner
        self.attempts: list[Attempt] = []
        self.results: list[Verdict] = []
        self.findings: tuple[SecurityFinding, ...] = ()
        self.reason: StopReason | None = None
        self._failures: list[object] = []  # Of each attempt; equal ones are equal.
        self._changes = 0
        self._patches = 0
        self._fresh = False

    async def do(self) -> StopReason:
        """Work until all tests pass or there is a reason to stop; the program gets the best code.

        Code that exists already is only tested. If a request fails or there is no budget for it, that raises.
        """
        if self.spec.name in self._program.existing:
            passed = await self._test(self._attempt("existing", self._program.existing[self.spec.name]))
            return StopReason.PASSED if passed else StopReason.FAILED
        attempt = await self._write()
        while True:
            trouble = await self._try(attempt)
            if not trouble:
                return StopReason.PASSED_CHANGED_TESTS if self._changes else StopReason.PASSED
            if len(self.attempts) >= self._program.rules.max_attempts:
                return StopReason.ATTEMPTS
            repeated = self._repeated()
            if repeated is not None and self._fresh:
                return repeated
            if not self._fresh and (repeated is not None or self._patches >= _MOST_PATCHES):
                self._fresh, self._patches = True, 0
                attempt = await self._write(trouble)
            else:
                attempt = await self._repair(trouble)

    async def _write(self, trouble: str = "") -> Attempt:
        """Let the model write the code; after trouble, with another approach."""
        reply = await self._client.ask("code", self.spec.name, code_request(self._program, self.spec, trouble))
        approach: Approach = "fresh" if trouble else "first"
        if not reply.complete:
            return self._attempt(approach, "", problems=("the reply was cut off at a length limit; write less",))
        language = self._program.language
        code = code_in(reply.text, self.spec.name, language)
        lacking = f"there is no {language.name} code block with the function {self.spec.name!r}"
        return self._attempt(approach, code, problems=() if code.strip() else (lacking,))

    async def _repair(self, trouble: str) -> Attempt:
        self._patches += 1
        program = self._program
        changes = max(program.rules.max_test_changes - self._changes, 0)
        code = next((each.code for each in reversed(self.attempts) if each.code), "")
        messages = request(REPAIR, program, self.spec, code=code, trouble=trouble, changes=changes)
        reply = await self._client.ask("repair", self.spec.name, messages, RepairForm)
        repair = read_repair(reply.text, self.spec.name, program.language)
        if repair is None:
            return self._attempt("patch", "", problems=("the reply had neither new code nor a changed test",))
        if repair.wrong == "implementation":
            return self._attempt("patch", repair.implementation or "", reason=repair.reason)
        try:
            await self._change_test(repair)
        except GenerationError as error:
            problems = tuple(f"the test cannot be changed like this: {line}" for line in str(error).splitlines())
            return self._attempt("patch", "", problems=problems, reason=repair.reason)
        return self._attempt("changed test", code, reason=repair.reason)

    def _attempt(self, approach: Approach, code: str, **more: Any) -> Attempt:
        """What to try next; with problems, it cannot be tried."""
        return Attempt(number=len(self.attempts) + 1, approach=approach, code=code, **more)

    async def _try(self, attempt: Attempt) -> str:
        """Check code and run its tests; return what to tell the model, or nothing if all tests passed."""
        program, spec, number = self._program, self.spec, attempt.number
        findings: tuple[SecurityFinding, ...] = ()
        if not attempt.problems:
            code, notes = program.without_repeats(spec, attempt.code)
            problems, findings = program.check(spec, code)
            attempt = attempt.model_copy(update={"code": code, "notes": notes, "problems": tuple(problems)})
        if attempt.problems:
            self.attempts.append(attempt)
            program.emit(CodeRefused(spec.name, number, attempt.problems, attempt.reason))
            self._failures.append(attempt.problems)
            return refusals(attempt.problems, attempt.notes)
        language = program.language.name
        program.emit(CodeWritten(spec.name, number, attempt.approach, attempt.code, language, attempt.reason))
        whole = await self._test(attempt)
        tested = [each.passed for each in self.attempts if not each.problems]
        better = whole or tested[-1] > max(tested[:-1], default=-1)
        program.tried(spec, attempt.code if better else program.code[spec.name])
        self.findings = findings if better else self.findings
        if whole:
            program.passed.add(spec.name)
        self._failures.append(_signature(self.results))
        return "" if whole else failures(self.results, program.tests_of(spec.name), attempt.notes)

    async def _test(self, attempt: Attempt) -> bool:
        """Run the tests of the function; return whether all passed."""
        results = self.results = await self._program.run(self._runner, self.spec, attempt.code)
        self._program.emit(TestsRun(self.spec.name, attempt.number, tuple(results)))
        passed = sum(result.passed for result in results)
        self.attempts.append(attempt.model_copy(update={"passed": passed, "failed": len(results) - passed}))
        return passed == len(results)

    def _repeated(self) -> StopReason | None:
        """Whether the last attempt repeats earlier code, or the failure of the one before it."""
        *earlier, last = self.attempts
        code = last.code.strip() if last.approach != "changed test" else ""
        if code and any(each.code.strip() == code for each in earlier):
            return StopReason.SAME_CODE
        return StopReason.SAME_ERROR if self._failures[-1:] == self._failures[-2:-1] else None

    async def _change_test(self, repair: RepairForm) -> None:
        """Change a test, and record it; `GenerationError` if the change is not allowed or not valid."""
        program, spec = self._program, self.spec
        if self._changes >= program.rules.max_test_changes:
            raise GenerationError(f"{self._changes} test changes were made already, which is the limit")
        [data] = as_tests([repair.test], spec, program.language)
        test, problems = program.read_test(spec, data)
        if test.name not in {each.name for each in program.tests_of(spec.name)}:
            raise GenerationError(f"there is no test named {test.name!r}")
        if not repair.reason.strip():
            raise GenerationError("no reason is given")
        for _, values in await vacuous_tests([test], spec.name, spec.outputs.type, self._runner):
            problems.append(f"it also holds for {values}")
        if problems:
            raise GenerationError("\n".join(problems))
        program.tests = changed(program.tests, spec.name, test.name, test, by="the model", reason=repair.reason)
        self._changes += 1
        program.emit(TestChanged(program.tests.changes[-1]))


def _signature(results: list[Verdict]) -> object:
    """A value that is equal for equal failures."""
    failed = [(each.test, each.why, each.error.rpartition("\n")[2]) for each in results if not each.passed]
    return tuple((test, _ADDRESS.sub("0x", why), _ADDRESS.sub("0x", error)) for test, why, error in failed)
