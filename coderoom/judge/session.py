"""A session with a program in it: it runs the jobs of tests, reads their answers and judges them for `Judge`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from coderoom._util.html import lines_html, shown_html
from coderoom._util.tasks import aside
from coderoom._util.text import encodable, visible
from coderoom.errors import MissingDependencyError, RequestError
from coderoom.judge.cases import Data, FunctionTest
from coderoom.judge.harness import Harness, Job, call_inside, make_harness, run_inside
from coderoom.judge.values import is_sound, show
from coderoom.outcome import Outcome
from coderoom.sandbox import Checkpoint, ExecutionResult, Sandbox, Session

_LONGEST = 4_000
_WAITS = 4  # On a busy machine, code that works for a second may take so many.


@dataclass(frozen=True)
class Raised:
    """An exception, as the process reported it.

    `types` are the names of its class and base classes, without those of the language itself, of which `base` is the
    nearest. `trace` has file, line and function of its frames.
    """

    types: tuple[str, ...]
    base: str
    message: str
    trace: tuple[tuple[str, int, str], ...] = ()

    @property
    def name(self) -> str:
        """The name of its class."""
        return self.types[0] if self.types else self.base

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


@dataclass(frozen=True)
class Answer:
    """The answer to a job, as the process reported it. It is untrusted.

    `value` is tagged data, or whether a property holds; `after` has the arguments after the call, if they were
    reported; `size` is its number of characters; `worked` are the seconds of the processor that it took. An answer that
    says what the program has `left` behind after all calls has nothing else.
    """

    value: Any = None
    raised: Raised | None = None
    stdout: str = ""
    seconds: float = 0.0
    peak: int | None = None
    after: dict[str, Any] | None = None
    left: str = ""
    size: int = 0
    worked: float = 0.0


def read_answer(text: Any, longest: int, about: Sequence[Any] = ("", 0.0, 0, 0.0)) -> Answer | None:
    """Parse and validate an answer, and the printed text, the seconds, the bytes of memory and the work `about` it.

    Returns:
        The answer; `None` if it is not a valid one.
    """
    if not isinstance(text, str) or len(text) > longest:
        return None
    try:
        data = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    if isinstance(data.get("left"), str):
        return Answer(left=_text(data["left"], _LONGEST))
    raised, error = None, data.get("error")
    value = data.get("value")
    after = data.get("after")
    if error is not None:
        types = error.get("types") if isinstance(error, dict) else None
        if not isinstance(types, list) or not all(isinstance(each, str) for each in types):
            return None
        trace = []
        for frame in error.get("trace") or ():
            if isinstance(frame, list) and len(frame) == 3 and isinstance(frame[1], int):
                trace.append((_text(frame[0], 100), frame[1], _text(frame[2], 100)))
        names = tuple(_text(each, 100) for each in types[:20])
        base, message = _text(error.get("base"), 100), _text(error.get("message"), _LONGEST)
        raised = Raised(names, base, message, tuple(trace[:16]))
    elif "value" not in data or not is_sound(value):
        return None
    return Answer(
        value=None if raised else value,
        raised=raised,
        stdout=_text(about[0], longest),
        seconds=_number(about[1], 86_400),
        peak=int(_number(about[2], 1 << 50)) or None,
        after=after if raised is None and isinstance(after, dict) and is_sound(after) else None,
        size=len(text),
        worked=_number(about[3], 86_400),
    )


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _text(data: Any, longest: int) -> str:
    return encodable(data[:longest]) if isinstance(data, str) else ""


def _number(data: Any, most: float) -> float:
    return data if type(data) in (int, float) and 0 <= data <= most else 0


_MOST_SHOWN = 2_000


class Verdict(Data):
    """The verdict on a test.

    Attributes:
        function: The function, of tests that are cases of one.
        test: The test's name; empty: there is one test only, or the tests could not be run.
        passed: Whether it passed; computed outside of the process that ran the code.
        skipped: Whether the test was not run, as it says itself.
        cannot_separate: Why tests and code could not be judged in two rooms; empty if they could.
        can_be_fooled: Whether the tests ran in the process of the code, which could have changed the verdict.
        actual_output: The returned value as tagged data; `None` if there was none.
        arguments_after: The arguments after the call, as tagged data by name, if the test uses them.
        why: Why it failed; empty if it passed.
        outcome: How the call ended. A call that raised is an `error`, even if that was expected; if no code may run,
            it is `rejected`.
        error: The exception with the lines of the program; empty if there was none.
        duration: The duration of the call in seconds.
        peak_memory: The peak memory of its process in bytes; `None` if unknown.
        stdout: The beginning of the printed text.
        warning: What is wrong although it passed; empty if nothing is.
        exit_code: That of a test command that has failed; `None` for all else.
    """

    function: str = ""
    test: str = ""
    passed: bool
    skipped: bool = False
    cannot_separate: str = ""
    can_be_fooled: bool = False
    actual_output: Any = None
    arguments_after: dict[str, Any] | None = None
    why: str = ""
    outcome: Outcome = Outcome.OK
    error: str = ""
    duration: float = 0.0
    peak_memory: int | None = None
    stdout: str = ""
    warning: str = ""
    exit_code: int | None = None

    @property
    def result(self) -> str:
        """The verdict in words: `passed`, or what else and why."""
        if self.cannot_separate and not self.can_be_fooled:
            return f"cannot_separate: {self.cannot_separate}"
        words = "passed" if self.passed else f"{'skipped' if self.skipped else 'failed'}: {self.why}"
        return f"{words} (can be fooled: {self.cannot_separate})" if self.can_be_fooled else words

    def _repr_html_(self) -> str:
        success = None if self.skipped else self.passed
        name = ".".join(filter(None, (self.function, self.test))) or "verdict"
        facts = {"": self.result, "took": f"{self.duration:.3g} s" if self.duration else "", "warning": self.warning}
        return shown_html(name, success, facts, lines_html(self.error), lines_html(self.stdout, "output"))


@dataclass(frozen=True)
class Seen:
    """One undisturbed run of a test; `why` it fails the test is empty if it passes."""

    answer: Answer | None
    why: str
    outcome: Outcome
    seconds: float = 0.0
    peak: int | None = None
    stdout: str = ""
    error: str = ""
    warning: str = ""
    worked: float = 0.0

    @property
    def cost(self) -> float:
        """What it costs to run it again, in seconds.

        It does not depend on what else the machine does, unless the code waits: then a part of the time counts.
        """
        return max(self.worked, self.seconds / _WAITS)

    @property
    def passed(self) -> bool:
        """Whether it passes the test."""
        return self.answer is not None and not self.why

    def said(self) -> str:
        """What it returned or raised."""
        if self.answer is None:
            return f"gave no answer ({self.why})"
        if self.answer.raised is not None:
            return f"raised {self.answer.raised!s:.300}"
        return f"returned {show(self.answer.value)}"


def verdict_on(test: FunctionTest, answer: Answer, language: Harness) -> str:
    """Why an answer fails a test; empty if it passes. A property is evaluated elsewhere."""
    raised = answer.raised
    if test.expects == "error":
        return _on_error(test, answer, language)
    if raised is not None:
        what = "expected a value" if test.expects == "property" else f"expected {show(test.expected_output)}"
        return f"{what}, but it raised {raised!s:.300}"
    if test.sees_after and answer.after is None:
        return f"the arguments after the call cannot be read; it returned {show(answer.value)}"
    return "" if test.expects == "property" else language.compare(test, answer.value).why


def _on_error(test: FunctionTest, answer: Answer, language: Harness) -> str:
    expected, raised = test.expected_error or "", answer.raised
    if raised is None:
        return f"expected {expected}, but it returned {show(answer.value)}"
    if not language.error_matches(expected, raised.types, raised.base):
        return f"expected {expected}, but it raised {raised!s:.300}"
    wanted = test.error_message
    if wanted is not None and wanted.lower() not in raised.message.lower():
        return f"expected {expected} with {wanted!r} in its message, but it raised {raised!s:.300}"
    return ""


def value_of(result: ExecutionResult) -> Any:
    """The value of a cell, which is untrusted; `None` if it has none."""
    return result.value if result.outcome is Outcome.OK and result.value_is_data else None


def why_no_answer(result: ExecutionResult) -> str:
    """Why there is no valid answer."""
    if result.outcome is Outcome.OK:
        if result.limit == "value":
            return "the returned value is too large"
        return "the code ended its own process or corrupted its answer"
    message = result.error.message if result.error is not None else result.outcome.value
    # The model that repairs the code need not know what happened to the session.
    return message.split(" The session was restarted")[0].split(" Variables that were set")[0]


_LOAD_SECONDS = 30.0
_FAST = 0.5  # A job that takes longer runs alone in the session.
_WHOLE = 0.5
_SLACK = 1.0
_LARGE = 32_768  # A job with a longer answer runs alone in the session.
_LEAST = 65_536


class TestSession:
    """A session with a program in it, the functions of which are loaded in their order."""

    def __init__(self, sandbox: Sandbox, language: Harness, sources: Mapping[str, str]) -> None:
        self._sandbox = sandbox
        self._language = language
        self._sources = sources
        self._session: Session | None = None
        self._mark: Checkpoint | None = None
        self._cells: dict[str, str] = {}
        self.failures: dict[str, Seen] = {}  # By functions whose code could not be loaded.
        if sandbox.limits.value_bytes < _LEAST:
            raise RequestError(f"Tests need Sandbox(limits=Limits(value_bytes={_LEAST:,})), or more.")
        # The most characters of the value of a cell. Quoted as JSON, it may be twice as long.
        self.longest = sandbox.limits.value_bytes * 9 // 20

    async def aclose(self) -> None:
        """End the session."""
        session, self._session, self._mark = self._session, None, None
        if session is not None:
            await session.close()

    def is_stateless(self, job: Job) -> bool:
        """Whether the job provably leaves nothing behind for the next one."""
        # Includes code that failed to load: parts of it may have run.
        return self._language.is_stateless(self._sources.values(), job)

    async def alone(self, job: Job, seconds: float) -> tuple[Answer | None, ExecutionResult]:
        """Run a job in a state that no other job has touched."""
        cell = run_inside(self._language.runs_jobs[0], "alone", self.longest, self._language.job(job))
        result = await self._run(cell, seconds)
        if result.outcome is Outcome.OK and result.value == "untidy":  # An earlier job has left something behind.
            await self.aclose()
            result = await self._run(cell, seconds)
        about = result.stdout, result.duration, result.peak_memory, result.duration
        return await aside(read_answer, value_of(result), self.longest, about), result

    async def several(self, jobs: Sequence[Job]) -> list[Answer | None]:
        """Run jobs in one cell, each isolated from the others, for as long as there is time.

        An answer counts only if it is the expected one or all loaded code is stateless. Any other answer may be caused
        by another job: run that job again with `alone`, as those without an answer.
        """
        largest = min(_LARGE, self.longest // 4)
        stateless = all(map(self.is_stateless, jobs))
        given = [*map(self._language.job, jobs)], _FAST, _WHOLE, largest, 2 * self.longest, stateless
        cell = run_inside(self._language.runs_jobs[0], "run", largest, *given)
        result = await self._run(cell, _WHOLE + _FAST + _SLACK, stateless)
        values = value_of(result)
        if not isinstance(values, list):
            return []
        whole = [each if isinstance(each, list) and len(each) == 5 else [None] for each in values[: len(jobs)]]
        return [await aside(read_answer, text, 2 * largest, about) for text, *about in whole]

    async def run_version(self, function: str, source: str, jobs: Sequence[Job], seconds: float) -> Any:
        """Run jobs with the code of a function as it is: see `begin` in the guest's `versions`."""
        stateless = all(map(self.is_stateless, jobs))
        given = [source, *self._after(function)], [*map(self._language.job, jobs)], seconds, stateless
        cell = run_inside("versions", "begin", self.longest // 4, *given)
        return value_of(await self._run(cell, 3 * (seconds + _SLACK), stateless))

    async def run_versions(self, function: str, sources: Sequence[str], jobs: Sequence[Job], seconds: float) -> Any:
        """Run jobs with versions of the code of a function: see `run` in the guest's `versions`."""
        after, stateless = self._after(function), all(map(self.is_stateless, jobs))
        versions = [[each, *after] for each in sources]
        given = versions, [*map(self._language.job, jobs)], seconds, stateless, self.longest // 2, _WHOLE
        cell = run_inside("versions", "run", self.longest // 4, *given)
        return value_of(await self._run(cell, _WHOLE + 2 * (seconds + _SLACK), stateless))

    def _after(self, function: str) -> list[str]:
        """The code that is loaded after that of a function, and may have kept something of it."""
        names = [*self._sources]
        return [self._sources[name] for name in names[names.index(function) + 1 :]]

    async def _run(self, cell: str, seconds: float, stateless: bool = False) -> ExecutionResult:
        """Run a cell in the state in which every test starts."""
        if self._session is None:
            await self.open()
        try:
            return await self._run_here(cell, seconds, stateless)
        except RequestError:  # Code has broken the checkpoint.
            await self.open()
            return await self._run_here(cell, seconds, stateless)

    async def _run_here(self, cell: str, seconds: float, stateless: bool) -> ExecutionResult:
        assert self._session is not None
        if not stateless:
            self._mark = self._mark or await self._session.checkpoint()
            # Even the first time: the original process has the checkpoint as a child process, a fork has no children.
            await self._session.rollback(self._mark)
        result = await self._session.run(cell, timeout=seconds)
        if result.state_lost:
            await self.aclose()
        return result

    async def open(self) -> None:
        """Start the session and load the functions, those in `failures` excepted."""
        while not await self._load():
            pass

    async def _load(self) -> bool:
        """Load all functions that can be loaded; return whether the session is ready."""
        await self.aclose()
        session = self._session = self._sandbox.session()
        harness = make_harness(self._language.harness(), self._sandbox.preload)
        result = await session.run(harness + self._language.load(self._sources.values()))
        if result.outcome is not Outcome.OK:
            raise RequestError(
                f"Functions in {self._language.name} cannot be tested in this sandbox. They need the engine cpython "
                f"and the policy open: {result.error}"
            )
        if isinstance(lack := value_of(result), str):
            raise MissingDependencyError(f"Functions in {self._language.name} cannot be tested in this sandbox: {lack}")
        self._cells = {}
        for number, (function, source) in enumerate(self._without_failures().items(), 2):
            cell = self._language.define(function, source)
            result = await session.run(cell, timeout=_LOAD_SECONDS)
            self._cells[f"<cell {number}>"] = function
            failure = self._failure(result)
            if failure is not None:
                self.failures[function] = failure
                if result.state_lost:
                    return False
        return await self._settle(session)

    async def _settle(self, session: Session) -> bool:
        """Prepare the state in which every test starts, and make a checkpoint of it if something can change it."""
        result = await session.run(call_inside("batches", "begin"), timeout=_LOAD_SECONDS)
        try:
            if result.outcome is Outcome.OK and not result.state_lost:
                if not self._language.is_pure(self._sources.values()):  # Otherwise nothing changes it.
                    self._mark = await session.checkpoint()
                return True
        except RequestError:  # Code has broken it.
            pass
        if not self._without_failures():
            raise RequestError(f"Functions cannot be tested in this sandbox: {result.error}")
        failure = Seen(None, "After all functions were loaded, the program could no longer be run.", result.outcome)
        self.failures.update(dict.fromkeys(self._without_failures(), failure))
        return False

    def _failure(self, result: ExecutionResult) -> Seen | None:
        """Why code could not be loaded; `None` if it was."""
        if result.outcome is Outcome.OK and not result.state_lost:
            answer = read_answer(value_of(result), self.longest)
            if answer is None or answer.raised is None:
                return None
            why = f"The code could not be loaded: {answer.raised}"
            return Seen(None, why, Outcome.ERROR, error=self.text_of(answer.raised))
        if result.error is None:
            return Seen(None, "The code ended its own process while it was loaded.", result.outcome)
        why = f"The code could not be loaded: {result.error.type}: {result.error.message}"
        return Seen(None, why, result.outcome, error=str(result.error))

    def text_of(self, raised: Raised | None) -> str:
        """The text of an exception, with the lines of the program; empty if there is none."""
        if raised is None:
            return ""
        lines = []
        for cell, number, where in raised.trace:
            if (function := self._cells.get(cell)) is not None:
                source = self._sources[function].splitlines()
                text = source[number - 1].strip() if 0 < number <= len(source) else ""
                lines.append(f"  in {where}, line {number} of {function}: {text[:200]}".rstrip(": "))
        return visible("\n".join([*lines, str(raised)[:_MOST_SHOWN]]))

    def _without_failures(self) -> dict[str, str]:
        return {name: source for name, source in self._sources.items() if name not in self.failures}
