"""The events that `AICodeGenerator.stream` yields while it makes a solution."""

from __future__ import annotations

from dataclasses import dataclass

from coderoom.generation.frozen_tests import FrozenTests, TestChange
from coderoom.generation.solution import Approach, FunctionReport
from coderoom.generation.specs import FunctionSpec
from coderoom.generation.testing.results import TestResult
from coderoom.generation.tests import FunctionTest

__all__ = [
    "CacheHit",
    "CodeRefused",
    "CodeWritten",
    "FunctionFinished",
    "GenerationEvent",
    "ModelAsked",
    "SpecsWritten",
    "TestChanged",
    "TestsFrozen",
    "TestsRun",
    "TestsWritten",
    "Warned",
]


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
