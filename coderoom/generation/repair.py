"""Writes one function: generate it, run its tests, diagnose and repair."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from coderoom.errors import GenerationError, ModelError
from coderoom.generation.events import CodeRefused, CodeWritten, TestChanged, TestsRun
from coderoom.generation.frozen_tests import changed
from coderoom.generation.languages.base import SecurityFinding
from coderoom.generation.model import Message
from coderoom.generation.model_client import BudgetedModel, BudgetSpent
from coderoom.generation.program import Program
from coderoom.generation.prompts import (
    code_request,
    failures,
    fresh_request,
    refusals,
    repair_request,
)
from coderoom.generation.replies import as_tests, unclear_values
from coderoom.generation.reply_forms import Repair, RepairForm, code_in, read_repair
from coderoom.generation.solution import Approach, Attempt, StopReason
from coderoom.generation.specs import FunctionSpec
from coderoom.generation.testing.results import TestResult
from coderoom.generation.testing.runner import TestRunner
from coderoom.generation.tests import FunctionTest
from coderoom.generation.tests_data import read_tests

__all__ = ["FunctionWork"]

_MOST_PATCHES = 2  # When so many have failed, another approach is asked for.
_NO_FINDINGS: tuple[SecurityFinding, ...] = ()
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class _Proposal:
    """What is to be tried next.

    Attributes:
        approach: How it came about.
        code: The code; empty if the answer had none.
        problems: Why it cannot be tried.
        reason: What the model said was wrong before.
        notes: What was done with the code.
    """

    approach: Approach
    code: str
    problems: tuple[str, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()


class FunctionWork:
    """The work on one function.

    Args:
        spec: What it is to do.
        program: The program that it belongs to.
        asker: Asks the model.
        runner: Runs the tests.

    Attributes:
        attempts: The attempts so far.
        error: Why the model could not be asked; empty if it could.
    """

    def __init__(self, spec: FunctionSpec, program: Program, asker: BudgetedModel, runner: TestRunner) -> None:
        self._spec = spec
        self._program = program
        self._asker = asker
        self._runner = runner
        self.attempts: list[Attempt] = []
        self.error = ""
        self._code = ""
        self._codes: set[str] = set()
        self._signatures: list[object] = []
        self._repeated: StopReason | None = None
        self._best = -1
        self._changes = 0
        self._patches = 0
        self._fresh = False

    async def do(self) -> StopReason:
        """Work until all tests pass, or there is a reason to stop; the best code so far is the program's."""
        try:
            return await self._go_on()
        except BudgetSpent as spent:
            return spent.reason
        except ModelError as error:
            self.error = str(error)
            return StopReason.MODEL_FAILED

    async def _go_on(self) -> StopReason:
        proposal = await self._begin()
        while True:
            trouble = await self._try(proposal)
            if not trouble:
                return StopReason.PASSED_CHANGED_TESTS if self._changes else StopReason.PASSED
            if len(self.attempts) >= self._program.rules.max_attempts:
                return StopReason.ATTEMPTS
            if self._repeated is not None and self._fresh:
                return self._repeated
            if not self._fresh and (self._repeated is not None or self._patches >= _MOST_PATCHES):
                proposal = await self._begin_anew(trouble)
            else:
                proposal = await self._mend(trouble)

    async def _begin(self) -> _Proposal:
        program = self._program
        dependencies = program.dependencies(self._spec)
        return await self._write("first", code_request(program.instruction, self._spec, program.language, dependencies))

    async def _begin_anew(self, trouble: str) -> _Proposal:
        self._fresh, self._patches = True, 0
        program = self._program
        dependencies = program.dependencies(self._spec)
        request = fresh_request(program.instruction, self._spec, program.language, dependencies, trouble)
        return await self._write("fresh", request)

    async def _write(self, approach: Approach, request: list[Message]) -> _Proposal:
        reply = await self._asker.ask("code", self._spec.name, request)
        code = code_in(reply.text, self._spec.name, self._program.language)
        if not reply.complete:
            return _Proposal(approach, "", ("the answer was cut off at a limit; write less",))
        return _Proposal(approach, code, () if code.strip() else (self._no_code(),))

    async def _mend(self, trouble: str) -> _Proposal:
        self._patches += 1
        program = self._program
        request = repair_request(
            program.instruction,
            self._spec,
            program.language,
            program.dependencies(self._spec),
            self._code,
            trouble,
            max(program.rules.max_test_changes - self._changes, 0),
        )
        reply = await self._asker.ask("repair", self._spec.name, request, RepairForm)
        repair = read_repair(reply.text, self._spec.name, program.language)
        if repair is None:
            return _Proposal("patch", "", ("the answer had neither new code nor another test",))
        if repair.wrong == "implementation":
            return _Proposal("patch", repair.code, reason=repair.reason)
        try:
            self._change_test(repair)
        except GenerationError as error:
            problems = tuple(f"the test cannot be changed so: {line}" for line in str(error).splitlines())
            return _Proposal("patch", "", problems, repair.reason)
        return _Proposal("changed test", self._code, reason=repair.reason)

    async def _try(self, proposal: _Proposal) -> str:
        """Try what was proposed; say what is wrong with it, and nothing if it is right."""
        program, spec, number = self._program, self._spec, len(self.attempts) + 1
        problems, findings = list(proposal.problems), _NO_FINDINGS
        if not problems:
            code, notes = program.without_repeats(spec, proposal.code)
            proposal = replace(proposal, code=code, notes=notes)
            problems, findings = program.check(spec, code)
        if proposal.code:
            self._code = proposal.code
        if problems:
            self._record(proposal, number, problems=tuple(problems))
            program.emit(CodeRefused(spec.name, number, tuple(problems)))
            self._compare(proposal, tuple(problems))
            return refusals(problems, proposal.notes)
        program.emit(CodeWritten(spec.name, number, proposal.approach, proposal.code, program.language.name))
        results = await program.run(self._runner, spec, proposal.code)
        program.emit(TestsRun(spec.name, number, tuple(results)))
        passed = sum(result.passed for result in results)
        self._record(proposal, number, passed=passed, failed=len(results) - passed)
        self._keep(proposal.code, passed, passed == len(results), findings)
        self._compare(proposal, _signature(results))
        return "" if passed == len(results) else failures(results, self._tests(), proposal.notes)

    def _record(
        self, proposal: _Proposal, number: int, *, passed: int = 0, failed: int = 0, problems: tuple[str, ...] = ()
    ) -> None:
        self.attempts.append(
            Attempt(
                number=number,
                approach=proposal.approach,
                code=proposal.code,
                passed=passed,
                failed=failed,
                problems=problems,
                reason=proposal.reason[:2_000],
                notes=proposal.notes,
            )
        )

    def _keep(self, code: str, passed: int, whole: bool, findings: tuple[SecurityFinding, ...]) -> None:
        better = passed > self._best or whole
        self._program.tried(self._spec, code if better else self._program.code[self._spec.name])
        if better:
            self._best = passed
            self._program.findings[self._spec.name] = findings
        if whole:
            self._program.passed.add(self._spec.name)

    def _compare(self, proposal: _Proposal, signature: object) -> None:
        """Find out whether this is what there was before."""
        self._repeated = None
        if proposal.code and proposal.approach != "changed test":
            code = proposal.code.strip()
            if code in self._codes:
                self._repeated = StopReason.SAME_CODE
            self._codes.add(code)
        if self._repeated is None and self._signatures and self._signatures[-1] == signature:
            self._repeated = StopReason.SAME_ERROR
        self._signatures.append(signature)

    def _change_test(self, repair: Repair) -> None:
        """Change a test, and record it.

        Raises:
            GenerationError: That cannot be done.
        """
        program, spec = self._program, self._spec
        assert program.tests is not None
        if self._changes >= program.rules.max_test_changes:
            raise GenerationError(f"{self._changes} of its tests were changed already, and no more may be")
        told = as_tests([repair.test], spec, program.language)
        test = read_tests({spec.name: told}, [spec], language=program.language)[spec.name][0]
        if test.name not in {each.name for each in self._tests()}:
            raise GenerationError(f"there is no test named {test.name!r}")
        if not repair.reason.strip():
            raise GenerationError("there is no reason given")
        if problems := [*unclear_values(test, spec, program.language), *program.check_setup(test.setup)]:
            raise GenerationError("\n".join(problems))
        program.tests = changed(program.tests, spec.name, test.name, test, by="the model", reason=repair.reason[:2_000])
        self._changes += 1
        program.emit(TestChanged(program.tests.changes[-1]))

    def _tests(self) -> tuple[FunctionTest, ...]:
        assert self._program.tests is not None
        return self._program.tests.tests.get(self._spec.name, ())

    def _no_code(self) -> str:
        return f"there is no block of {self._program.language.name} with the function {self._spec.name!r}"


def _signature(results: list[TestResult]) -> object:
    """The same for failures that are the same."""
    failed = [(each.test, each.why, each.error.rpartition("\n")[2]) for each in results if not each.passed]
    return tuple((test, _ADDRESS.sub("0x", why), _ADDRESS.sub("0x", error)) for test, why, error in failed)
