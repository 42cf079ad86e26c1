"""The work on one function: writing, testing and repairing its code."""

from __future__ import annotations

import re
from typing import Any

from coderoom.errors import GenerationError
from coderoom.generation.languages import SecurityFinding
from coderoom.generation.model_client import BudgetedModel
from coderoom.generation.program import Program
from coderoom.generation.prompts import REPAIR, code_request, failures, refusals, request
from coderoom.generation.replies import RepairForm, as_tests, code_in, read_repair
from coderoom.generation.solution import (
    Approach,
    Attempt,
    CodeRefused,
    CodeWritten,
    StopReason,
    TestChanged,
    TestsRun,
)
from coderoom.generation.specs import FunctionSpec
from coderoom.judge import Judge, Verdict, changed
from coderoom.judge.other_values import vacuous_tests

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
            if len(self.attempts) >= self._program.options.max_attempts:
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
        changes = max(program.options.max_test_changes - self._changes, 0)
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
        if self._changes >= program.options.max_test_changes:
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
