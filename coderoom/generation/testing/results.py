"""`TestResult`, and the verdict on an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from coderoom._util.text import visible
from coderoom.generation.languages.base import Language
from coderoom.generation.testing.answers import Answer, Raised
from coderoom.generation.testing.values import show
from coderoom.generation.tests import FunctionTest
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult

__all__ = ["TestResult", "told_error", "verdict_on", "why_no_answer"]

_LONGEST = 2_000


class TestResult(BaseModel):
    """What came of a test.

    Attributes:
        function: The function.
        test: The test's name.
        passed: Whether what came is what was expected; computed outside of the process that ran the code.
        actual_output: What was returned, as tagged data; `None` if nothing was.
        arguments_after: The arguments as the call has left them, as tagged data by their names, where the test says
            something about them.
        why: Why it failed; empty if it passed.
        outcome: How the call ended. A call that raised is an `error`, also where that was expected; where there is no
            code that may be run it is `rejected`.
        error: What was raised, with the lines of the program where that was; empty if nothing was.
        duration: How long the call took, in seconds.
        peak_memory: The most memory that its process has had, in bytes; `None` where it is not known.
        stdout: The beginning of what was printed.
    """

    __test__: ClassVar[bool] = False
    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str
    test: str
    passed: bool
    actual_output: Any = None
    arguments_after: dict[str, Any] | None = None
    why: str = ""
    outcome: Outcome = Outcome.OK
    error: str = ""
    duration: float = 0.0
    peak_memory: int | None = None
    stdout: str = ""


def verdict_on(test: FunctionTest, answer: Answer, language: Language) -> str:
    """Why an answer is not what a test expects; empty if it is. What has a property is for others to say."""
    raised = answer.raised
    if test.expects == "error":
        return _on_error(test, answer, language)
    if raised is not None:
        what = "a value was expected" if test.expects == "property" else f"{show(test.expected_output)} was expected"
        return f"{what}, and it raised {raised!s:.300}"
    if test.sees_after and answer.after is None:
        return f"what the call has left in its arguments cannot be looked at; it returned {show(answer.value)}"
    return "" if test.expects == "property" else language.compare(test, answer.value).why


def _on_error(test: FunctionTest, answer: Answer, language: Language) -> str:
    expected, raised = test.expected_error or "", answer.raised
    if raised is None:
        return f"{expected} was expected, and it returned {show(answer.value)}"
    if not language.error_matches(expected, raised.types, raised.base):
        return f"{expected} was expected, and it raised {raised!s:.300}"
    wanted = test.error_message
    if wanted is not None and wanted.lower() not in raised.message.lower():
        return f"{expected} with {wanted!r} in its message was expected, and it raised {raised!s:.300}"
    return ""


def told_error(raised: Raised | None, cells: Mapping[str, str], sources: Mapping[str, str]) -> str:
    """What was raised, with the lines of the program where that was."""
    if raised is None:
        return ""
    lines = []
    for cell, number, where in raised.trace:
        function = cells.get(cell)
        if function is None:
            continue
        source = sources.get(function, "").splitlines()
        text = source[number - 1].strip() if 0 < number <= len(source) else ""
        lines.append(f"  in {where}, line {number} of {function}: {text[:200]}".rstrip(": "))
    return visible("\n".join([*lines, str(raised)[:_LONGEST]]))


def why_no_answer(result: ExecutionResult) -> str:
    """Why there is no answer to be read."""
    if result.outcome is Outcome.OK:
        if result.limit == "value":
            return "what it returned is too large to be looked at"
        return "the code ended its own process, or said something else than what it returned"
    message = result.error.message if result.error is not None else result.outcome.value
    # What becomes of the session is nothing that whoever mends the code should care for.
    return message.split(" The session was restarted")[0].split(" Variables that were set")[0]
