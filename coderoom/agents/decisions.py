"""What a model decides in a structured way, and why a turn ends."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, model_validator

from coderoom.agents.attempt import Attempt
from coderoom.outcome import Outcome

__all__ = ["RetryDecision", "StopReason", "why_no_more", "why_stop"]


class RetryDecision(BaseModel):
    """A model's decision on whether failed code is worth another attempt."""

    reason: str
    """What went wrong, and how the next attempt mends it."""
    retry: bool
    """Whether to try again."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        # Required, as strict structured output wants it; a model without that may leave it out.
        return {"reason": "", **data} if isinstance(data, dict) else data


class StopReason(StrEnum):
    """Why an agent ended its turn."""

    SUCCEEDED = "succeeded"
    """The code ran and ended well."""
    NO_CODE = "no_code"
    """There was nothing to run: the reply is the answer."""
    REJECTED = "rejected"
    """The approval, or the policy of the sandbox, said no."""
    CANCELLED = "cancelled"
    """The executor was stopped while the code ran."""
    FAILED = "failed"
    """The code failed, and no further attempt was allowed in the first place."""
    RETRIES_EXHAUSTED = "retries_exhausted"
    """The last attempt that was allowed failed."""
    SAME_FAILURE = "same_failure"
    """The same code failed in the same way as before: another attempt would cost and not help."""
    ANSWERED = "answered"
    """After code that ran the model answered without any."""
    MAX_STEPS = "max_steps"
    """As many pieces of code were run as a turn may have."""
    MAX_TOKENS = "max_tokens"
    """The model has used the tokens that a turn may have."""
    MAX_SECONDS = "max_seconds"
    """The time that a turn may take was up."""
    NOT_RETRIED = "not_retried"
    """The model decided that another attempt is not worth it, or its decision could not be read."""

    @property
    def why_without_answer(self) -> str:
        """Why a turn that ended so has no answer, in words; empty if it has one."""
        why = _WHY_WITHOUT_ANSWER.get(self)
        return "" if why is None else f"The turn was ended before there was an answer: {why}."


_WHY_WITHOUT_ANSWER = {
    StopReason.MAX_STEPS: "as many pieces of code were run as a turn may have",
    StopReason.MAX_TOKENS: "the model has used the tokens that a turn may have",
    StopReason.MAX_SECONDS: "the time that a turn may take was up",
    StopReason.SAME_FAILURE: "the same code failed in the same way as before",
    StopReason.CANCELLED: "the code was stopped from outside",
}


def why_no_more(attempts: Sequence[Attempt]) -> StopReason | None:
    """Why nothing follows the last of `attempts`, however much is allowed; `None` if something may."""
    last = attempts[-1]
    if last.outcome is Outcome.REJECTED:
        return StopReason.REJECTED
    if last.outcome is Outcome.CANCELLED:
        return StopReason.CANCELLED
    if last.failure is not None and any(last.failure == earlier.failure for earlier in attempts[:-1]):
        return StopReason.SAME_FAILURE
    return None


def why_stop(attempts: Sequence[Attempt], max_retries: int) -> StopReason | None:
    """Whether the last of `attempts` ends the turn, and why; `None` if another one may follow."""
    if attempts[-1].outcome is Outcome.OK:
        return StopReason.SUCCEEDED
    reason = why_no_more(attempts)
    if reason is None and len(attempts) > max_retries:
        return StopReason.RETRIES_EXHAUSTED if max_retries else StopReason.FAILED
    return reason
