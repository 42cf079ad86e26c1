"""`Solution` and its parts, and the events of a generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import Field

from coderoom._util.text import counted
from coderoom.generation.languages import SecurityFinding
from coderoom.generation.specs import FunctionSpec
from coderoom.judge import FrozenTests, FunctionTest, Strength, TestChange, Verdict
from coderoom.judge.cases import Data

Approach = Literal["first", "patch", "fresh", "changed test", "existing"]
"""How an attempt started: first code, a patch, code written from scratch, the same code with a changed test, or code
that existed before."""


class StopReason(StrEnum):
    """Why the work on a function, or on the whole solution, ended; `words` says it in words."""

    words: str

    def __new__(cls, value: str, words: str) -> Self:
        """A member, which is equal to its value."""
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member

    PASSED = "passed", "all tests passed"
    PASSED_CHANGED_TESTS = "passed_changed_tests", "it passes only because its tests were changed"
    ATTEMPTS = "attempts", "all attempts failed"
    SAME_CODE = "same_code", "the model repeated the same code"
    SAME_ERROR = "same_error", "the code kept failing in the same way"
    TOKENS = "tokens", "the token budget is used up"
    SECONDS = "seconds", "the time budget is used up"
    BUDGET = "budget", "a budget is used up"
    MODEL_FAILED = "model_failed", "a request to the model failed"
    UNUSABLE = "unusable", "the replies of the model could not be used"
    FAILED = "failed", "functions failed for different reasons"

    @property
    def cut_short(self) -> bool:
        """Whether the work was interrupted, so that it says nothing about the code and the same call continues it."""
        return self in (StopReason.MODEL_FAILED, StopReason.TOKENS, StopReason.SECONDS, StopReason.BUDGET)


class Usage(Data):
    """What a solution cost.

    Attributes:
        requests: The number of requests that the model has answered.
        prompt_tokens: The number of prompt tokens.
        completion_tokens: The number of completion tokens.
        replayed: How many replies were taken from an earlier, interrupted call. Their tokens are not counted.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    replayed: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class Attempt(Data):
    """One attempt at a function.

    Attributes:
        number: Counted from 1.
        approach: How it started.
        code: The code; empty if the reply had none.
        passed: How many tests passed.
        failed: How many tests did not pass.
        problems: Why the code was not run; empty if it was.
        reason: The model's diagnosis of the previous attempt; empty for the first.
        notes: Changes to the model's code before it was run.
        branch: Its branch, such as `slugify 2.1` for the first one of the second branching; empty outside of one.
        prompt_tokens: The prompt tokens of the request for it.
        completion_tokens: The completion tokens of the reply.
    """

    number: int
    approach: Approach
    code: str
    passed: int = 0
    failed: int = 0
    problems: tuple[str, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    branch: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class BranchReport(Data):
    """What came of one of several repairs that were tried at the same time.

    Attributes:
        branch: The branch, as in `Attempt.branch`.
        variation: How its request differs from those of the others, in words.
        outcome: `ok` if all tests passed, `error`, `rejected` if the code was not run, or `cancelled`.
        exit_code: 0 if all tests passed, else 1.
        verdict: How it was judged, in words.
        score: The share of the tests that passed.
        input_tokens: The prompt tokens of its request.
        output_tokens: The completion tokens of the reply.
        seconds: How long the request and the tests took.
        model: Its model, if it has one of its own.
    """

    branch: str
    variation: str
    outcome: str
    exit_code: int
    verdict: str
    score: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    model: str = ""


class FunctionReport(Data):
    """The result for one function.

    Attributes:
        function: Its name.
        passed: Whether all of its tests passed in the final run, without changed tests unless these are accepted.
        only_by_changed_tests: Whether it passes only the changed tests, and not those that were frozen first.
        tests: The number of tests.
        tests_passed: How many of them passed in the final run.
        attempts: The attempts, in order.
        stop_reason: Why the work on it ended.
        findings: What the security scanner found in its code.
        seconds: The total duration of its tests.
        slowest: The duration of the slowest test, in seconds.
        peak_memory: The peak memory of its tests, in bytes; `None` if unknown.
        strength: How many mutants of its code the tests kill; `None` if that was not measured.
    """

    function: str
    passed: bool
    only_by_changed_tests: bool = False
    tests: int
    tests_passed: int
    attempts: tuple[Attempt, ...]
    stop_reason: StopReason
    findings: tuple[SecurityFinding, ...] = ()
    seconds: float = 0.0
    slowest: float = 0.0
    peak_memory: int | None = None
    strength: Strength | None = None


class Solution(Data):
    """The result of a generation.

    Attributes:
        instruction: The instruction.
        function_specs: The specifications of the functions.
        implementations: Their code, dependencies first.
        tests: Their tests, with all changes.
        test_results: The result of each test in the final run, with the whole program.
        all_tests_passed: Whether every function has code and tests and all tests passed, without changed tests unless
            these are accepted. Computed outside the processes that ran the code.
        functions: A report on each function, including its attempts.
        test_changes: The changes of tests, each with its reason.
        tests_hash: The SHA-256 of the tests that were frozen first; empty if there were none.
        language: The language.
        model: The name of the model.
        usage: Requests and tokens.
        branch_usage: What of that other models have used, which repaired in branches, by their names.
        duration: The duration in seconds.
        max_seconds: The time budget in seconds; `None`: unlimited.
        stop_reason: Why it ended.
        error: Why the generation failed; empty if it did not.
        warnings: Further remarks for the reader.
        cached: Whether it comes from the cache. Its tests were run again even then.
        tests_only: Whether the code existed before, and only the tests were written.
        cached_for: The instruction that was given, if a cached solution of a similar `instruction` is returned for it;
            its tests say nothing about what is different.
    """

    instruction: str
    function_specs: tuple[FunctionSpec, ...] = ()
    implementations: dict[str, str] = Field(default_factory=dict)
    tests: dict[str, tuple[FunctionTest, ...]] = Field(default_factory=dict)
    test_results: tuple[Verdict, ...] = ()
    all_tests_passed: bool = False
    functions: tuple[FunctionReport, ...] = ()
    test_changes: tuple[TestChange, ...] = ()
    tests_hash: str = ""
    language: str = "python"
    model: str = ""
    usage: Usage = Usage()
    branch_usage: dict[str, Usage] = Field(default_factory=dict)
    duration: float = 0.0
    max_seconds: float | None = None
    stop_reason: StopReason = StopReason.FAILED
    error: str = ""
    warnings: tuple[str, ...] = ()
    cached: bool = False
    tests_only: bool = False
    cached_for: str = ""

    def __getitem__(self, key: str) -> Any:
        """The value of `model_dump()` under a key."""
        if key not in type(self).model_fields:
            raise KeyError(key)
        return self.model_dump(mode="json", include={key})[key]

    @property
    def missing(self) -> list[str]:
        """Why not all tests passed, one line for each function or test."""
        if self.all_tests_passed:
            return []
        lines = [self.error] if self.error else []
        reports = {report.function: report for report in self.functions}
        for spec in self.function_specs:
            report = reports.get(spec.name)
            if report is None or not self.implementations.get(spec.name):
                lines.append(f"{spec.name}: {why_no_code(report.attempts if report is not None else ())}")
            elif report.only_by_changed_tests:
                lines.append(f"{spec.name}: it passes its tests only because they were changed")
        written = [each for each in self.test_results if not each.passed and self.implementations.get(each.function)]
        lines += [f"{each.function}: {each.test}: {each.why}" for each in written]
        return lines or [f"it ended before there was any result: {self.stop_reason}"]


def why_no_code(attempts: Sequence[Attempt]) -> str:
    """Why no code of a function was run."""
    problems = [each.problems for each in attempts if each.problems]
    return f"not run: {'; '.join(problems[-1])}" if problems else "there is no code"


@dataclass(frozen=True)
class GenerationEvent:
    """Base class of the events of a generation. `str()` gives a line of text about an event."""

    __test__ = False  # Not for pytest, whatever the names of the events.


@dataclass(frozen=True)
class ModelAsked(GenerationEvent):
    """The model replied.

    Attributes:
        step: The step: `specs`, `tests`, `code` or `repair`.
        function: The function concerned; empty for the specs.
        prompt_tokens: The number of prompt tokens.
        completion_tokens: The number of completion tokens.
        replayed: Whether the reply comes from an earlier, interrupted call.
    """

    step: str
    function: str
    prompt_tokens: int
    completion_tokens: int
    replayed: bool

    def __str__(self) -> str:
        tokens = f"{self.prompt_tokens:,} prompt tokens, {self.completion_tokens:,} completion tokens"
        source = "reply of an earlier run" if self.replayed else "reply"
        return f"{self.function or 'functions'}: {self.step}: {source}, {tokens}"


@dataclass(frozen=True)
class SpecsWritten(GenerationEvent):
    """The specs of the functions are valid. Each layer depends only on earlier ones."""

    layers: tuple[tuple[FunctionSpec, ...], ...]

    @property
    def specs(self) -> list[FunctionSpec]:
        """All specs, dependencies first."""
        return [spec for layer in self.layers for spec in layer]

    def __str__(self) -> str:
        return f"{counted(len(self.specs), 'function')}: {', '.join(spec.name for spec in self.specs)}"


@dataclass(frozen=True)
class TestsWritten(GenerationEvent):
    """The tests of a function were written."""

    function: str
    tests: tuple[FunctionTest, ...]

    def __str__(self) -> str:
        return f"{self.function}: {counted(len(self.tests), 'test')} written"


@dataclass(frozen=True)
class TestsFrozen(GenerationEvent):
    """All tests were written and frozen; each later change is recorded."""

    tests: FrozenTests

    def __str__(self) -> str:
        return f"{counted(self.tests.count, 'test')} frozen, sha256 {self.tests.hash[:12]}"


@dataclass(frozen=True)
class CodeWritten(GenerationEvent):
    """Code for a function was written and passed the checks.

    After a failed attempt, `reason` is the model's diagnosis.
    """

    function: str
    attempt: int
    approach: Approach
    code: str
    language: str
    reason: str = ""
    branch: str = ""

    def __str__(self) -> str:
        lines = counted(len(self.code.strip().splitlines()), "line")
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.branch or self.function}: attempt {self.attempt} ({self.approach}), {lines}{reason}"


