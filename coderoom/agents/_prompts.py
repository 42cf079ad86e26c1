"""What agents say to their models."""

from __future__ import annotations

from coderoom.agents._attempt import Attempt
from coderoom.agents._decisions import RetryDecision, StopReason

__all__ = [
    "CANCELLED",
    "ask_for_retry",
    "before_reflection",
    "retry_notice",
    "retry_plan",
]

CANCELLED = "The run was cancelled before it ended; what it printed is not known."

_WHY_STOPPED = {
    StopReason.FAILED: "none was allowed",
    StopReason.RETRIES_EXHAUSTED: "no attempts are left",
    StopReason.SAME_FAILURE: "the same code failed in the same way as before",
    StopReason.NOT_RETRIED: "it was decided not to try again",
}


def ask_for_retry(attempt: Attempt) -> str:
    """The question that a `RetryDecision` answers. The output stands just before it in the context."""
    return (
        f"Attempt {attempt.number} failed ({attempt.outcome}, exit code {attempt.exit_code}); "
        "its output is in the message above. Is another attempt worth it? Say in `reason` what went wrong and how "
        "you would mend it, and in `retry` whether to try again."
    )


def retry_notice(attempt: Attempt, decision: RetryDecision) -> str:
    """What the event says about the decision; the wording of a retry is the one that AutoGen's users know."""
    what = "Proposed correction" if decision.retry else "Not tried again"
    return f"Attempt number: {attempt.number}\n{what}: {decision.reason}"


def retry_plan(decision: RetryDecision, undone: str = "") -> str:
    """What the next attempt is told about the decision that led to it, and what of the failed one was undone."""
    plan = f"Try again. What went wrong and how to mend it: {decision.reason}"
    if not undone:
        return plan
    return (
        f"{plan}\nThe failed attempt was undone: {undone} are as they were before it, and nothing that it made of them "
        "is left. Write the whole code again."
    )


def before_reflection(attempt: Attempt, stop_reason: StopReason) -> str | None:
    """What to tell a model that is to sum up a failure, so that it does not sound like a success."""
    if stop_reason not in _WHY_STOPPED:
        return None
    return (
        f"There will be no further attempt: {_WHY_STOPPED[stop_reason]}. The last one ended with outcome "
        f"{attempt.outcome.value!r} and exit code {attempt.exit_code}. Sum up plainly what failed and what is missing. "
        "Write no code."
    )
