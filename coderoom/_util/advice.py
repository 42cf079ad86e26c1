"""One line of advice for errors of model services. Used where a failed model request is reported."""

from __future__ import annotations

import re

_ADVICE = {
    "AuthenticationError": "Check the key of your model service (OPENAI_API_KEY), or name another model "
    "(--model, or model= from Python).",
    "PermissionDeniedError": "The key of your model service does not allow this model: use another key, or another "
    "model.",
    "NotFoundError": "Check the model's name, and the address of your model service (OPENAI_BASE_URL).",
    "APIConnectionError": "Check the address of your model service (OPENAI_BASE_URL) and the network.",
    "APITimeoutError": "The model service did not answer in time: try again later.",
    "insufficient_quota": "There is no credit left at the model service: check its billing, or use another key.",
    "RateLimitError": "The model service asks for a pause: try again later.",
    "InternalServerError": "The model service reports an internal error: try again later.",
    # The openai package accepts any page as an answer.
    "object has no attribute 'usage": "The server at this address is not a model service: check OPENAI_BASE_URL.",
    "RemoteProtocolError": "The model service closed the connection in the middle of its answer: try again.",
    "content_filter": "The model service's content filter refused this: rephrase it.",
    "context_length_exceeded": "Give the agents a bounded model_context, or a shorter task.",
}


def advice_for(cause: BaseException) -> str:
    """The advice for an exception; empty if there is none."""
    # Not every version of OpenAI's package has the code in the text.
    text = f"{type(cause).__name__} {getattr(cause, 'code', '')} {cause}"
    return next((advice for sign, advice in _ADVICE.items() if re.search(rf"\b{sign}\b", text)), "")


def in_words(who: str, cause: BaseException) -> str:
    """Say who failed and why, with advice if there is any."""
    text, advice = f"{who} failed: {type(cause).__name__}: {cause}".rstrip(), advice_for(cause)
    if not advice:
        return text
    return f"{text} {advice}" if text.endswith((".", "!", "?")) else f"{text}. {advice}"
