"""`Solution` and its parts, and the events of a generation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from coderoom.generation.languages import SecurityFinding
from coderoom.generation.session import TestResult
from coderoom.generation.specs import FunctionSpec
from coderoom.generation.tests import FrozenTests, FunctionTest, TestChange

__all__ = [
    "CUT_SHORT",
    "Approach",
    "Attempt",
    "CacheHit",
    "CodeRefused",
    "CodeWritten",
    "FunctionFinished",
    "FunctionReport",
    "GenerationEvent",
    "ModelAsked",
    "Solution",
    "SpecsWritten",
    "StopReason",
    "TestChanged",
    "TestsFrozen",
    "TestsRun",
    "TestsWritten",
    "Usage",
    "Warned",
    "why_no_code",
]

Approach = Literal["first", "patch", "fresh", "changed test"]
"""How an attempt came about: the first code, a mended one, one from scratch, or the same code with another test."""


class StopReason(StrEnum):
    """Why work on a function, or on the whole solution, has ended."""

    PASSED = "passed"
    PASSED_CHANGED_TESTS = "passed_changed_tests"
    """It passes only since tests of it were changed."""
    ATTEMPTS = "attempts"
    """As many attempts as there may be have failed."""
    SAME_CODE = "same_code"
    """The model went on to write the same code, also when it was asked for another approach."""
    SAME_ERROR = "same_error"
    """The code went on to fail in the same way, also after another approach."""
    TOKENS = "tokens"
    """The budget of tokens is spent."""
    SECONDS = "seconds"
    """The budget of time is spent."""
    MODEL_FAILED = "model_failed"
    """The model could not be asked; the same call again goes on from here."""
    UNUSABLE = "unusable"
    """What the model wrote could not be used, also when it was told why."""
    FAILED = "failed"
    """Of a solution: for another reason with each function."""


CUT_SHORT = frozenset({StopReason.MODEL_FAILED, StopReason.TOKENS, StopReason.SECONDS})
"""The reasons that are nobody's verdict on the work: the same call again goes on from there."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Usage(_Data):
    """What the model was asked for a solution.

    Attributes:
        requests: How many times it was asked.
        prompt_tokens: The tokens of the questions.
        completion_tokens: The tokens of the answers.
        replayed: How many answers of an earlier call that was cut short were taken instead of asking again. Their
            tokens are not counted.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    replayed: int = 0

    @property
    def total_tokens(self) -> int:
        """Questions and answers together."""
        return self.prompt_tokens + self.completion_tokens


class Attempt(_Data):
    """One go at a function.

    Attributes:
        number: Counted from 1.
        approach: How it came about.
        code: The code; empty if there was none in the answer.
        passed: How many tests passed.
        failed: How many tests did not pass.
        problems: Why the code was not run; empty if it was.
        reason: What the model said was wrong before; empty for the first.
        notes: What was done with the model's code before it was run.
    """

    number: int
    approach: Approach
    code: str
    passed: int = 0
    failed: int = 0
    problems: tuple[str, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()


class FunctionReport(_Data):
    """What came of one function.

    Attributes:
        function: Its name.
        passed: Whether all of its tests passed in the end, and none of those had to be changed for that.
        only_by_changed_tests: Whether it passes its tests only as they were changed, and not as they were frozen.
        tests: How many tests there are.
        tests_passed: How many of them passed in the end.
        attempts: The attempts, in their order.
        stop_reason: Why work on it has ended.
        findings: What a security scanner found in its code.
        seconds: How long its tests took together.
        slowest: How long the slowest of them took, in seconds.
        peak_memory: The most memory that one of them had, in bytes; `None` where it is not known.
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