@dataclass(frozen=True)
class CodeRefused(GenerationEvent):
    """A reply had no code that may be run; `reason` as in `CodeWritten`."""

    function: str
    attempt: int
    problems: tuple[str, ...]
    reason: str = ""
    branch: str = ""

    def __str__(self) -> str:
        return f"{self.branch or self.function}: attempt {self.attempt} was not run: {'; '.join(self.problems)}"


@dataclass(frozen=True)
class TestsRun(GenerationEvent):
    """The tests of a function were run."""

    function: str
    attempt: int
    results: tuple[Verdict, ...]
    branch: str = ""

    @property
    def passed(self) -> int:
        """How many tests passed."""
        return sum(each.passed for each in self.results)

    def __str__(self) -> str:
        seconds = sum(each.duration for each in self.results)
        who = self.branch or self.function
        return f"{who}: {self.passed} of {counted(len(self.results), 'test')} passed in {seconds:.3f} s"


@dataclass(frozen=True)
class BranchesJudged(GenerationEvent):
    """Several repairs of a function were judged by the same tests; the best goes on.

    Attributes:
        function: The function.
        branching: How often the repairs of this function were branched so far.
        won: The branch that goes on; `None` if none could be judged.
        why: Why it does.
        branches: All of them.
    """

    function: str
    branching: int
    won: str | None
    why: str
    branches: tuple[BranchReport, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """What came of the branches, as plain data."""
        told = [each.model_dump(mode="json") for each in self.branches]
        return {"branching": self.branching, "won": self.won, "why": self.why, "branches": told}

    def __str__(self) -> str:
        goes_on = f"{self.won} goes on ({self.why})" if self.won else self.why
        return f"{self.function}: {counted(len(self.branches), 'branch', 'branches')}: {goes_on}"


@dataclass(frozen=True)
class TestChanged(GenerationEvent):
    """A test was changed."""

    change: TestChange

    def __str__(self) -> str:
        what = "changed" if self.change.before else "added"
        return f"{self.change.function}: the test {self.change.test!r} was {what}: {self.change.reason}"


@dataclass(frozen=True)
class StrengthMeasured(GenerationEvent):
    """It was measured how many mutants of the code of a function its tests kill."""

    function: str
    strength: Strength

    def __str__(self) -> str:
        return f"{self.function}: {self.strength}"


@dataclass(frozen=True)
class FunctionFinished(GenerationEvent):
    """Work on a function has ended."""

    report: FunctionReport

    def __str__(self) -> str:
        report, attempts = self.report, counted(len(self.report.attempts), "attempt")
        if report.passed:
            return f"{report.function}: passed after {attempts}"
        return f"{report.function}: given up after {attempts}: {report.stop_reason.words}"


@dataclass(frozen=True)
class CacheHit(GenerationEvent):
    """A solution was found in the cache; its tests will be run again."""

    functions: tuple[str, ...]

    def __str__(self) -> str:
        return f"found in the cache: {', '.join(self.functions)}; its tests run again"


@dataclass(frozen=True)
class Warned(GenerationEvent):
    """Something that the reader should know."""

    text: str

    def __str__(self) -> str:
        return self.text
