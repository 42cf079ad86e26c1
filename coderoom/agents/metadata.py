"""The facts that agents leave for programs in a message's `metadata`.

AutoGen keeps metadata values as strings, so everything here is written and read as strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coderoom.outcome import Outcome

__all__ = [
    "APPROVED",
    "ARTIFACTS",
    "ATTEMPTS",
    "CALLS",
    "CUT",
    "EVENT",
    "EXIT_CODE",
    "FAILURE",
    "OUTCOME",
    "OUTPUT",
    "OUTPUT_FILE",
    "RAN",
    "RETRY",
    "RETRY_DECISION",
    "SHOWN",
    "STOP_REASON",
    "SUMMARY",
    "VERDICT",
    "read_outcome",
]

OUTCOME: Final = "coderoom.outcome"
"""How the last attempt ended: an `Outcome`."""
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
"""The file with the whole output, where the message holds only its head and tail."""
ARTIFACTS: Final = "coderoom.artifacts"
"""The files that the last attempt made or changed: a JSON list of objects with `name`, `media_type` and `path`."""
CALLS: Final = "coderoom.calls"
"""What the code of a `CodeExecutionEvent` called on the host, in words: a JSON list of the first calls."""
SUMMARY: Final = "coderoom.summary"
"""What the model said about it in words, without the report that follows in the message."""
CUT: Final = "coderoom.cut"
"""Why the model's answer is not whole: `length`, its limit of tokens, or `content_filter`."""
EVENT: Final = "coderoom.event"
"""Tells events of one AutoGen type apart."""
RETRY_DECISION: Final = "retry_decision"
"""The `EVENT` of a `CodeGenerationEvent` that holds no code but the decision on another attempt."""
OUTPUT: Final = "output"
"""The `EVENT` of a `ModelClientStreamingChunkEvent` that holds what running code printed, and no words of a model."""
RETRY: Final = "coderoom.retry"
"""`true` or `false`: what was decided."""
VERDICT: Final = "coderoom.verdict"
"""A reviewer's `ReviewVerdict` as JSON."""
APPROVED: Final = "coderoom.approved"
"""`true` or `false`: the verdict in one word."""
SHOWN: Final = "coderoom.shown"
"""Marks a message that only shows people what programs read elsewhere, and no agent answers to.

It says what the message shows: `code`, `run`, `retry_decision`, `stop`, `thought`, `answer` or `error`, which AutoGen
Studio's people see, or a `question` that a person is asked.
"""


def read_outcome(metadata: Mapping[str, str]) -> Outcome | None:
    """The outcome that a message reports, or `None` if it reports none."""
    try:
        return Outcome(metadata.get(OUTCOME, ""))
    except ValueError:
        return None