class Solution(_Data):
    """What came of an instruction.

    Attributes:
        instruction: The instruction.
        function_specs: What the functions are to do.
        implementations: Their code, each after what it needs.
        tests: Their tests, as they are in the end.
        test_results: What came of each test when all of them were run with the whole program in the end.
        all_tests_passed: Whether every function has code and tests, all tests passed, and none had to be changed for
            that. Computed outside the processes that ran the code.
        functions: What is to be told of each function, attempts included.
        test_changes: The changes of tests, each with its reason.
        tests_hash: The sha256 of the tests as they were frozen first; empty if it did not come to tests.
        language: The language.
        model: What the model is called.
        usage: What the model was asked.
        duration: How long it took, in seconds.
        stop_reason: Why it ended.
        error: What went wrong, in words; empty if nothing did.
        warnings: What else the reader should know.
        cached: Whether it comes from the cache; its tests were run again all the same.
    """

    instruction: str
    function_specs: tuple[FunctionSpec, ...] = ()
    implementations: dict[str, str] = {}
    tests: dict[str, tuple[FunctionTest, ...]] = {}
    test_results: tuple[TestResult, ...] = ()
    all_tests_passed: bool = False
    functions: tuple[FunctionReport, ...] = ()
    test_changes: tuple[TestChange, ...] = ()
    tests_hash: str = ""
    language: str = "python"
    model: str = ""
    usage: Usage = Usage()
    duration: float = 0.0
    stop_reason: StopReason = StopReason.FAILED
    error: str = ""
    warnings: tuple[str, ...] = ()
    cached: bool = False

    def __getitem__(self, key: str) -> Any:
        """What `model_dump()` has under a key."""
        if key not in type(self).model_fields:
            raise KeyError(key)
        return self.model_dump(mode="json", include={key})[key]

    @property
    def missing(self) -> list[str]:
        """What there is to be said of why not all tests passed, a line for each function or test."""
        if self.all_tests_passed:
            return []
        lines = [self.error] if self.error else []
        reports = {report.function: report for report in self.functions}
        for spec in self.function_specs:
            report = reports.get(spec.name)
            if report is None or not self.implementations.get(spec.name):
                lines.append(f"{spec.name}: {why_no_code(report)}")
            elif report.only_by_changed_tests:
                lines.append(f"{spec.name}: it passes its tests only since they were changed")
        written = [each for each in self.test_results if not each.passed and self.implementations.get(each.function)]
        lines += [f"{each.function}: {each.test}: {each.why}" for each in written]
        return lines or [f"it ended before there was anything: {self.stop_reason}"]


def why_no_code(report: FunctionReport | None) -> str:
    """Why a function has no code that was run."""
    problems = [each.problems for each in report.attempts if each.problems] if report is not None else []
    return f"not run: {'; '.join(problems[-1])}" if problems else "there is no code"


@dataclass(frozen=True)
class GenerationEvent:
    """Something that has happened."""


@dataclass(frozen=True)
class ModelAsked(GenerationEvent):
    """The model has answered.

    Attributes:
        step: What it was asked for: `specs`, `tests`, `code` or `repair`.
        function: The function that it was about; empty for the specs.
        prompt_tokens: The tokens of the question.
        completion_tokens: The tokens of the answer.
        replayed: Whether the answer comes from an earlier call that was cut short.
    """

    step: str
    function: str
    prompt_tokens: int
    completion_tokens: int
    replayed: bool


@dataclass(frozen=True)
class SpecsWritten(GenerationEvent):
    """The functions are known; they can be written layer by layer."""

    layers: tuple[tuple[FunctionSpec, ...], ...]


@dataclass(frozen=True)
class TestsWritten(GenerationEvent):
    """The tests of a function are there."""

    __test__ = False

    function: str
    tests: tuple[FunctionTest, ...]


@dataclass(frozen=True)
class TestsFrozen(GenerationEvent):
    """All tests are there, and will not change unseen."""

    __test__ = False

    tests: FrozenTests


@dataclass(frozen=True)
class CodeWritten(GenerationEvent):
    """There is code for a function."""

    function: str
    attempt: int
    approach: Approach
    code: str
    language: str


@dataclass(frozen=True)
class CodeRefused(GenerationEvent):
    """An answer had no code that may be run."""

    function: str
    attempt: int
    problems: tuple[str, ...]


@dataclass(frozen=True)
class TestsRun(GenerationEvent):
    """The tests of a function were run."""

    __test__ = False

    function: str
    attempt: int
    results: tuple[TestResult, ...]


@dataclass(frozen=True)
class TestChanged(GenerationEvent):
    """A test was changed."""

    __test__ = False

    change: TestChange


@dataclass(frozen=True)
class FunctionFinished(GenerationEvent):
    """Work on a function has ended."""

    report: FunctionReport


@dataclass(frozen=True)
class CacheHit(GenerationEvent):
    """A solution was found in the cache; its tests will be run again."""

    functions: tuple[str, ...]


@dataclass(frozen=True)
class Warned(GenerationEvent):
    """Something that the reader should know."""

    text: str
