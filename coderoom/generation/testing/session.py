"""A session with a program loaded in it, and jobs that each find it in its initial state."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.generation.languages.base import UNTIDY, Job, Language
from coderoom.generation.testing.answers import Answer, read_answer
from coderoom.generation.testing.harness import make_harness
from coderoom.generation.testing.results import told_error
from coderoom.outcome import Outcome
from coderoom.sandbox import Checkpoint, ExecutionResult, Sandbox, Session

__all__ = ["Failure", "TestQueue", "TestSession"]

_LOAD_SECONDS = 30.0
_SMALLEST, _LARGEST = 16, 128  # So many jobs are done between two rollbacks.
_FAST = 0.5  # What takes longer has the session to itself.
_WHOLE = 0.5
_SLACK = 1.0
_LARGE = 32_768  # What is larger has the session to itself.
_LEAST = 65_536


@dataclass(frozen=True)
class Failure:
    """Why the code of a function is not there.

    Attributes:
        outcome: How the code ended.
        why: What is to be said of it.
        error: The traceback.
    """

    outcome: Outcome
    why: str
    error: str = ""


class TestQueue:
    """TestQueue that several benches share, and what came of them.

    Args:
        jobs: The jobs.
        keys: What each is about; of what has been slow once, nothing else is taken.
    """

    def __init__(self, jobs: Sequence[Job], keys: Sequence[str]) -> None:
        self.jobs = list(jobs)
        self.answers: list[Answer | None] = [None] * len(jobs)
        self._keys = list(keys)
        self._left = deque(range(len(jobs)))
        self._slow: set[str] = set()

    def take(self) -> list[int]:
        """The numbers of the next jobs; fewer towards the end, so that nobody has nothing to do."""
        taken: list[int] = []
        count = max(_SMALLEST, min(_LARGEST, len(self._left) // 4))
        while self._left and len(taken) < count:
            number = self._left.popleft()
            if self._keys[number] not in self._slow:
                taken.append(number)
        return taken

    def give(self, taken: Sequence[int], answers: Sequence[Answer | None]) -> None:
        """Take answers; jobs that were not come to are there to be taken again."""
        for number, answer in zip(taken, answers, strict=False):
            self.answers[number] = answer
            if answer is None:
                self._slow.add(self._keys[number])
        if answers:
            self._left.extendleft(reversed(taken[len(answers) :]))


class TestSession:
    """A session with a program in it.

    Args:
        sandbox: Where it runs.
        language: The program's language.
        sources: The code of each function, in the order in which it is loaded.
    """

    def __init__(self, sandbox: Sandbox, language: Language, sources: Mapping[str, str]) -> None:
        self._sandbox = sandbox
        self._language = language
        self._sources = sources
        self._session: Session | None = None
        self._mark: Checkpoint | None = None
        self.cells: dict[str, str] = {}
        self.failures: dict[str, Failure] = {}
        if sandbox.limits.value_bytes < _LEAST:
            raise RequestError(f"Tests need Sandbox(limits=Limits(value_bytes={_LEAST:,})), or more.")
        self._longest = sandbox.limits.value_bytes * 9 // 20  # As text in JSON it may be twice as long.

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the session."""
        session, self._session, self._mark = self._session, None, None
        if session is not None:
            await session.close()

    async def work(self, jobs: TestQueue) -> None:
        """Do jobs, many in one cell, each as if it were the only one.

        What comes of it is to be believed only where it is what is expected, or where all that is loaded is stateless.
        All else may be the doing of another job, and is to be asked for again with `alone`.
        """
        while taken := jobs.take():
            jobs.give(taken, await self._several([jobs.jobs[number] for number in taken]))

    def is_stateless(self, job: Job) -> bool:
        """Whether the job can leave nothing behind for the next one."""
        # Also of what failed: some of it may be there.
        return self._language.is_stateless(self._sources.values(), job)

    async def alone(self, job: Job, seconds: float) -> tuple[Answer | None, ExecutionResult]:
        """Do a job in a state that no other job has had to do with."""
        cell = self._language.run_alone(job, self._longest)
        result = await self._run(cell, seconds)
        if result.outcome is Outcome.OK and result.value == UNTIDY:
            await self.close()
            result = await self._run(cell, seconds)
        sound = result.outcome is Outcome.OK and result.value_is_data
        return (read_answer(result.value, self._longest) if sound else None), result

    async def _several(self, jobs: Sequence[Job]) -> list[Answer | None]:
        largest = min(_LARGE, self._longest // 4)
        stateless = all(map(self.is_stateless, jobs))
        cell = self._language.run(jobs, _FAST, _WHOLE, largest, 2 * self._longest, stateless)
        result = await self._run(cell, _WHOLE + _FAST + _SLACK)
        told = result.value if result.outcome is Outcome.OK and result.value_is_data else None
        if not isinstance(told, list):
            return []
        return [_read_one(each, largest) for each in told[: len(jobs)]]

    async def _run(self, cell: str, seconds: float) -> ExecutionResult:
        """Run a cell in the state in which every test begins."""
        if self._session is None:
            await self._open()
        try:
            return await self._run_there(cell, seconds)
        except RequestError:  # Code has broken what is gone back to.
            await self._open()
            return await self._run_there(cell, seconds)

    async def _run_there(self, cell: str, seconds: float) -> ExecutionResult:
        assert self._session is not None
        assert self._mark is not None
        # Also the first time: the process that a checkpoint was made of has it for a child, and its forks have none.
        await self._session.rollback(self._mark)
        return await self._session.run(cell, timeout=seconds)

    async def _open(self) -> None:
        while not await self._load():
            pass

    async def _load(self) -> bool:
        """Load everything that can be loaded; whether it is all there."""
        await self.close()
        session = self._session = self._sandbox.session()
        harness = make_harness(self._language.harness(), self._sandbox.preload)
        result = await session.run(harness + self._language.load())
        if not result.success:
            raise RequestError(
                f"Functions in {self._language.name} cannot be tested in this sandbox; it takes the engine cpython and "
                f"the policy open: {result.error}"
            )
        if result.value_is_data and isinstance(result.value, str):
            raise MissingDependencyError(
                f"Functions in {self._language.name} cannot be tested in this sandbox: {result.value}"
            )
        self.cells = {"<setup>": "setup"}
        for number, (function, source) in enumerate(self._without_failures().items(), 2):
            cell = self._language.define(function, source)
            result = await session.run(cell, timeout=_LOAD_SECONDS)
            self.cells[f"<cell {number}>"] = function
            failure = self._failure(result)
            if failure is not None:
                self.failures[function] = failure
                if result.state_lost:
                    return False
        return await self._settle(session)

    async def _settle(self, session: Session) -> bool:
        """Keep the state in which every test begins."""
        result = await session.run(self._language.begin(), timeout=_LOAD_SECONDS)
        try:
            if result.success and not result.state_lost:
                self._mark = await session.checkpoint()
                return True
        except RequestError:  # Code has broken it.
            pass
        if not self._without_failures():
            raise RequestError(f"Functions cannot be tested in this sandbox: {result.error}")
        failure = Failure(result.outcome, "Once all functions were loaded, the program could not be run any more.")
        self.failures.update(dict.fromkeys(self._without_failures(), failure))
        return False

    def _failure(self, result: ExecutionResult) -> Failure | None:
        """Why code that was to be loaded is not there; `None` if it is."""
        if result.success and not result.state_lost:
            told = read_answer(result.value, self._longest) if result.value_is_data else None
            if told is None or told.raised is None:
                return None
            error = told_error(told.raised, self.cells, self._sources)
            return Failure(Outcome.ERROR, f"The code could not be loaded: {told.raised}", error)
        if result.error is None:
            return Failure(result.outcome, "The code ended its own process while it was loaded.")
        why = f"The code could not be loaded: {result.error.type}: {result.error.message}"
        return Failure(result.outcome, why, str(result.error))

    def _without_failures(self) -> dict[str, str]:
        return {name: source for name, source in self._sources.items() if name not in self.failures}


def _read_one(told: Any, largest: int) -> Answer | None:
    if not isinstance(told, list) or len(told) != 4:
        return None
    return read_answer(told[0], 2 * largest, told[1:])
