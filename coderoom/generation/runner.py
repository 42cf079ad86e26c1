"""`TestRunner` runs the tests of functions in a sandbox (`make_sandbox`) and computes the results on the host."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from coderoom.errors import GenerationError, RequestError
from coderoom.generation.languages import CodeProblem, Job, Language
from coderoom.generation.languages.javascript import JavaScriptLanguage
from coderoom.generation.languages.python import PythonLanguage
from coderoom.generation.session import (
    Answer,
    Failure,
    TestQueue,
    TestResult,
    TestSession,
    told_error,
    verdict_on,
    why_no_answer,
)
from coderoom.generation.tests import FrozenTests, FunctionTest
from coderoom.generation.values import tag_of
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Sandbox

__all__ = [
    "TestRunner",
    "language_named",
    "make_sandbox",
]

_LANGUAGES: dict[str, Callable[[], Language]] = {"python": PythonLanguage, "javascript": JavaScriptLanguage}


def language_named(language: str | Language) -> Language:
    """The language of a name; a language is given back as it is.

    Raises:
        RequestError: There is none of that name.
    """
    if isinstance(language, Language):
        return language
    if language not in _LANGUAGES:
        raise RequestError(f"There is no language {language!r:.80}; there are {', '.join(_LANGUAGES)}.")
    return _LANGUAGES[language]()


def make_sandbox(wall: str = "auto", language: str | Language = "python", **options: Any) -> Sandbox:
    """A sandbox whose worker has the test harness of a language, so that sessions start faster.

    Args:
        wall: The wall.
        language: The language, or its name.
        options: Further arguments of `Sandbox`, except `preload`.

    Raises:
        RequestError: An argument is wrong.
    """
    return Sandbox(wall, preload=language_named(language).harness(), **options)


_PER_SESSION = 24  # To load a program takes as long as a few tests.
_MOST_PRINTED = 10_000
_JUDGE_SECONDS = 5.0
_MOST_PROBLEMS = 5


@dataclass(frozen=True)
class _Case:
    number: int
    function: str
    test: FunctionTest
    program: Sequence[str]

    def call(self) -> Job:
        """What the process with the code is told: not what the test is called, or of what kind it is."""
        job: dict[str, Any] = {"function": self.function, "inputs": self.test.inputs}
        job.update({"setup": self.test.setup, "functions": self.program} if self.test.setup else {})
        return {**job, "after": True} if self.test.sees_after else job

    def look(self, answer: Answer) -> Job:
        job: Job = {"property": self.test.property, "result": answer.value, "inputs": self.test.inputs}
        return {**job, "after": answer.after} if self.test.sees_after else job


class TestRunner:
    """Runs tests in sessions of a sandbox.

    The functions are loaded once into each session. First, every call is made in a fork of it, many after each other in
    one cell. What came as expected has passed. What did not is done again in the same state, with no other test having
    run there, and that counts; so a test that breaks its surroundings harms no other. Where reading the program shows
    that no call can leave anything behind, calls of a function share a fork, and all that comes counts. Values and
    exceptions come out as data and are compared here; properties are looked at in a session where the functions have
    never been.

    Args:
        sandbox: The sandbox; it needs the engine `cpython`, the policy `open`, and no workspace, since tests would find
            each other's files there.
        timeout: The seconds that each test has.
        sessions: How many sessions work side by side. Each takes one of the places that the sandbox's `concurrency`
            allows, and one more for properties; where there are fewer places, there are fewer sessions.
        language: The language of the functions; `None`: Python.

    Raises:
        RequestError: An argument is wrong.
    """

    __test__ = False

    def __init__(
        self, sandbox: Sandbox, *, timeout: float = 5.0, sessions: int = 2, language: Language | None = None
    ) -> None:
        if sandbox.workspace is not None:
            raise RequestError("Tests would find each other's files: take a Sandbox without workspace=.")
        if not timeout > 0 or sessions < 1:
            raise RequestError(f"timeout={timeout!r} and sessions={sessions!r} have to be above 0.")
        if sandbox.concurrency < 2:
            raise RequestError("Tests need two places, one of them for properties: Sandbox(concurrency=2), or more.")
        self._sandbox = sandbox
        self._timeout = timeout
        self._sessions = min(sessions, sandbox.concurrency // 2)
        # More at a time could have all places, and each wait for another one.
        self._runs = asyncio.Semaphore(sandbox.concurrency // (2 * self._sessions))
        self._language = language if language is not None else PythonLanguage()

    async def run(
        self, implementations: Mapping[str, str], tests: FrozenTests, *, functions: Sequence[str] | None = None
    ) -> list[TestResult]:
        """Run tests.

        Args:
            implementations: The code of each function, each after what it needs.
            tests: The tests.
            functions: The functions whose tests are run; `None`: all of those that have tests.

        Returns:
            A result for each test, in their order.

        Raises:
            GenerationError: The tests are not those that were frozen, or a function has no implementation.
            SandboxUnavailable: The sandbox broke; that says nothing about the code.
            RequestError: The sandbox is closed, or of a kind that cannot be used for this.
        """
        tests.verify()
        wanted = list(tests.tests) if functions is None else list(functions)
        lacking = [name for name in wanted if name not in implementations]
        if lacking:
            raise GenerationError(f"There is no implementation of {', '.join(map(repr, lacking))}.")
        chosen = [(name, test) for name in wanted for test in tests.tests.get(name, ())]
        cases = [_Case(number, *each, list(implementations)) for number, each in enumerate(chosen)]
        if not cases:
            return []
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._runs)
            count = _number_of_benches(len(cases), self._sessions)
            benches = [TestSession(self._sandbox, self._language, implementations) for _ in range(count)]
            for bench in benches:
                stack.push_async_exit(bench)
            await _all([bench.__aenter__() for bench in benches])
            judge = await stack.enter_async_context(_Judge(self._sandbox, self._language, count))
            return await _Run(self, cases, implementations, benches, judge).do()

    async def look(
        self, properties: Sequence[tuple[str, Any, Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> list[bool]:
        """Look at properties of values that are given, where no code under test has ever been.

        Args:
            properties: Properties, each with the result and the inputs that it is about, and the inputs after the
                call, as tagged data; `None`: it says nothing of them.

        Returns:
            Of each, whether it holds; what could not be looked at does not.

        Raises:
            SandboxUnavailable: The sandbox broke.
        """
        if not properties:
            return []
        jobs = [
            {"property": text, "result": result, "inputs": dict(inputs), **({} if after is None else {"after": after})}
            for text, result, inputs, after in properties
        ]
        async with self._runs, _Judge(self._sandbox, self._language, 1) as judge:
            return [answer is not None and answer.value is True for answer in await judge.look_at(jobs)]

    @property
    def language(self) -> Language:
        """The language of the functions."""
        return self._language

    @property
    def timeout(self) -> float:
        """The seconds that each test has."""
        return self._timeout


class _Judge:
    """Looks at properties, where no code under test has ever been; it begins when it is needed."""

    def __init__(self, sandbox: Sandbox, language: Language, count: int) -> None:
        self._benches = [TestSession(sandbox, language, {}) for _ in range(count)]
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for bench in self._benches:
            await bench.close()

    async def look_at(self, jobs: Sequence[Job]) -> list[Answer | None]:
        """Look at many."""
        looks = TestQueue(jobs, [str(job["property"]) for job in jobs])
        if jobs:
            async with self._lock:
                await _all(
                    [bench.work(looks) for bench in self._benches[: _number_of_benches(len(jobs), len(self._benches))]]
                )
        return looks.answers

    async def look(self, job: Job) -> str:
        """Look at one; say why it does not hold."""
        async with self._lock:
            answer, result = await self._benches[0].alone(job, _JUDGE_SECONDS)
        if answer is None:
            return f"the property {job['property']!r} could not be looked at: {why_no_answer(result)}"
        if answer.raised is not None:
            return f"the property {job['property']!r} could not be looked at: {answer.raised!s:.300}"
        return "" if answer.value is True else f"the property {job['property']!r} does not hold"


class _Run:
    """One run of tests."""

    def __init__(
        self,
        runner: TestRunner,
        cases: Sequence[_Case],
        sources: Mapping[str, str],
        benches: Sequence[TestSession],
        judge: _Judge,
    ) -> None:
        self._timeout = runner.timeout
        self._language = runner.language
        self._cases = cases
        self._sources = sources
        self._benches = benches
        self._judge = judge
        self._results: dict[int, TestResult] = {}

    async def do(self) -> list[TestResult]:
        """Run them all."""
        failures: dict[str, Failure] = {}
        for bench in self._benches:
            failures.update(bench.failures)
        for case in self._cases:
            if case.function in failures:
                self._results[case.number] = _not_loaded(case, failures[case.function])
            elif problems := self._language.check_setup(case.test.setup or "", case.program):
                self._results[case.number] = _not_run(case, problems)
        await self._do_many([case for case in self._cases if case.number not in self._results])
        left = deque(case for case in self._cases if case.number not in self._results)
        await _all([self._do_alone(bench, left) for bench in self._benches])
        return [self._results[case.number] for case in self._cases]

    async def _do_many(self, cases: Sequence[_Case]) -> None:
        jobs = TestQueue([case.call() for case in cases], [case.function for case in cases])
        await _all([bench.work(jobs) for bench in self._benches])
        looks: list[tuple[_Case, Answer]] = []
        for case, answer in zip(cases, jobs.answers, strict=True):
            if answer is None:
                continue
            why = verdict_on(case.test, answer, self._language)
            if not why and case.test.expects == "property":
                looks.append((case, answer))
            else:
                self._settle(case, answer, why)
        verdicts = await self._judge.look_at([case.look(answer) for case, answer in looks])
        for (case, answer), verdict in zip(looks, verdicts, strict=True):
            if verdict is not None and verdict.value is True:
                self._settle(case, answer, "")

    def _settle(self, case: _Case, answer: Answer, why: str) -> None:
        """Take an answer that came beside others, if it counts."""
        if why and not (self._benches[0].is_stateless(case.call()) and _is_whole(answer)):
            return
        raised = answer.raised
        error = ""
        if raised is not None:
            error = told_error(raised, self._benches[0].cells, self._sources) if why else str(raised)
        self._results[case.number] = TestResult(
            function=case.function,
            test=case.test.name,
            passed=not why,
            why=why,
            actual_output=answer.value,
            arguments_after=answer.after,
            outcome=Outcome.OK if raised is None else Outcome.ERROR,
            error=error,
            duration=answer.seconds,
            peak_memory=answer.peak,
            stdout=answer.stdout[:_MOST_PRINTED],
        )

    async def _do_alone(self, bench: TestSession, left: deque[_Case]) -> None:
        while left:
            case = left.popleft()
            answer, result = await bench.alone(case.call(), self._timeout)
            self._results[case.number] = await self._judged(case, answer, result, bench)

    async def _judged(
        self, case: _Case, answer: Answer | None, result: ExecutionResult, bench: TestSession
    ) -> TestResult:
        raised = None if answer is None else answer.raised
        if answer is None:
            why = why_no_answer(result)
        else:
            why = verdict_on(case.test, answer, self._language)
            if not why and case.test.expects == "property":
                why = await self._judge.look(case.look(answer))
        sources = {**self._sources, "setup": case.test.setup or ""}
        return TestResult(
            function=case.function,
            test=case.test.name,
            passed=answer is not None and not why,
            actual_output=None if answer is None else answer.value,
            arguments_after=None if answer is None else answer.after,
            why=why,
            outcome=Outcome.ERROR if raised is not None else result.outcome,
            error=told_error(raised, bench.cells, sources),
            duration=result.duration,
            peak_memory=result.peak_memory,
            stdout=result.stdout[:_MOST_PRINTED],
        )


def _is_whole(answer: Answer) -> bool:
    """Whether it is what would come of the test alone, which has more room for its answer and for its call."""
    if answer.raised is not None:
        return answer.raised.base not in ("MemoryError", "RecursionError")
    return tag_of(answer.value)[0] != "$opaque"


def _number_of_benches(jobs: int, most: int) -> int:
    return min(most, -(-jobs // _PER_SESSION))


def _not_loaded(case: _Case, failure: Failure) -> TestResult:
    return TestResult(
        function=case.function,
        test=case.test.name,
        passed=False,
        why=failure.why,
        outcome=failure.outcome,
        error=failure.error,
    )


def _not_run(case: _Case, problems: Sequence[CodeProblem]) -> TestResult:
    why = f"setup: {'; '.join(map(str, problems[:_MOST_PROBLEMS]))}"
    return TestResult(function=case.function, test=case.test.name, passed=False, why=why, outcome=Outcome.REJECTED)


async def _all(work: Sequence[Any]) -> None:
    """Wait for all of it; the first that fails ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except BaseExceptionGroup as error:
        raise error.exceptions[0] from None
