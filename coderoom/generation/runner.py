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
    error_text,
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
    """The language with a name; a `Language` is returned unchanged.

    Raises:
        RequestError: There is no language with that name.
    """
    if isinstance(language, Language):
        return language
    if language not in _LANGUAGES:
        raise RequestError(f"Unknown language {language!r:.80}; known are {', '.join(_LANGUAGES)}.")
    return _LANGUAGES[language]()


def make_sandbox(wall: str = "auto", language: str | Language = "python", **options: Any) -> Sandbox:
    """Make a sandbox in whose warm worker the test harness of a language is preloaded, so that tests start faster.

    Args:
        wall: The wall (isolation backend).
        language: The language or its name.
        options: Further arguments of `Sandbox`, except `preload`.

    Raises:
        RequestError: An argument is invalid.
    """
    return Sandbox(wall, preload=language_named(language).harness(), **options)


_PER_SESSION = 24  # Loading a program takes as long as a few tests, so a session needs enough of them.
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
        """The job for the process with the code. It has neither the name nor the kind of the test."""
        job: dict[str, Any] = {"function": self.function, "inputs": self.test.inputs}
        job.update({"setup": self.test.setup, "functions": self.program} if self.test.setup else {})
        return {**job, "after": True} if self.test.sees_after else job

    def look(self, answer: Answer) -> Job:
        job: Job = {"property": self.test.property, "result": answer.value, "inputs": self.test.inputs}
        return {**job, "after": answer.after} if self.test.sees_after else job


