"""`Judge` runs tests against code and computes the verdicts on the host. Each kind of tests has a module of its own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeAlias

from coderoom.errors import GenerationError, RequestError
from coderoom.judge.apart import TestCode, TestFiles, judge_apart, judge_suite, sandbox_apart, sandbox_for_suites
from coderoom.judge.case_runs import PropertySessions, TestRun, Trial
from coderoom.judge.cases import FrozenTests
from coderoom.judge.harness import Harness, Job, PythonHarness
from coderoom.judge.known_calls import KnownCalls, find_calls, judge_by_calls
from coderoom.judge.programs import Programs, judge_programs, sandbox_for_programs
from coderoom.judge.repository import Repository, files_that_count, judge_repository
from coderoom.judge.session import (
    Answer,
    TestSession,
    Verdict,
)
from coderoom.judge.strength import Strength, measure_files
from coderoom.sandbox import Limits, Sandbox
from coderoom.sandbox.remote import at_server


def make_sandbox(wall: str = "auto", language: Harness | None = None, **options: Any) -> Sandbox:
    """Make a sandbox in whose warm worker the test harness of a language is preloaded, so that tests start faster.

    Args:
        wall: The wall (isolation backend).
        language: The language; `None`: Python.
        options: Further arguments of `Sandbox`, except `preload`.

    Raises:
        RequestError: An argument is invalid.
    """
    options.setdefault("limits", Limits(value_bytes=_VALUE_BYTES))
    return Sandbox(wall, preload=(language or PythonHarness()).harness(), **options)


_VALUE_BYTES = 8 * 1024 * 1024  # Enough for a property of 100,000 items or a megabyte of text.

Tests: TypeAlias = FrozenTests | TestCode | TestFiles | Programs | Repository
"""The kinds of tests: cases of functions, the code of a test, files for pytest or unittest, inputs of a program."""


class Judge:
    """Runs tests against code. What the tests expect never enters the process of the code.

        async with Judge() as judge:
            verdicts = await judge.run({"shop.py": code}, TestFiles(files={"test_shop.py": tests}))

    Cases of functions run in sessions of a sandbox. The functions are loaded once into each session. Each call runs in
    a fork of the session, many of them in one cell; calls of functions that provably leave nothing behind share a fork.
    Values and exceptions leave the sandbox as data and are compared on the host. Properties are evaluated in a session
    that never loaded the functions.

    A case passes only if all its runs pass. A call without the expected result is repeated alone in a clean state; if
    it passes there, the test is not repeatable and fails. Once all tests have passed, they are run again as often as
    its answers can vary, and in order in processes that never loaded the program before.

    Args:
        sandbox: The sandbox; `None`: one that fits, which starts with the first tests and ends with `async with` or
            `close`. It needs the engine `cpython`, the policy `open`, and no workspace, in which tests would find each
            other's files.
        wall: The wall (isolation backend) of its own sandbox.
        timeout: The time limit in seconds of each test, and of all tests of files; `None`: 5 for cases, 10 for code of
            a test and for programs, and 300 for files.
        sessions: The number of parallel sessions. Each needs two of the sandbox's `concurrency`, the second one for
            what the tests expect; there are fewer sessions if that is too low.
        language: The language of the functions; `None`: Python.
        strict: Whether a case fails that passes alone, but not after the other tests in one process. Otherwise its
            result has a warning.
        at_once: How many calls of `run` are at work at a time in its own sandbox, each with as many sessions.
        options: More arguments of `Sandbox` for its own one, such as `packages`.
        server: The URL of a server that has its own sandbox; `None`: it is here.

    Attributes:
        language: The language of the functions.
        wall: The wall of its own sandbox.
        server: The server of its own sandbox.

    Raises:
        RequestError: An argument is invalid.
    """

    __test__ = False  # Not for pytest, under the name `coderoom.generation.TestRunner`.

    def __init__(
        self,
        sandbox: Sandbox | None = None,
        *,
        wall: str = "auto",
        timeout: float | None = None,
        sessions: int = 2,
        language: Harness | None = None,
        strict: bool = False,
        server: str | None = None,
        at_once: int = 1,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if sandbox is not None and sandbox.workspace is not None:
            raise RequestError("Tests would find each other's files: take a Sandbox without workspace=.")
        if not (timeout is None or timeout > 0) or sessions < 1 or at_once < 1:
            raise RequestError(f"{timeout=}, {sessions=} and {at_once=} must be above 0.")
        concurrency = 2 * sessions * at_once if sandbox is None else sandbox.concurrency
        if concurrency < 2:
            raise RequestError(
                "Tests need two concurrent sessions, one of them for properties: Sandbox(concurrency=2)."
            )
        self._given = sandbox
        self.wall, self.server = wall, server
        self._options = {**at_server(server), **(options or {})}
        self._own: dict[Callable[..., Sandbox], Sandbox] = {}
        self._timeout = timeout
        self._strict = strict
        self._sessions, self._concurrency = min(sessions, concurrency // 2), concurrency
        # More runs at a time could deadlock: all sessions taken, and each run waiting for another one.
        self._runs = asyncio.Semaphore(concurrency // (2 * self._sessions))
        self._pairs = asyncio.Semaphore(concurrency // 2) if sandbox is None else self._runs
        self._known: dict[object, Answer] = {}
        self._calls: dict[bytes, KnownCalls] = {}
        self.language = language if language is not None else PythonHarness()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End its own sandboxes."""
        while self._own:
            await self._own.popitem()[1].close()

    def _sandbox(self, make: Callable[..., Sandbox], *more: Any) -> Sandbox:
        if self._given is not None:
            return self._given
        if make not in self._own:
            self._own[make] = make(self.wall, *more, **self._options, concurrency=self._concurrency)
        return self._own[make]

    async def run(
        self,
        code: Mapping[str, str],
        tests: Tests,
        *,
        functions: Sequence[str] | None = None,
        final: bool = True,
        shared: bool = False,
        timeout: float | None = None,
        is_reference: bool = False,
    ) -> list[Verdict]:
        """Run tests.

        Args:
            code: For `FrozenTests` the code of each function, dependencies first; otherwise the files of the code by
                name. The suffix of a program's file says what its language is.
            tests: The tests. Their type says of which kind they are.
            functions: The functions whose cases are run; `None`: all with tests.
            final: Whether code whose answers to cases may vary is run in many new processes; otherwise in one.
            shared: Whether tests that cannot be separated from the code get a verdict from one process. It says
                `can_be_fooled`.
            timeout: Another time limit than the judge's, but for cases.
            is_reference: Whether the code is known to be right, and may share a room with the tests. If it passes
                `TestCode`, other code is judged faster, by the calls that the test has made.

        Returns:
            A verdict on each test, in order; a single one without a name if they could not be run.

        Raises:
            GenerationError: The cases do not match their hash, or a function has no implementation.
            SandboxUnavailable: The sandbox broke, which says nothing about the code.
            RequestError: The sandbox is closed or unsuitable, or the code or the tests cannot be run.
        """
        if isinstance(tests, FrozenTests):
            return await self._run_cases(code, tests, functions, final)
        return await self._run_files(code, tests, timeout, shared, is_reference)

    async def _run_files(
        self,
        code: Mapping[str, str],
        tests: TestCode | TestFiles | Programs | Repository,
        timeout: float | None,
        shared: bool = False,
        is_reference: bool = False,
        confirm: bool = True,
    ) -> list[Verdict]:
        """Run tests of another kind than cases; see `run` and `judge_apart`."""
        how: dict[str, Any] = {"shared": shared, "confirm": confirm}
        if isinstance(tests, TestCode):
            return [await self._run_code(code, tests, timeout or self._timeout or _SECONDS_FOR_CODE, is_reference, how)]
        async with self._pairs:
            if isinstance(tests, Repository):
                timeout = timeout or self._timeout or _SECONDS_FOR_COMMAND
                return await judge_repository(code, tests, wall=self.wall, server=self.server, timeout=timeout)
            if isinstance(tests, Programs):
                sandbox = self._sandbox(sandbox_for_programs)
                return await judge_programs(sandbox, code, tests, timeout=timeout or self._timeout or _SECONDS_FOR_CODE)
            timeout = timeout or self._timeout or _SECONDS_FOR_FILES
            return await judge_suite(self._sandbox(sandbox_for_suites), code, tests, timeout=timeout, **how)

    async def _run_code(
        self, code: Mapping[str, str], test: TestCode, timeout: float, is_reference: bool, how: Mapping[str, Any]
    ) -> Verdict:
        sandbox = self._sandbox(sandbox_apart)
        key = hashlib.sha256(test.model_dump_json().encode()).digest()
        calls = self._calls.get(key)
        if calls is not None:
            verdict = await judge_by_calls(sandbox, code, test, calls, turn=self._pairs, timeout=timeout)
            if verdict is not None:
                return verdict
        async with self._pairs:
            if is_reference and calls is None:
                calls = await find_calls(sandbox, code, test, timeout=timeout)
                if calls is not None:
                    self._calls[key] = calls
                    return Verdict(passed=True)
            return await judge_apart(sandbox, code, test, timeout=timeout, **how)

    async def _run_cases(
        self, implementations: Mapping[str, str], tests: FrozenTests, functions: Sequence[str] | None, final: bool
    ) -> list[Verdict]:
        tests.verify()
        wanted = list(tests.tests) if functions is None else list(functions)
        lacking = [name for name in wanted if name not in implementations]
        if lacking:
            raise GenerationError(f"There is no implementation of {', '.join(map(repr, lacking))}.")
        program = list(implementations)
        cases = [Trial(name, test, program) for name in wanted for test in tests.tests.get(name, ())]
        if not cases:
            return []
        how = self._sessions, self._timeout or _SECONDS_FOR_CASE, self._strict, final, self._known
        run = TestRun(self._sandbox(make_sandbox, self.language), self.language, cases, implementations, *how)
        async with self._runs:
            return await run.do()

    async def strength(
        self,
        code: Mapping[str, str],
        tests: Tests,
        *,
        functions: Sequence[str] | None = None,
        most: int = 50,
        seconds: float = 10.0,
    ) -> Strength:
        """Measure how strong tests are that code passes: how many mutants of the code they kill.

        A mutant runs with the cases of its function in a fork, or shares one if it leaves nothing behind. With tests of
        other kinds it runs as any other code does, which takes as long as `run`.

        Args:
            code: As for `run`.
            tests: The tests.
            functions: The functions that are measured, each with its own cases; `None`: all with cases.
            most: The most mutants of each function, or of all files.
            seconds: The seconds after which no more mutants are tried.

        Returns:
            The evidence; there is none for other languages than Python.

        Raises:
            GenerationError: The cases do not match their hash.
            SandboxUnavailable: The sandbox broke.
            RequestError: As for `run`.
        """
        if not isinstance(tests, FrozenTests):

            async def run(files: Mapping[str, str], timeout: float | None) -> list[Verdict]:
                return await self._run_files(files, tests, timeout, confirm=False)

            if isinstance(tests, Repository):
                code = files_that_count(code, tests)
            return await measure_files(code, run, most=most, seconds=seconds, at_once=self._sessions)
        tests.verify()
        if self.language.name != "python":
            return Strength(unavailable=f"there are no mutants of {self.language.name}")
        program, found = list(code), Strength()
        wanted = [name for name in (functions or tests.tests) if tests.tests.get(name) and name in code]
        for number, name in enumerate(wanted):
            cases = [Trial(name, test, program) for test in tests.tests[name]]
            how = self._sessions, self._timeout or _SECONDS_FOR_CASE, self._strict, False, self._known
            trials = TestRun(self._sandbox(make_sandbox, self.language), self.language, cases, code, *how)
            began = time.monotonic()
            async with self._runs:
                found += await trials.strength(name, len(wanted) > 1, most, seconds / (len(wanted) - number))
            seconds -= time.monotonic() - began
        return found

    async def why_not_loaded(self, implementations: Mapping[str, str]) -> str:
        """Why functions cannot be loaded; empty if they can.

        Args:
            implementations: The code of each function, dependencies first.

        Raises:
            SandboxUnavailable: The sandbox broke.
        """
        session = TestSession(self._sandbox(make_sandbox, self.language), self.language, implementations)
        async with self._runs, contextlib.aclosing(session):
            await session.open()
            return "; ".join(each.why for each in session.failures.values())

    async def look(self, jobs: Sequence[Job]) -> list[bool]:
        """Evaluate properties in a session that never loaded code under test.

        Args:
            jobs: A job for each evaluation.

        Returns:
            For each, whether the property holds; false if it could not be evaluated.

        Raises:
            SandboxUnavailable: The sandbox broke.
        """
        if not jobs:
            return []
        sessions = PropertySessions(self._sandbox(make_sandbox, self.language), self.language, 1, self._known)
        async with self._runs, contextlib.aclosing(sessions):
            return [answer is not None and answer.value is True for answer in await sessions.look_at(jobs)]


_SECONDS_FOR_CASE, _SECONDS_FOR_CODE, _SECONDS_FOR_FILES, _SECONDS_FOR_COMMAND = 5.0, 10.0, 300.0, 600.0
