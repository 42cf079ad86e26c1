"""The pipeline from instruction to solution: specs, tests, code in dependency order, and a final run of all tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from coderoom.errors import GenerationError, ModelError
from coderoom.generation.events import FunctionFinished, SpecsWritten, TestsFrozen, TestsWritten, Warned
from coderoom.generation.frozen_tests import FrozenTests, freeze
from coderoom.generation.model_client import BudgetedModel, BudgetSpent
from coderoom.generation.program import Program
from coderoom.generation.repair import FunctionWork
from coderoom.generation.solution import CUT_SHORT, Attempt, FunctionReport, Solution, StopReason, why_no_code
from coderoom.generation.specs import FunctionSpec
from coderoom.generation.steps import write_specs, write_tests
from coderoom.generation.testing.results import TestResult
from coderoom.generation.testing.runner import TestRunner
from coderoom.generation.tests import FunctionTest
from coderoom.outcome import Outcome

__all__ = ["Pipeline", "all_passed"]


class Pipeline:
    """The way from an instruction to a solution.

    Args:
        program: The program, of which only the instruction is known yet.
        asker: Asks the model.
        runner: Runs the tests.
    """

    def __init__(self, program: Program, asker: BudgetedModel, runner: TestRunner) -> None:
        self._program = program
        self._asker = asker
        self._runner = runner
        self._attempts: dict[str, list[Attempt]] = {}
        self._reasons: dict[str, StopReason] = {}
        self._stopped: StopReason | None = None
        self._error = ""

    async def run(self, model: str) -> Solution:
        """Go all the way, or as far as it goes.

        Args:
            model: What the model is called.

        Raises:
            SandboxUnavailable: The sandbox broke.
        """
        started = time.monotonic()
        try:
            specs = await self._write_specs()
            if await self._write_tests(specs):
                await self._write_code()
        except (BudgetSpent, ModelError, GenerationError) as error:
            self._note(error)
        return await self._conclude(model, started)

    async def _write_specs(self) -> list[FunctionSpec]:
        program = self._program
        layers = program.take_specs(await write_specs(self._asker, program.instruction, program.language))
        program.emit(SpecsWritten(tuple(map(tuple, layers))))
        return list(program.specs.values())

    async def _write_tests(self, specs: Sequence[FunctionSpec]) -> bool:
        """Write the tests of all functions at the same time, and freeze them; whether all could be asked for."""
        found = await asyncio.gather(*(self._write_tests_of(spec) for spec in specs), return_exceptions=True)
        tests: dict[str, list[FunctionTest]] = {}
        for spec, each in zip(specs, found, strict=True):
            if isinstance(each, BudgetSpent | ModelError):
                self._note(each)
            elif isinstance(each, BaseException):
                raise each
            else:
                tests[spec.name] = each
        if any(tests.values()):
            self._program.tests = self._program.original = freeze({name: each for name, each in tests.items() if each})
            self._program.emit(TestsFrozen(self._program.tests))
        elif self._stopped is None:
            raise GenerationError("The model gave no usable tests, also when it was told why.")
        return self._stopped is None

    async def _write_tests_of(self, spec: FunctionSpec) -> list[FunctionTest]:
        program = self._program
        tests, problems = await write_tests(spec, program, self._asker, self._runner)
        for problem in problems:
            self._warn(problem)
        program.emit(TestsWritten(spec.name, tuple(tests)))
        return tests

    async def _write_code(self) -> None:
        """Write every function once those that it needs are there; others at the same time."""
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for spec in self._program.specs.values():  # Each comes after what it needs.
                    needed = [tasks[name] for name in spec.dependencies]
                    tasks[spec.name] = group.create_task(self._write_function(spec, needed))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _write_function(self, spec: FunctionSpec, needed: Sequence[asyncio.Task[None]]) -> None:
        for task in needed:
            await asyncio.wait([task])
        program = self._program
        lacking = [name for name in spec.dependencies if name not in program.code]
        tests = program.tests.tests.get(spec.name, ()) if program.tests is not None else ()
        if lacking or not tests:
            why = f"{', '.join(lacking)}, which it needs, has no code" if lacking else "it has no tests"
            self._warn(f"{spec.name} was not written: {why}")
            self._attempts[spec.name], self._reasons[spec.name] = [], StopReason.UNUSABLE
            return
        work = FunctionWork(spec, program, self._asker, self._runner)
        self._attempts[spec.name] = work.attempts
        reason = self._reasons[spec.name] = await work.do()
        if reason in CUT_SHORT:
            self._stopped = self._stopped or reason
            self._error = self._error or work.error
        last = work.attempts[-1] if work.attempts else None
        passed = last.passed if last is not None and spec.name in program.passed else 0
        changed = reason is StopReason.PASSED_CHANGED_TESTS
        program.emit(FunctionFinished(self._report(spec.name, [], len(tests), passed, changed=changed)))

    async def _conclude(self, model: str, started: float) -> Solution:
        """Run everything once more, all functions together, and put down what came of it."""
        program = self._program
        names = program.in_order(program.code)
        implementations = {name: program.code[name] for name in names}
        results = await self._run(program.tests, implementations)
        only_changed = await self._only_by_changed(implementations, results)
        reports = tuple(
            self._report(name, [each for each in results if each.function == name], changed=name in only_changed)
            for name in program.specs
        )
        passed = all_passed(list(program.specs), implementations, results)
        passed = passed and (not only_changed or program.rules.accept_changed_tests)
        tests = program.tests
        return Solution(
            instruction=program.instruction,
            function_specs=tuple(program.specs.values()),
            implementations=implementations,
            tests=dict(tests.tests) if tests is not None else {},
            test_results=tuple(results),
            all_tests_passed=passed,
            functions=reports,
            test_changes=tests.changes if tests is not None else (),
            tests_hash=program.original.hash if program.original is not None else "",
            language=program.language.name,
            model=model,
            usage=self._asker.usage,
            duration=time.monotonic() - started,
            stop_reason=self._stop_reason(passed, reports),
            error=self._error,
            warnings=tuple(program.warnings),
        )

    async def _run(self, tests: FrozenTests | None, implementations: dict[str, str]) -> list[TestResult]:
        if tests is None:
            return []
        written = [name for name in tests.tests if name in implementations]
        results = await self._runner.run(implementations, tests, functions=written)
        for name in [name for name in tests.tests if name not in written]:
            why = why_no_code(self._report(name, []))
            results += [
                TestResult(function=name, test=test.name, passed=False, why=why, outcome=Outcome.REJECTED)
                for test in tests.tests[name]
            ]
        return results

    async def _only_by_changed(self, implementations: dict[str, str], results: Sequence[TestResult]) -> set[str]:
        """The functions that pass their tests only as those were changed."""
        program = self._program
        if program.tests is None or program.original is None or not program.tests.changes:
            return set()
        changed = {change.function for change in program.tests.changes} & set(implementations)
        passing = {name for name in changed if all(each.passed for each in results if each.function == name)}
        before = await self._runner.run(implementations, program.original, functions=program.in_order(passing))
        return {each.function for each in before if not each.passed}

    def _report(
        self, name: str, results: Sequence[TestResult], tests: int = 0, passed: int = 0, *, changed: bool = False
    ) -> FunctionReport:
        count, good = len(results) or tests, sum(each.passed for each in results) or passed
        reason = self._reasons.get(name, self._stopped or StopReason.UNUSABLE)
        if reason is StopReason.PASSED_CHANGED_TESTS and not changed and results:
            reason = StopReason.PASSED  # Its code passes the tests as they were, too.
        whole = 0 < count == good
        if results and not whole and reason in (StopReason.PASSED, StopReason.PASSED_CHANGED_TESTS):
            reason = StopReason.FAILED  # With the whole program it does not do what it did alone.
        return FunctionReport(
            function=name,
            passed=whole and (not changed or self._program.rules.accept_changed_tests),
            only_by_changed_tests=changed,
            tests=count,
            tests_passed=good,
            attempts=tuple(self._attempts.get(name, ())),
            stop_reason=reason,
            findings=self._program.findings.get(name, ()),
            seconds=sum(each.duration for each in results),
            slowest=max((each.duration for each in results), default=0.0),
            peak_memory=max((each.peak_memory or 0 for each in results), default=0) or None,
        )

    def _stop_reason(self, passed: bool, reports: Sequence[FunctionReport]) -> StopReason:
        if passed:
            return StopReason.PASSED
        if self._stopped is not None:
            return self._stopped
        reasons = {report.stop_reason for report in reports if not report.passed}
        if len(reasons) == 1:
            return reasons.pop()
        return StopReason.FAILED if reports else StopReason.UNUSABLE

    def _note(self, error: BudgetSpent | ModelError | GenerationError) -> None:
        if isinstance(error, BudgetSpent):
            self._stopped = self._stopped or error.reason
            return
        self._error = self._error or str(error)
        self._stopped = self._stopped or (
            StopReason.MODEL_FAILED if isinstance(error, ModelError) else StopReason.UNUSABLE
        )

    def _warn(self, text: str) -> None:
        self._program.warnings.append(text)
        self._program.emit(Warned(text))


def all_passed(functions: Sequence[str], implementations: dict[str, str], results: Sequence[TestResult]) -> bool:
    """Whether there are functions, each has code and tests, and every test passed."""
    tested = {each.function for each in results}
    return (
        bool(functions)
        and all(name in implementations and name in tested for name in functions)
        and all(each.passed for each in results)
    )
