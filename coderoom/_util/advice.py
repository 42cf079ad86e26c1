"""What a failure of somebody else's means, in a line."""

from __future__ import annotations

import re

__all__ = ["advice_for", "in_words"]

_ADVICE = {
    "AuthenticationError": "Check the key of your model service (OPENAI_API_KEY), or name another model "
    "(--model, or model= from Python).",
    "PermissionDeniedError": "The key of your model service does not allow this model: use another key, or another "
    "model.",
    "NotFoundError": "Check the model's name, and the address of your model service (OPENAI_BASE_URL).",
    "APIConnectionError": "Check the address of your model service (OPENAI_BASE_URL) and the network.",
    "APITimeoutError": "The model service did not answer in time: try again later.",
    "insufficient_quota": "There is no credit left at the model service: see to its billing, or use another key.",
    "RateLimitError": "The model service asks for a pause: try again later.",
    "InternalServerError": "The model service failed by itself: try again later.",
    # OpenAI's package takes a page for an answer.
    "object has no attribute 'usage": "What answers there is no model service: check its address (OPENAI_BASE_URL).",
    "RemoteProtocolError": "The model service broke off in the midst of its answer: try again.",
    "content_filter": "The model service's content filter refuses this: say it in other words.",
    "context_length_exceeded": "Give the agents a bounded model_context, or a shorter task.",
}


def advice_for(cause: BaseException) -> str:
    """What helps, where that is known; else an empty string."""
    # Not every version of OpenAI's package has the code in the text.
    told = f"{type(cause).__name__} {getattr(cause, 'code', '')} {cause}"
    return next((advice for sign, advice in _ADVICE.items() if re.search(rf"\b{sign}\b", told)), "")


def in_words(who: str, cause: BaseException) -> str:
    """Say who failed, of what, and what helps where that is known.

    Args:
        who: Who failed, as the beginning of a sentence.
        cause: What was raised.
    """
    return f"{who} failed: {type(cause).__name__}: {cause} {advice_for(cause)}".rstrip()
