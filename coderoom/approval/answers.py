"""What a person's answer means, wherever it was given."""

from __future__ import annotations

import re
from typing import Final

from autogen_agentchat.agents import ApprovalResponse

from coderoom.approval.base import no

__all__ = ["DEFAULT_PROMPT", "TRIES", "not_understood", "understand"]

DEFAULT_PROMPT: Final = "Run this code?"
TRIES: Final = 3
"""How often a person is asked before an answer that is not understood is a no."""

# A yes with something behind it that is no "because" may be a yes with a condition, which nobody would keep.
_ANSWER = re.compile(
    r"(?:(?P<no>no?)\b[\s,;:.!-]*(?:because\b)?|(?P<yes>y(?:es)?)[\s,;:.!]*(?:because\b|$))(?P<reason>.*)",
    re.IGNORECASE | re.DOTALL,
)


def understand(answer: str, who: str) -> ApprovalResponse | None:
    """Read an answer.

    Args:
        answer: What the person wrote. Nothing at all is a no.
        who: What to call the person in a reason that they did not give.

    Returns:
        The decision, or `None` if the answer is neither a yes nor a no.
    """
    if not answer.strip():
        return no(f"{who} said no.")
    match = _ANSWER.fullmatch(answer.strip())
    if match is None:
        return None
    approved = match["yes"] is not None
    reason = match["reason"].strip()
    return ApprovalResponse(approved=approved, reason=reason or f"{who} said {'yes' if approved else 'no'}.")


def not_understood() -> ApprovalResponse:
    """The no after as many answers as there may be."""
    return no(f"The person's answer was not understood {TRIES} times.")
