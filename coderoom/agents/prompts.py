"""What agents say to their models."""

from __future__ import annotations

from collections.abc import Sequence

from coderoom.agents.attempt import Attempt, CodeFormat, RetryDecision, StopReason
from coderoom.sandbox import HostFunction

__all__ = [
    "CANCELLED",
    "NOT_BEGUN",
    "ask_for_retry",
    "before_reflection",
    "retry_notice",
    "retry_plan",
    "why_no_more",
    "with_functions",
]

CANCELLED = "The run was cancelled before it ended; what it printed is not known."
NOT_BEGUN = "The turn was ended before the code above was run."

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


_FORMATS = {
    "fence": "Put code to run in a ```python block",
    "execute": "Put Python code to run between <execute> and </execute>; code anywhere else is not run.",
}


_TEXTS = (
    "These give text (str), also where it is a number or JSON, or a list if there are several parts; int(...) or "
    "json.loads(...) make data of it. They are called without await: {names}."
)


def with_functions(
    system_message: str | None, code_format: CodeFormat, languages: Sequence[str], functions: Sequence[HostFunction]
) -> str:
    """The system message of a `CodeActAgent`, with where code goes and what it can call."""
    parts = [] if system_message is None else [system_message]
    where = _FORMATS[code_format]
    if code_format == "fence":
        where += " (or ```sh for the shell)." if "sh" in languages else "."
    parts.append(where)
    if functions:
        parts.append("Your code can call these functions, which are there already; do not define or import them:")
        parts += [function.describe() for function in functions]
    if texts := [function.name for function in functions if function.gives_text]:
        parts.append(_TEXTS.format(names=", ".join(texts)))
    return "\n\n".join(parts)


def retry_plan(decision: RetryDecision, undone: str = "") -> str:
    """What the next attempt is told about the decision that led to it, and what of the failed one was undone."""
    plan = f"Try again. What went wrong and how to mend it: {decision.reason}"
    if not undone:
        return plan
    return (
        f"{plan}\nThe failed attempt was undone: {undone} are as they were before it, and nothing that it made of them "
        "is left. Write the whole code again."
    )


def why_no_more(stop_reason: str) -> str | None:
    """Why there is no further attempt where there might have been one; `None` if the turn ended otherwise."""
    told = (StopReason.RETRIES_EXHAUSTED, StopReason.SAME_FAILURE)
    return next((_WHY_STOPPED[reason] for reason in told if reason == stop_reason), None)


def before_reflection(attempt: Attempt, stop_reason: StopReason) -> str | None:
    """What to tell a model that is to sum up a failure, so that it does not sound like a success."""
    if stop_reason not in _WHY_STOPPED:
        return None
    return (
        f"There will be no further attempt: {_WHY_STOPPED[stop_reason]}. The last one ended with outcome "
        f"{attempt.outcome.value!r} and exit code {attempt.exit_code}. Sum up plainly what failed and what is missing. "
        "Write no code."
    )
