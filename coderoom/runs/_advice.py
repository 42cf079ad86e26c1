"""What a failure of somebody else's means, in a line."""

from __future__ import annotations

__all__ = ["in_words"]

_ADVICE = {
    "AuthenticationError": " Check the key of your model service (OPENAI_API_KEY), or name another model "
    "(--model, or model= from Python).",
    "APIConnectionError": " Check the address of your model service (OPENAI_BASE_URL) and the network.",
    "RateLimitError": " The model service asks for a pause: try again later.",
    "context_length_exceeded": " Give the agents a bounded model_context, or a shorter task.",
}


def in_words(who: str, cause: BaseException) -> str:
    """Say who failed, of what, and what helps where that is known.

    Args:
        who: Who failed, as the beginning of a sentence.
        cause: What was raised.
    """
    hint = next((advice for sign, advice in _ADVICE.items() if sign in f"{type(cause).__name__} {cause}"), "")
    return f"{who} failed: {type(cause).__name__}: {cause}{hint}"
