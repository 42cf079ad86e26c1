"""Repairs of a function that a model is asked for at the same time: how they differ, and which of them goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from typing import Any

from coderoom.generation.languages import SecurityFinding
from coderoom.generation.model_client import Stopped
from coderoom.generation.models import Message, Model
from coderoom.generation.solution import Attempt, BranchReport
from coderoom.judge import Verdict
from coderoom.outcome import Outcome


@dataclass(frozen=True)
class Variation:
    """A way to ask for a repair.

    It has a `name`, a `hint` that the request adds, whether the code is written from scratch (`fresh`), and a `model`
    of its own.
    """

    name: str
    hint: str = ""
    fresh: bool = False
    model: Model | None = field(default=None, compare=False)

    def added_to(self, messages: list[Message]) -> list[Message]:
        """The messages of a request with what this adds."""
        *before, last = messages
        return [*before, Message(last.role, f"{last.content}\n\n{self.hint}")] if self.hint else messages


_VARIATIONS = (
    Variation("patch"),
    Variation("from scratch", fresh=True),
    Variation("simplest code", "Write the simplest code that does what the specification says, even if it is slow."),
    Variation(
        "by hand",
        "Before you decide, work through each failing test by hand, and list the edge cases of the specification.",
    ),
)


def variations(models: Sequence[Model] = ()) -> Iterator[Variation]:
    """Endless variations, no two of which make the same request; these models are taken in turn."""
    for each, model in zip(_all_hints(), cycle(models or (None,)), strict=False):
        yield each if model is None else replace(each, name=f"{each.name}, {model.name}", model=model)


def _all_hints() -> Iterator[Variation]:
    yield from _VARIATIONS
    for number in count(len(_VARIATIONS) + 1):
        hint = f"This is question {number} of several about the same failure: look for a cause that is not obvious."
        yield Variation(f"another cause ({number})", hint)


@dataclass(frozen=True)
class Tried:
    """An attempt that was judged.

    It has the `results` of its tests, what the scanner found, and the `trouble` to tell the model, which is empty if
    all tests passed. Equal failures have an equal `failure`.
    """

    attempt: Attempt
    results: list[Verdict]
    findings: tuple[SecurityFinding, ...]
    trouble: str
    failure: object

    @property
    def score(self) -> float:
        """The share of the tests that passed; negative if the code was not run."""
        return -1.0 if self.attempt.problems else self.attempt.passed / max(len(self.results), 1)

    @property
    def verdict(self) -> str:
        """How it was judged, in words."""
        if self.attempt.problems:
            return f"not run: {'; '.join(self.attempt.problems)}"
        return f"passed {self.attempt.passed} of {len(self.results)} tests"


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """The one of which most tests passed; among equals the first."""
    return max(tried, key=lambda each: each.score, default=None)


def why_best(best: Tried | None) -> str:
    """Why a branch goes on, in words."""
    if best is None:
        return "none could be judged"
    return f"none passed all tests; this one: {best.verdict}" if best.trouble else best.verdict


def report_of(branch: str, variation: Variation, worked: tuple[Tried | Stopped, float]) -> BranchReport:
    """What came of a branch, and in how many seconds."""
    found, seconds = worked
    facts: dict[str, Any] = {"branch": branch, "variation": variation.name, "seconds": round(seconds, 3)}
    if variation.model is not None:
        facts["model"] = variation.model.name
    if isinstance(found, Stopped):
        return BranchReport(outcome=Outcome.CANCELLED, exit_code=1, verdict=found.words, **facts)
    attempt = found.attempt
    outcome = Outcome.REJECTED if attempt.problems else Outcome.ERROR if found.trouble else Outcome.OK
    return BranchReport(
        outcome=outcome,
        exit_code=0 if outcome is Outcome.OK else 1,
        verdict=found.verdict,
        score=max(found.score, 0.0),
        input_tokens=attempt.prompt_tokens,
        output_tokens=attempt.completion_tokens,
        **facts,
    )
