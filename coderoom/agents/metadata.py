"""The keys of the `metadata` of agents' messages, for programs, and the reasons why turns end.

All values are strings, as AutoGen requires.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from coderoom.outcome import Outcome

OUTCOME: Final = "coderoom.outcome"
"""The outcome of the last attempt."""
EXIT_CODE: Final = "coderoom.exit_code"
"""The last attempt's exit code; 1 if nothing was run."""
RAN: Final = "coderoom.ran"
"""`true` or `false`: whether the last attempt ran anything, or was rejected or had nothing that could run."""
ATTEMPTS: Final = "coderoom.attempts"
"""How many attempts the turn took."""
STOP_REASON: Final = "coderoom.stop_reason"
"""Why the turn ended: a `StopReason`."""
FAILURE: Final = "coderoom.failure"
"""A fingerprint of the code and of how it failed; two equal ones are the same failure again."""
OUTPUT_FILE: Final = "coderoom.output_file"
"""The file with the output, as far as the executor kept it, if the message has only its head and tail."""
ARTIFACTS: Final = "coderoom.artifacts"
"""The files that the last attempt made or changed: a JSON list of objects with `name`, `media_type` and `path`."""
CALLS: Final = "coderoom.calls"
"""What the code of a `CodeExecutionEvent` called on the host, in words: a JSON list of the first calls."""
SUMMARY: Final = "coderoom.summary"
"""The model's text, without the report that follows it in the message."""
CUT: Final = "coderoom.cut"
"""Why the model's answer is incomplete: `length`, its token limit, or `content_filter`."""
EVENT: Final = "coderoom.event"
"""The kind of an event, if AutoGen's type does not identify it."""
RETRY_DECISION: Final = "retry_decision"
"""The `EVENT` of a `CodeGenerationEvent` that has the decision on another attempt, and no code."""
OUTPUT: Final = "output"
"""The `EVENT` of a `ModelClientStreamingChunkEvent` that has output of running code, and no text of a model."""
RETRY: Final = "coderoom.retry"
"""`true` or `false`: what was decided."""
VERDICT: Final = "coderoom.verdict"
"""A reviewer's `ReviewVerdict` as JSON."""
APPROVED: Final = "coderoom.approved"
"""`true` or `false`: the verdict in one word."""
SHOWN: Final = "coderoom.shown"
"""Marks a message that is only for people; no agent gets it.

Its value is what the message shows: `code`, `run`, `retry_decision`, `stop`, `thought`, `answer` or `error`, for users
of AutoGen Studio, or a `question` to a person.
"""


class StopReason(StrEnum):
    """Why an agent ended its turn."""

    SUCCEEDED = "succeeded"
    """The code succeeded."""
    NO_CODE = "no_code"
    """There was nothing to run: the reply is the answer."""
    REJECTED = "rejected"
    """The approval, or the policy of the sandbox, rejected the code."""
    CANCELLED = "cancelled"
    """The executor was stopped while the code ran."""
    FAILED = "failed"
    """The code failed, and retries are not allowed."""
    RETRIES_EXHAUSTED = "retries_exhausted"
    """The last of the allowed attempts failed."""
    SAME_FAILURE = "same_failure"
    """The same code failed in the same way as before, so another attempt would not help."""
    SAME_RESULT = "same_result"
    """The same code succeeded with the same output three times in a row."""
    ANSWERED = "answered"
    """The model answered without code, after code that ran."""
    MAX_STEPS = "max_steps"
    """The step limit of the turn was reached."""
    MAX_TOKENS = "max_tokens"
    """The token limit of the turn was reached."""
    MAX_SECONDS = "max_seconds"
    """The time limit of the turn was reached."""
    NOT_RETRIED = "not_retried"
    """The model decided against another attempt, or its decision could not be read."""

    @property
    def why_without_answer(self) -> str:
        """Why a turn that ended for this reason has no answer, in words; empty if it has one."""
        without = self in _WITHOUT_ANSWER
        return f"The turn was ended before there was an answer: {self.words}." if without else ""

    @property
    def words(self) -> str:
        """The reason in words."""
        return _WORDS[self]


_WORDS = {
    StopReason.SUCCEEDED: "the code succeeded",
    StopReason.NO_CODE: "there was no code to run",
    StopReason.REJECTED: "the code was rejected",
    StopReason.CANCELLED: "the code was stopped from outside",
    StopReason.FAILED: "the code failed",
    StopReason.RETRIES_EXHAUSTED: "the last of the allowed attempts failed",
    StopReason.SAME_FAILURE: "the same code failed in the same way as before",
    StopReason.SAME_RESULT: "the same code gave the same result three times in a row",
    StopReason.ANSWERED: "the model answered without code",
    StopReason.MAX_STEPS: "the step limit was reached",
    StopReason.MAX_TOKENS: "the token limit was reached",
    StopReason.MAX_SECONDS: "the time limit was reached",
    StopReason.NOT_RETRIED: "the model decided against another attempt",
}
_WITHOUT_ANSWER = frozenset(
    [
        StopReason.MAX_STEPS,
        StopReason.MAX_TOKENS,
        StopReason.MAX_SECONDS,
        StopReason.SAME_FAILURE,
        StopReason.SAME_RESULT,
        StopReason.CANCELLED,
    ]
)


def read_outcome(metadata: Mapping[str, str]) -> Outcome | None:
    """The outcome that a message reports, or `None` if it reports none."""
    try:
        return Outcome(metadata.get(OUTCOME, ""))
    except ValueError:
        return None