class TestRunner:
    """Runs tests in sessions of a sandbox.

    The functions are loaded once into each session. First, each call runs in a fork of the session, many of them in one
    cell. Calls with the expected result have passed. Each other call is repeated alone, from the same clean state, and
    that result counts; so a test that breaks its environment affects no other. If the source proves that no call leaves
    anything behind, the calls of a function share a fork, and all results count. Values and exceptions leave the
    sandbox as data and are compared on the host. Properties are evaluated in a session that never loaded the functions.

    Args:
        sandbox: The sandbox. It needs the engine `cpython`, the policy `open`, and no workspace, in which tests would
            find each other's files.
        timeout: The time limit of each test in seconds.
        sessions: The number of parallel sessions. Each needs two of the sandbox's `concurrency`, the second one for
            properties; there are fewer sessions if that is too low.
        language: The language of the functions; `None`: Python.

    Raises:
        RequestError: An argument is invalid.
    """

    __test__ = False

    def __init__(
        self, sandbox: Sandbox, *, timeout: float = 5.0, sessions: int = 2, language: Language | None = None
    ) -> None:
        if sandbox.workspace is not None:
            raise RequestError("Tests would find each other's files: take a Sandbox without workspace=.")
        if not timeout > 0 or sessions < 1:
            raise RequestError(f"timeout={timeout!r} and sessions={sessions!r} must be above 0.")
        if sandbox.concurrency < 2:
            raise RequestError(
                "Tests need two concurrent sessions, one of them for properties: Sandbox(concurrency=2)."
            )
        self._sandbox = sandbox
        self._timeout = timeout
        self._sessions = min(sessions, sandbox.concurrency // 2)
        # More runs at a time could deadlock: all sessions taken, and each run waiting for another one.
        self._runs = asyncio.Semaphore(sandbox.concurrency // (2 * self._sessions))
        self._language = language if language is not None else PythonLanguage()

    async def run(
        self, implementations: Mapping[str, str], tests: FrozenTests, *, functions: Sequence[str] | None = None
    ) -> list[TestResult]:
        """Run tests.

        Args:
            implementations: The code of each function, dependencies first.
            tests: The tests.
            functions: The functions whose tests are run; `None`: all with tests.

        Returns:
            A result for each test, in order.

        Raises:
            GenerationError: The tests do not match their hash, or a function has no implementation.
            SandboxUnavailable: The sandbox broke, which says nothing about the code.
            RequestError: The sandbox is closed or unsuitable.
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
            count = _number_of_sessions(len(cases), self._sessions)
            sessions = [TestSession(self._sandbox, self._language, implementations) for _ in range(count)]
            for session in sessions:
                stack.push_async_exit(session)
            await _all([session.__aenter__() for session in sessions])
            judge = await stack.enter_async_context(_Judge(self._sandbox, self._language, count))
            return await _Run(self, cases, implementations, sessions, judge).do()

    async def look(
        self, properties: Sequence[tuple[str, Any, Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> list[bool]:
        """Evaluate properties of given values, in a session that never loaded code under test.

        Args:
            properties: Properties, each with the result, the inputs, and the inputs after the call (`None` if it does
                not use them), as tagged data.

        Returns:
            For each, whether it holds; false if it could not be evaluated.

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
        """The time limit of each test in seconds."""
        return self._timeout


class _Judge:
    """Evaluates properties in sessions that never load code under test; they start when needed."""

    def __init__(self, sandbox: Sandbox, language: Language, count: int) -> None:
        self._sessions = [TestSession(sandbox, language, {}) for _ in range(count)]
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self._sessions:
            await session.close()

    async def look_at(self, jobs: Sequence[Job]) -> list[Answer | None]:
        """Evaluate many properties."""
        looks = TestQueue(jobs, [str(job["property"]) for job in jobs])
        if jobs:
            async with self._lock:
                await _all(
                    [
                        session.work(looks)
                        for session in self._sessions[: _number_of_sessions(len(jobs), len(self._sessions))]
                    ]
                )
        return looks.answers

    async def look(self, job: Job) -> str:
        """Evaluate one property; return why it does not hold."""
        async with self._lock:
            answer, result = await self._sessions[0].alone(job, _JUDGE_SECONDS)
        if answer is None:
            return f"the property {job['property']!r} could not be evaluated: {why_no_answer(result)}"
        if answer.raised is not None:
            return f"the property {job['property']!r} could not be evaluated: {answer.raised!s:.300}"
        return "" if answer.value is True else f"the property {job['property']!r} does not hold"


class _Run:
    """One run of tests."""

    def __init__(
        self,
        runner: TestRunner,
        cases: Sequence[_Case],
        sources: Mapping[str, str],
        sessions: Sequence[TestSession],
        judge: _Judge,
    ) -> None:
        self._timeout = runner.timeout
        self._language = runner.language
        self._cases = cases
        self._sources = sources
        self._sessions = sessions
        self._judge = judge
        self._results: dict[int, TestResult] = {}

    async def do(self) -> list[TestResult]:
        """Run all tests."""
        failures: dict[str, Failure] = {}
        for session in self._sessions:
            failures.update(session.failures)
        for case in self._cases:
            if case.function in failures:
                self._results[case.number] = _not_loaded(case, failures[case.function])
            elif problems := self._language.check_setup(case.test.setup or "", case.program):
                self._results[case.number] = _not_run(case, problems)
        await self._do_many([case for case in self._cases if case.number not in self._results])
        left = deque(case for case in self._cases if case.number not in self._results)
        await _all([self._do_alone(session, left) for session in self._sessions])
        return [self._results[case.number] for case in self._cases]

    async def _do_many(self, cases: Sequence[_Case]) -> None:
        jobs = TestQueue([case.call() for case in cases], [case.function for case in cases])
        await _all([session.work(jobs) for session in self._sessions])
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
        """Turn an answer from a shared cell into a result, if it counts."""
        if why and not (self._sessions[0].is_stateless(case.call()) and _is_whole(answer)):
            return
        raised = answer.raised
        error = ""
        if raised is not None:
            error = error_text(raised, self._sessions[0].cells, self._sources) if why else str(raised)
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

    async def _do_alone(self, session: TestSession, left: deque[_Case]) -> None:
        while left:
            case = left.popleft()
            answer, result = await session.alone(case.call(), self._timeout)
            self._results[case.number] = await self._judged(case, answer, result, session)

    async def _judged(
        self, case: _Case, answer: Answer | None, result: ExecutionResult, session: TestSession
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
            error=error_text(raised, session.cells, sources),
            duration=result.duration,
            peak_memory=result.peak_memory,
            stdout=result.stdout[:_MOST_PRINTED],
        )


def _is_whole(answer: Answer) -> bool:
    """Whether the test run alone, which has more memory and space for its answer, would give the same answer."""
    if answer.raised is not None:
        return answer.raised.base not in ("MemoryError", "RecursionError")
    return tag_of(answer.value)[0] != "$opaque"


def _number_of_sessions(jobs: int, most: int) -> int:
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
    """Wait for all; the first failure cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except BaseExceptionGroup as error:
        raise error.exceptions[0] from None
