"""The keys of the `metadata` of agents' messages, for programs, and the reasons why turns end.

All values are strings, as AutoGen requires. The facts of an attempt, from `OUTCOME` to `CALLS`, are in its
`CodeExecutionEvent`. Those of the last attempt, but for `CALLS`, are in the turn's last message, too, with
`STOP_REASON` and `SUMMARY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self

from autogen_agentchat.base import TaskResult

from coderoom.outcome import Outcome

OUTCOME: Final = "coderoom.outcome"
"""The outcome of the last attempt."""
EXIT_CODE: Final = "coderoom.exit_code"
"""The last attempt's exit code; 1 if nothing was run."""
RAN: Final = "coderoom.ran"
"""`true` or `false`: whether the last attempt ran anything, or was rejected or had nothing that could run."""
CHECKED: Final = "coderoom.checked"
"""`failed` if the last attempt was not run, since a check before has found calls that are surely wrong."""
ATTEMPTS: Final = "coderoom.attempts"
"""How many attempts the turn took."""
EDITED_CODE: Final = "coderoom.edited"
"""`true` if a person has edited the last attempt's code before it ran."""
FAILURE: Final = "coderoom.failure"
"""A fingerprint of the code and of how it failed; two equal ones are the same failure again."""
OUTPUT_FILE: Final = "coderoom.output_file"
"""The file with the output, as far as the executor kept it, if the message has only its head and tail."""
ARTIFACTS: Final = "coderoom.artifacts"
"""The files that the last attempt made or changed: a JSON list of objects with `name`, `media_type` and `path`."""
CHANGES: Final = "coderoom.changes"
"""What the code has changed in a workspace that stays as it is: a diff, maybe shortened, in a turn's last message."""
CALLS: Final = "coderoom.calls"
"""What the code of a `CodeExecutionEvent` called on the host, in words: a JSON list of the first calls."""
STOP_REASON: Final = "coderoom.stop_reason"
"""Why the turn ended: a `StopReason`."""
SUMMARY: Final = "coderoom.summary"
"""The model's text, without the report that follows it in the message."""
CUT: Final = "coderoom.cut"
"""Why the model's answer is incomplete: `length`, its token limit, or `content_filter`."""
EVENT: Final = "coderoom.event"
"""The kind of an event, if AutoGen's type does not identify it."""
RETRY_DECISION: Final = "retry_decision"
"""The `EVENT` of a `CodeGenerationEvent` that has the decision on another attempt, and no code."""
EDITED: Final = "edited"
"""The `EVENT` of a `CodeGenerationEvent` that has what a person has made of the code before it."""
OUTPUT: Final = "output"
"""The `EVENT` of a `ModelClientStreamingChunkEvent` that has output of running code, and no text of a model."""
RETRY: Final = "coderoom.retry"
"""`true` or `false`: what was decided."""
REASON: Final = "coderoom.reason"
"""Why it was decided."""
BRANCH: Final = "coderoom.branch"
"""The branch that says a message, as `2.1` for the first one of the agent's second branching."""
BRANCHING: Final = "branching"
"""The `EVENT` of a `CodeGenerationEvent` that has the verdicts on branches, and no code."""
BRANCHES: Final = "coderoom.branches"
"""What came of the branches: a JSON object with `branching`, `won`, `why` and the `branches`, each with its verdict."""
VERDICT: Final = "coderoom.verdict"
"""A reviewer's `ReviewVerdict` as JSON."""
APPROVED: Final = "coderoom.approved"
"""`true` or `false`: the verdict in one word."""
HEARD_BY: Final = "coderoom.heard_by"
"""Who was the first to get what a person has said while the team worked."""
SHOWN: Final = "coderoom.shown"
"""Marks a message that is only for people; no agent gets it.

Its value is what the message shows: `code`, `run`, `retry_decision`, `branches`, `stop`, `thought`, `answer`, `changes`
or `error`, for users of AutoGen Studio, or a `question` to a person.
"""


_AGAIN = "the same code failed in the same way as before"


class StopReason(StrEnum):
    """Why an agent ended its turn, for programs and in words."""

    words: str
    why_no_more: str
    """Why there is no further attempt; empty if nobody wants one, or would ask."""

    SUCCEEDED = "succeeded", "the code succeeded"
    NO_CODE = "no_code", "there was no code to run"
    REJECTED = "rejected", "the code was rejected"
    CANCELLED = "cancelled", "the code was stopped from outside"
    FAILED = "failed", "the code failed", "none is allowed"
    RETRIES_EXHAUSTED = "retries_exhausted", "the last of the allowed attempts failed", "no attempts are left"
    SAME_FAILURE = "same_failure", _AGAIN, _AGAIN
    SAME_RESULT = "same_result", "the same code gave the same result three times in a row"
    ANSWERED = "answered", "the model answered without code"
    MAX_STEPS = "max_steps", "the step limit was reached"
    MAX_TOKENS = "max_tokens", "the token limit was reached"
    MAX_SECONDS = "max_seconds", "the time limit was reached"
    NOT_RETRIED = "not_retried", "the model decided against another attempt", "it was decided not to try again"

    def __new__(cls, value: str, words: str = "", why_no_more: str = "") -> Self:
        """Make a member of its texts."""
        member = str.__new__(cls, value)
        member._value_, member.words, member.why_no_more = value, words, why_no_more
        return member

    @property
    def why_without_answer(self) -> str:
        """Why a turn that ended for this reason has no answer, in words; empty if it has one."""
        limits = {StopReason.MAX_STEPS, StopReason.MAX_TOKENS, StopReason.MAX_SECONDS}
        without = self in {*limits, StopReason.SAME_FAILURE, StopReason.SAME_RESULT, StopReason.CANCELLED}
        return f"The turn was ended before there was an answer: {self.words}." if without else ""


def read_outcome(metadata: Mapping[str, str]) -> Outcome | None:
    """The outcome that a message reports, or `None` if it reports none."""
    try:
        return Outcome(metadata.get(OUTCOME, ""))
    except ValueError:
        return None


EMPTY_REPLY = "The model's reply was empty."
"""The text of a final message without an answer."""
WHY_CUT = {"length": "it reached its token limit", "content_filter": "the service's content filter ended it"}
"""What is said of a reply that is incomplete, by the values of `CUT`."""


def without_questions(result: TaskResult) -> TaskResult:
    """A result without the questions to a person, which are not for agents and programs."""
    kept = [message for message in result.messages if SHOWN not in message.metadata]
    return result.model_copy(update={"messages": kept})
