"""`Judge` runs the tests of functions in a sandbox (`make_sandbox`) and computes the verdicts on the host."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from coderoom.errors import GenerationError, RequestError
from coderoom.judge.cases import FrozenTests
from coderoom.judge.harness import Harness, Job
from coderoom.judge.python import PythonHarness
from coderoom.judge.run import PropertySessions, TestRun, Trial
from coderoom.judge.session import Answer, TestSession, Verdict
from coderoom.sandbox import Limits, Sandbox


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


class Judge:
    """Runs tests in sessions of a sandbox.

    The functions are loaded once into each session. Each call runs in a fork of the session, many of them in one cell;
    calls of functions that provably leave nothing behind share a fork. Values and exceptions leave the sandbox as data
    and are compared on the host. Properties are evaluated in a session that never loaded the functions.

    A test passes only if all its runs pass. A call without the expected result is repeated alone in a clean state; if
    it passes there, the test is not repeatable and fails. Once all tests have passed, they are run again as often as
    its answers can vary, and in order in processes that never loaded the program before.

    Args:
        sandbox: The sandbox. It needs the engine `cpython`, the policy `open`, and no workspace, in which tests would
            find each other's files.
        timeout: The time limit of each test in seconds.
        sessions: The number of parallel sessions. Each needs two of the sandbox's `concurrency`, the second one for
            properties; there are fewer sessions if that is too low.
        language: The language of the functions; `None`: Python.
        strict: Whether a test fails that passes alone, but not after the other tests in one process. Otherwise its
            result has a warning.

    Attributes:
        language: The language of the functions.

    Raises:
        RequestError: An argument is invalid.
    """

    __test__ = False  # Not for pytest, under the name `coderoom.generation.TestRunner`.

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        timeout: float = 5.0,
        sessions: int = 2,
        language: Harness | None = None,
        strict: bool = False,
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
        self._strict = strict
        self._sessions = min(sessions, sandbox.concurrency // 2)
        # More runs at a time could deadlock: all sessions taken, and each run waiting for another one.
        self._runs = asyncio.Semaphore(sandbox.concurrency // (2 * self._sessions))
        self._known: dict[object, Answer] = {}
        self.language = language if language is not None else PythonHarness()

    async def run(
        self,
        implementations: Mapping[str, str],
        tests: FrozenTests,
        *,
        functions: Sequence[str] | None = None,
        final: bool = True,
    ) -> list[Verdict]:
        """Run tests.

        Args:
            implementations: The code of each function, dependencies first.
            tests: The tests.
            functions: The functions whose tests are run; `None`: all with tests.
            final: Whether code whose answers may vary is run in many new processes; otherwise in one.

        Returns:
            A verdict on each test, in order.

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
        program = list(implementations)
        cases = [Trial(name, test, program) for name in wanted for test in tests.tests.get(name, ())]
        if not cases:
            return []
        how = self._sessions, self._timeout, self._strict, final, self._known
        run = TestRun(self._sandbox, self.language, cases, implementations, *how)
        async with self._runs:
            return await run.do()

    async def why_not_loaded(self, implementations: Mapping[str, str]) -> str:
        """Why functions cannot be loaded; empty if they can.

        Args:
            implementations: The code of each function, dependencies first.

        Raises:
            SandboxUnavailable: The sandbox broke.
        """
        session = TestSession(self._sandbox, self.language, implementations)
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
        sessions = PropertySessions(self._sandbox, self.language, 1, self._known)
        async with self._runs, contextlib.aclosing(sessions):
            return [answer is not None and answer.value is True for answer in await sessions.look_at(jobs)]
