"""The pipeline from instruction to solution: specs, tests, the work on each function, and a final run of all tests."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from coderoom._util.tasks import all_of
from coderoom.errors import GenerationError
from coderoom.generation.branching import Tried, Variation, best_of, report_of, variations, why_best
from coderoom.generation.languages import SecurityFinding
from coderoom.generation.model_client import BudgetedModel, Stopped
from coderoom.generation.models import Message, Model, Reply
from coderoom.generation.program import (
    MORE_TESTS,
    REPAIR,
    SPECS,
    TESTS,
    Program,
    again,
    code_request,
    failures,
    refusals,
    request,
)
from coderoom.generation.replies import (
    SPECS_KEYS,
    TESTS_KEYS,
    Form,
    RepairForm,
    SpecsForm,
    TestsForm,
    as_specs,
    as_tests,
    code_in,
    listed,
    read_repair,
)
from coderoom.generation.solution import (
    Approach,
    Attempt,
    BranchesJudged,
    CodeRefused,
    CodeWritten,
    FunctionFinished,
    FunctionReport,
    Solution,
    SpecsWritten,
    StopReason,
    StrengthMeasured,
    TestChanged,
    TestsFrozen,
    TestsRun,
    TestsWritten,
    why_no_code,
)
from coderoom.generation.specs import FunctionSpec, read_specs
from coderoom.judge import FunctionTest, Judge, Strength, Verdict, changed, freeze
from coderoom.judge.cases import content_key
from coderoom.judge.other_values import trivial_program, vacuous_tests
from coderoom.judge.values import canonical
from coderoom.outcome import Outcome
from coderoom.steps import branch

_LEAST_TESTS, _MOST_TESTS = 3, 50
_NOTHING = "there is no JSON object of the requested form"
_SAID = 300
_CUT_OFF = "the reply was cut off at a length limit; be briefer"
_SAY = "state what the result has to be"
_ENOUGH = 0.75  # The share of the mutants that tests kill; some mutants mean the same as the code.
_MOST_SECONDS, _SHARE = 10.0, 0.3  # What measuring may take, and which part of the time before it.
T = TypeVar("T")


async def write_specs(program: Program, client: BudgetedModel) -> list[FunctionSpec]:
    """Let the model write the specs; mistakes are sent back once."""

    async def read(text: str) -> list[FunctionSpec]:
        data = listed(text, SPECS_KEYS)
        if data is None:
            raise GenerationError(_NOTHING)
        specs = read_specs(as_specs(data))
        language = program.language
        wrong = []
        for spec in specs:
            found = [language.name_problem(name) for name in (spec.name, *(each.name for each in spec.inputs))]
            wrong += [problem for problem in (*found, language.spec_problem(spec)) if problem is not None]
        if wrong:
            raise GenerationError("\n".join(wrong))
        return specs

    specs, problems = await _ask_twice(client, "specs", "", request(SPECS, program), SpecsForm, read)
    if specs is None:
        raise GenerationError("No usable functions, even after a correction request:\n" + ";\n".join(problems))
    return specs


async def write_tests(spec: FunctionSpec, program: Program, client: BudgetedModel, runner: Judge) -> list[FunctionTest]:
    """Let the model write the tests of a function; mistakes are sent back once. Warn of those that remain."""
    kept: list[FunctionTest] = []
    why: list[str] = []

    async def read(text: str) -> list[FunctionTest]:
        data = listed(text, TESTS_KEYS, spec.name)
        if data is None:
            raise GenerationError(_NOTHING)
        tests, wrong = _sound_tests(data, spec, program)
        for test, values in await vacuous_tests(tests, spec.name, spec.outputs.type, runner):
            wrong.append(f"{test.name!r} also holds for {values}: {_SAY}")
            tests.remove(test)
        if len(tests) < _LEAST_TESTS:
            wrong.append(f"there are {len(tests)} usable tests; write at least {_LEAST_TESTS}")
        if len(tests) >= len(kept):
            kept[:], why[:] = tests, wrong
        if wrong:
            raise GenerationError("\n".join(wrong))
        return tests

    tests, problems = await _ask_twice(client, "tests", spec.name, request(TESTS, program, spec), TestsForm, read)
    if tests is None:
        tests = kept
        for problem in why if kept else problems:
            program.warn(f"tests of {spec.name}: {problem}")
    if trivial := await trivial_program(tests, [each.name for each in spec.inputs], spec.outputs.type, runner):
        program.warn(f"tests of {spec.name}: a useless function passes all of them: {trivial}")
    program.emit(TestsWritten(spec.name, tuple(tests)))
    return tests


async def _ask_twice(
    client: BudgetedModel,
    step: str,
    function: str,
    messages: Sequence[Message],
    form: type[Form],
    read: Callable[[str], Awaitable[T]],
) -> tuple[T | None, list[str]]:
    problems: list[str] = []
    for last in (False, True):
        reply = await client.ask(step, function, messages, form)
        try:
            return await read(reply.text), []
        except GenerationError as error:
            problems = str(error).splitlines() if reply.complete else [_CUT_OFF]
            said = " ".join(reply.text.split())[:_SAID]
        if not last:
            messages = again(messages, reply.text, problems)
    return None, [*problems, f"the model replied: {said or 'nothing'}"]


def _sound_tests(data: Any, spec: FunctionSpec, program: Program) -> tuple[list[FunctionTest], list[str]]:
    """The tests that are valid on their own, and the problems of the others."""
    tests: list[FunctionTest] = []
    wrong: list[str] = []
    said: dict[str, str] = {}
    known: dict[str, str] = {}
    if len(data) > _MOST_TESTS:
        wrong.append(f"there are {len(data)} tests; at most {_MOST_TESTS} are allowed")
    for index, each in enumerate(as_tests(data[:_MOST_TESTS], spec, program.language)):
        place = f"tests[{index}]"
        try:
            test, problems = program.read_test(spec, each)
        except GenerationError as error:
            wrong += [line.replace(f"tests.{spec.name}[0]", place) for line in str(error).splitlines()]
            continue
        call = canonical([test.inputs, test.model_dump(mode="json", include={"setup", "then"})])
        expected = canonical([test.expected_output, test.expected_error])
        if test.name in [other.name for other in tests]:
            problems.append(f"another test has the same name {test.name!r}")
        elif (same := said.setdefault(content_key(test), test.name)) != test.name:
            problems.append(f"it is the same test as {same!r}")
        elif test.property is None and known.setdefault(call, expected) != expected:  # It may have several properties.
            problems.append("another test expects a different result of the same call")
        wrong += [f"{place}: {problem}" for problem in problems]
        tests += [test] if not problems else []
    return tests, wrong


class Pipeline:
    """Runs the steps from an instruction to a solution. Parts of the program may exist already: specs, and code."""

    def __init__(self, program: Program, client: BudgetedModel, runner: Judge) -> None:
        self._program = program
        self._client = client
        self._runner = runner
        self._works: dict[str, FunctionWork] = {}
        self._stopped: StopReason | None = None
        self._error = ""

    async def run(self, model: str) -> Solution:
        """Run all steps, or as many as possible."""
        started = time.monotonic()
        program = self._program
        try:
            layers = program.take_specs([*program.specs.values()] or await write_specs(program, self._client))
            program.emit(SpecsWritten(tuple(map(tuple, layers))))
            for name, spec in program.specs.items():
                self._works[name] = FunctionWork(spec, program, self._client, self._runner)
            if await self._write_tests([*program.specs.values()]):
                await self._write_code()
                if program.options.strength and program.language.name == "python":
                    await self._strengthen(started)
        except (Stopped, GenerationError) as error:
            self._note(error)
        return await self._conclude(model, started)

    async def _write_tests(self, specs: Sequence[FunctionSpec]) -> bool:
        """Write the tests of all functions concurrently and freeze them; return whether all requests succeeded."""
        requests = (write_tests(spec, self._program, self._client, self._runner) for spec in specs)
        found = await asyncio.gather(*requests, return_exceptions=True)
        tests: dict[str, list[FunctionTest]] = {}
        for spec, each in zip(specs, found, strict=True):
            if isinstance(each, Stopped):
                self._note(each)
            elif isinstance(each, BaseException):
                raise each
            else:
                tests[spec.name] = each
        if any(tests.values()):
            self._program.tests = self._program.original = freeze({name: each for name, each in tests.items() if each})
            self._program.emit(TestsFrozen(self._program.tests))
        elif self._stopped is None:
            raise GenerationError("The model gave no usable tests, even after a correction request.")
        return self._stopped is None

    async def _write_code(self) -> None:
        """Write every function, each after its dependencies, and independent ones concurrently."""
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for name, work in self._works.items():  # Dependencies come first.
                    needed = [tasks[each] for each in work.spec.dependencies]
                    tasks[name] = group.create_task(self._write_function(work, needed))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _write_function(self, work: FunctionWork, needed: Sequence[asyncio.Task[None]]) -> None:
        for task in needed:
            await asyncio.wait([task])
        program, spec = self._program, work.spec
        lacking = [name for name in spec.dependencies if name not in program.code]
        if lacking or not program.tests_of(spec.name):
            why = f"its dependency {', '.join(lacking)} has no code" if lacking else "it has no tests"
            program.warn(f"{spec.name} was not written: {why}")
            work.reason = StopReason.UNUSABLE
            return
        try:
            work.reason = await work.do()
        except Stopped as error:
            work.reason = self._note(error)
        changed = work.reason is StopReason.PASSED_CHANGED_TESTS
        program.emit(FunctionFinished(self._report(work, work.results, changed=changed)))

    async def _strengthen(self, started: float) -> None:
        """Measure how strong the tests of each function are, and let the model write more if they are weak.

        This is the last step, so that recordings from before it have a reply to everything else.
        """
        program = self._program
        works = [each for each in self._works.values() if each.reason is StopReason.PASSED]
        for number, work in enumerate(works):
            # So that it takes a part of the time only, however fast the model is.
            seconds = min(_MOST_SECONDS, self._client.seconds_left, _SHARE * (time.monotonic() - started))
            if seconds > 0:
                await work.measure(seconds / (len(works) - number))
        weak = [each for each in works if each.strength is not None and each.strength.rate < _ENOUGH]
        if len(works) < len(self._works) or self._stopped is not None:
            return  # What is not done is not accepted anyway.
        asked = await asyncio.gather(*(each.ask_for_more_tests() for each in weak), return_exceptions=True)
        for work, tests in zip(weak, asked, strict=True):
            if isinstance(tests, Stopped):
                program.warn(f"{work.spec.name}: the model was not asked for more tests: {tests.words}")
            elif isinstance(tests, BaseException):
                raise tests
            elif tests and await work.take(tests):
                await work.measure(min(_MOST_SECONDS, self._client.seconds_left))

    async def _conclude(self, model: str, started: float) -> Solution:
        """Run all tests once more with the whole program, and build the solution."""
        program = self._program
        implementations = {name: program.code[name] for name in program.in_order(program.code)}
        results = await self._run(implementations)
        for warning in warnings_of(results):
            program.warn(warning)
        only_changed: set[str] = set()  # The functions that pass only the changed tests.
        if changed := {change.function for change in program.tests.changes} & set(implementations):
            passing = {name for name in changed if all(each.passed for each in results if each.function == name)}
            before = await self._runner.run(implementations, program.original, functions=program.in_order(passing))
            only_changed = {each.function for each in before if not each.passed}
        reports = tuple(
            self._report(work, [each for each in results if each.function == name], changed=name in only_changed)
            for name, work in self._works.items()
        )
        passed = all_passed(list(program.specs), implementations, results)
        passed = passed and (not only_changed or program.options.accept_changed_tests)
        return Solution(
            instruction=program.instruction,
            function_specs=tuple(program.specs.values()),
            implementations=implementations,
            tests=dict(program.tests.tests),
            test_results=tuple(results),
            all_tests_passed=passed,
            functions=reports,
            test_changes=program.tests.changes,
            tests_hash=program.original.hash,
            tests_only=bool(program.existing),
            language=program.language.name,
            model=model,
            usage=self._client.usage,
            branch_usage=self._client.branch_usage,
            duration=time.monotonic() - started,
            max_seconds=self._client.max_seconds,
            stop_reason=self._stop_reason(passed, reports),
            error=self._error,
            warnings=tuple(program.warnings),
        )

    async def _run(self, implementations: dict[str, str]) -> list[Verdict]:
        tests = self._program.tests
        if not tests.tests:
            return []
        if self._program.last is not None and self._program.last[:2] == (implementations, tests.hash):
            return self._program.last[2]
        written = [name for name in tests.tests if name in implementations]
        results = await self._runner.run(implementations, tests, functions=written)
        for name in [name for name in tests.tests if name not in written]:
            why = why_no_code(self._works[name].attempts)
            results += [
                Verdict(function=name, test=test.name, passed=False, why=why, outcome=Outcome.REJECTED)
                for test in tests.tests[name]
            ]
        return results

    def _report(self, work: FunctionWork, results: Sequence[Verdict], *, changed: bool) -> FunctionReport:
        count, good = len(results) or len(self._program.tests_of(work.spec.name)), sum(each.passed for each in results)
        reason = work.reason or self._stopped or StopReason.UNUSABLE
        if reason is StopReason.PASSED_CHANGED_TESTS and not changed and results:
            reason = StopReason.PASSED  # Its code passes the original tests, too.
        whole = 0 < count == good
        if results and not whole and reason in (StopReason.PASSED, StopReason.PASSED_CHANGED_TESTS):
            reason = StopReason.FAILED  # It passed alone, but fails within the whole program.
        return FunctionReport(
            function=work.spec.name,
            passed=whole and (not changed or self._program.options.accept_changed_tests),
            only_by_changed_tests=changed,
            tests=count,
            tests_passed=good,
            attempts=tuple(work.attempts),
            stop_reason=reason,
            findings=work.findings,
            seconds=sum(each.duration for each in results),
            slowest=max((each.duration for each in results), default=0.0),
            peak_memory=max((each.peak_memory or 0 for each in results), default=0) or None,
            strength=work.strength,
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

    def _note(self, error: Stopped | GenerationError) -> StopReason:
        """Take note of what interrupts the work; only the first one is told."""
        self._error = self._error or str(error)
        reason = error.reason if isinstance(error, Stopped) else StopReason.UNUSABLE
        self._stopped = self._stopped or reason
        return reason


def all_passed(functions: Sequence[str], implementations: dict[str, str], results: Sequence[Verdict]) -> bool:
    """Whether there are functions, each has code and tests, and every test passed."""
    tested = {each.function for each in results}
    return (
        bool(functions)
        and all(name in implementations and name in tested for name in functions)
        and all(each.passed for each in results)
    )


def warnings_of(results: Sequence[Verdict]) -> list[str]:
    """The warnings of test results, with the function and the test."""
    return [f"{each.function}: {each.test}: {each.warning}" for each in results if each.warning]


_MOST_ALIVE = 30
_MOST_PATCHES = 2  # After this many failed patches, another approach is requested.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


class FunctionWork:
    """The work on one function.

    It has the `attempts` so far, the `results` of the last one that was tested, what the scanner found in the best code
    (`findings`), in the end the `reason` to stop, and the `strength` of the tests that it passes.
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
        self.strength: Strength | None = None
        self._code = ""  # What goes on: the last code, or that of the branch that won.
        self._failure: object = None  # Of the attempt that goes on.
        self._repeated: StopReason | None = None  # Why that attempt, and all branches beside it, brought nothing new.
        self._wanted: dict[Variation, RepairForm] = {}  # The changes of tests that branches ask for.
        self._next_change: RepairForm | None = None  # The one of them that is tried next.
        self._changes = 0
        self._patches = 0
        self._branchings = 0
        self._fresh = False

    async def do(self) -> StopReason:
        """Work until all tests pass or there is a reason to stop; the program gets the best code.

        Code that exists already is only tested. If a request fails or there is no budget for it, that raises.
        """
        if self.spec.name in self._program.existing:
            tried = await self._test(self._attempt("existing", self._program.existing[self.spec.name]))
            self.attempts, self.results = [tried.attempt], tried.results
            return StopReason.FAILED if tried.trouble else StopReason.PASSED
        options = self._program.options
        trouble = await self._try(await self._write())
        while trouble:
            left = options.max_attempts - len(self.attempts)
            if left <= 0:
                return StopReason.ATTEMPTS
            if self._next_change is not None:
                change, self._next_change = self._next_change, None
                trouble = await self._try(await self._with_changed_test(change))
            elif self._repeated is not None and self._fresh:
                return self._repeated
            elif min(options.branches, left) > 1:
                trouble = await self._branch(trouble, min(options.branches, left))
            elif not self._fresh and (self._repeated is not None or self._patches >= _MOST_PATCHES):
                self._fresh, self._patches = True, 0
                trouble = await self._try(await self._write(trouble))
            else:
                trouble = await self._try(await self._repair(trouble))
        return StopReason.PASSED_CHANGED_TESTS if self._changes else StopReason.PASSED

    async def _write(self, trouble: str = "", model: Model | None = None) -> Attempt:
        """Let the model write the code; after trouble, with another approach."""
        messages = code_request(self._program, self.spec, trouble)
        reply = await self._client.ask("code", self.spec.name, messages, model=model)
        approach: Approach = "fresh" if trouble else "first"
        if not reply.complete:
            return self._attempt(approach, "", reply, problems=("the reply was cut off at a length limit; write less",))
        language = self._program.language
        code = code_in(reply.text, self.spec.name, language)
        lacking = f"there is no {language.name} code block with the function {self.spec.name!r}"
        return self._attempt(approach, code, reply, problems=() if code.strip() else (lacking,))

    async def _repair(self, trouble: str, variation: Variation | None = None) -> Attempt:
        """Let the model repair the code or a test; in a branch, which has a variation, only the code."""
        self._patches += 1
        program = self._program
        changes = max(program.options.max_test_changes - self._changes, 0)
        messages = request(REPAIR, program, self.spec, code=self._code, trouble=trouble, changes=changes)
        model = None if variation is None else variation.model
        messages = messages if variation is None else variation.added_to(messages)
        reply = await self._client.ask("repair", self.spec.name, messages, RepairForm, model)
        repair = read_repair(reply.text, self.spec.name, program.language)
        if repair is None:
            problems = ("the reply had neither new code nor a changed test",)
            return self._attempt("patch", "", reply, problems=problems)
        if repair.wrong == "implementation":
            return self._attempt("patch", repair.implementation or "", reply, reason=repair.reason)
        if variation is None:
            return await self._with_changed_test(repair, reply)
        self._wanted[variation] = repair
        return self._attempt("patch", "", reply, problems=("it asks for a changed test",), reason=repair.reason)

    async def _with_changed_test(self, repair: RepairForm, reply: Reply | None = None) -> Attempt:
        """The same code with a changed test."""
        try:
            await self._change_test(repair)
        except GenerationError as error:
            problems = tuple(f"the test cannot be changed like this: {line}" for line in str(error).splitlines())
            return self._attempt("patch", "", reply, problems=problems, reason=repair.reason)
        return self._attempt("changed test", self._code, reply, reason=repair.reason)

    async def _branch(self, trouble: str, number: int) -> str:
        """Try so many repairs at the same time, and go on with the best one, whose trouble is returned.

        All are waited for, so that a resumed run chooses the same one, and the same tests judge all of them. If none
        passes, the first change of a test that one of them asks for is tried next.
        """
        self._branchings, self._fresh = self._branchings + 1, True
        began, asked = time.monotonic(), list(islice(variations(self._client.branch_models), number))
        names = [f"{self.spec.name} {self._branchings}.{place}" for place in range(1, number + 1)]

        async def work(place: int) -> tuple[Tried | Stopped, float]:
            branch.set(f"{branch.get()} {names[place]}".lstrip())
            how = asked[place]
            try:
                attempt = await (self._write(trouble, how.model) if how.fresh else self._repair(trouble, how))
                facts = {"number": attempt.number + place, "branch": names[place]}
                found: Tried | Stopped = await self._judge(attempt.model_copy(update=facts))
            except Stopped as error:  # The others may still be judged.
                found = error
            return found, time.monotonic() - began

        worked = await all_of([partial(work, place) for place in range(number)], number)
        tried = [found for found, _ in worked if isinstance(found, Tried)]
        best = best_of(tried)
        if best is not None:
            repeated = [self._repeats(each) for each in tried]
            trouble = self._take(best)
            self._repeated = None if None in repeated else repeated[0]
            self.attempts += [each.attempt for each in tried if each is not best]
            self.attempts.sort(key=lambda each: each.number)
        reports = tuple(report_of(*each) for each in zip(names, asked, worked, strict=True))
        won = None if best is None else best.attempt.branch
        self._program.emit(BranchesJudged(self.spec.name, self._branchings, won, why_best(best), reports))
        wanted = [self._wanted.pop(each) for each in asked if each in self._wanted]
        if trouble and (stopped := [found for found, _ in worked if isinstance(found, Stopped)]):
            raise stopped[0]
        if trouble and self._changes < self._program.options.max_test_changes:
            self._next_change = next(iter(wanted), None)
        return trouble

    def _attempt(self, approach: Approach, code: str, reply: Reply | None = None, **more: Any) -> Attempt:
        """What to try next; with problems, it cannot be tried."""
        if reply is not None:
            more |= {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
        return Attempt(number=len(self.attempts) + 1, approach=approach, code=code, **more)

    async def _try(self, attempt: Attempt) -> str:
        """Judge an attempt and go on with it; return what to tell the model, or nothing if all tests passed."""
        return self._take(await self._judge(attempt))

    async def _judge(self, attempt: Attempt) -> Tried:
        """Check code and run its tests."""
        program, spec, number = self._program, self.spec, attempt.number
        findings: tuple[SecurityFinding, ...] = ()
        if not attempt.problems:
            code, notes = program.without_repeats(spec, attempt.code)
            problems, findings = program.check(spec, code)
            attempt = attempt.model_copy(update={"code": code, "notes": notes, "problems": tuple(problems)})
        reason, in_branch = attempt.reason, attempt.branch
        if attempt.problems:
            program.emit(CodeRefused(spec.name, number, attempt.problems, reason, in_branch))
            return Tried(attempt, [], (), refusals(attempt.problems, attempt.notes), attempt.problems)
        language = program.language.name
        program.emit(CodeWritten(spec.name, number, attempt.approach, attempt.code, language, reason, in_branch))
        return replace(await self._test(attempt), findings=findings)

    async def _test(self, attempt: Attempt) -> Tried:
        """Run the tests of the function."""
        program, spec = self._program, self.spec
        results = await program.run(self._runner, spec, attempt.code)
        program.emit(TestsRun(spec.name, attempt.number, tuple(results), attempt.branch))
        passed = sum(result.passed for result in results)
        attempt = attempt.model_copy(update={"passed": passed, "failed": len(results) - passed})
        whole = passed == len(results)
        trouble = "" if whole else failures(results, program.tests_of(spec.name), attempt.notes)
        return Tried(attempt, results, (), trouble, _signature(results))

    def _take(self, tried: Tried) -> str:
        """Go on with an attempt; return its trouble."""
        program, spec, attempt = self._program, self.spec, tried.attempt
        most = max((each.passed for each in self.attempts if not each.problems), default=-1)
        self._repeated, self._failure = self._repeats(tried), tried.failure
        self._code = attempt.code or self._code
        self.attempts.append(attempt)
        if attempt.problems:
            return tried.trouble
        self.results = tried.results
        better = not tried.trouble or attempt.passed > most
        program.tried(spec, attempt.code if better else program.code[spec.name])
        self.findings = tried.findings if better else self.findings
        if not tried.trouble:
            program.passed.add(spec.name)
        return tried.trouble

    def _repeats(self, tried: Tried) -> StopReason | None:
        """Why an attempt, which is not taken yet, brings nothing new; `None` if it does."""
        code = tried.attempt.code.strip() if tried.attempt.approach != "changed test" else ""
        if code and any(each.code.strip() == code for each in self.attempts):
            return StopReason.SAME_CODE
        return StopReason.SAME_ERROR if tried.failure == self._failure else None

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

    async def measure(self, seconds: float) -> None:
        """Measure how strong the tests are."""
        self.strength = await self._program.measure(self._runner, self.spec, seconds)
        self._program.emit(StrengthMeasured(self.spec.name, self.strength))

    async def ask_for_more_tests(self) -> list[FunctionTest]:
        """Let the model write more tests, which kill the mutants that are alive; those that can be used."""
        program, spec, strength = self._program, self.spec, self.strength
        known = program.tests_of(spec.name)
        assert strength is not None
        alive = [f"- {each}" for each in strength.survivors]
        alive += [f"- any change in line {line}, which no test runs" for line in strength.lines_unreached]
        messages = request(
            MORE_TESTS,
            program,
            spec,
            code=program.code[spec.name].strip("\n"),
            tests="\n".join(json.dumps(each.model_dump(mode="json"), ensure_ascii=False) for each in known),
            alive="\n".join(alive[:_MOST_ALIVE]),
        )
        reply = await self._client.ask("tests", spec.name, messages, TestsForm)
        tests, _ = _sound_tests(listed(reply.text, TESTS_KEYS, spec.name) or [], spec, program)
        for test, _ in await vacuous_tests(tests, spec.name, spec.outputs.type, self._runner):
            tests.remove(test)
        names, contents = {each.name for each in known}, {content_key(each) for each in known}
        return [each for each in tests if each.name not in names and content_key(each) not in contents]

    async def take(self, more: Sequence[FunctionTest]) -> bool:
        """Add tests to those that the code passes; return whether there are more now.

        The model has seen the code before it wrote them, so neither they nor the code are believed: if the code fails
        them, the model repairs one of both, once. What is still in doubt then is left out, which a warning says.
        """
        program, spec, name = self._program, self.spec, self.spec.name
        before, code, results, findings = program.tests, program.code[name], self.results, self.findings
        for test in more:
            self._add(test)
        if name in program.existing:  # A test that fails shows a fault of the code or of the test.
            return True
        self.results = await program.run(self._runner, spec, code)
        program.emit(TestsRun(name, len(self.attempts), tuple(self.results)))
        if all(each.passed for each in self.results):
            return True
        failing = {each.test: each.why for each in self.results if not each.passed}
        trouble = failures(self.results, program.tests_of(name))
        try:
            if len(self.attempts) < program.options.max_attempts and not await self._try(await self._repair(trouble)):
                whole = {each: program.code[each] for each in program.in_order(program.code)}
                if all(each.passed for each in await self._runner.run(whole, program.tests)):
                    return True
        except Stopped as error:
            program.warn(f"{name}: the model was not asked for a repair: {error.words}")
        program.tried(spec, code)
        program.tests, self.results, self.findings = before, results, findings
        for test in more:
            if test.name not in failing:
                self._add(test)
            else:
                why = f"{test.name}: {failing[test.name]}"
                program.warn(f"{name}: another test was left out; either it is wrong, or the code: {why}")
        return program.tests is not before

    def _add(self, test: FunctionTest) -> None:
        program, name, reason = self._program, self.spec.name, f"{self.strength}"
        program.tests = changed(program.tests, name, test.name, test, by="the model", reason=reason)
        program.emit(TestChanged(program.tests.changes[-1]))


def _signature(results: list[Verdict]) -> object:
    """A value that is equal for equal failures."""
    failed = [(each.test, each.why, each.error.rpartition("\n")[2]) for each in results if not each.passed]
    return tuple((test, _ADDRESS.sub("0x", why), _ADDRESS.sub("0x", error)) for test, why, error in failed)
