"""Errors of model services in a sentence or two, with advice. Used where a failed model request is reported."""

from __future__ import annotations

import re

_SPENT = r"insufficient_quota|Error code: 402|(?i:credit balance|insufficient (?:balance|credits|funds))"
_NO_SUCH_MODEL = (
    r"model_not_found|DeploymentNotFound|No endpoints found|not a valid model ID"
    r"|(?i:\bmodels?\b[^.]{0,300}(?:not found|not exist))"
)
_ADVICE = {
    _SPENT: "There is no credit left at the model service, so waiting does not help: check its billing, or use another "
    "key.",
    "AuthenticationError": "Check the key of your model service (OPENAI_API_KEY for `openai:`; `coderoom models` lists "
    "all), or name another model (--model, or model= from Python).",
    "PermissionDeniedError": "The key of your model service does not allow this model: use another key, or another "
    "model.",
    _NO_SUCH_MODEL: "The model service does not have this model: check its name.",
    "NotFoundError": "There is no model service at this address: check its base URL, which often ends in /v1 "
    "(OPENAI_BASE_URL for `openai:`; `coderoom models` lists all).",
    "APIConnectionError": "Check the address of your model service (OPENAI_BASE_URL for `openai:`; `coderoom models` "
    "lists all) and the network.",
    "APITimeoutError": "The model service did not answer in time: try again later.",
    "RateLimitError": "The model service asks for a pause: try again later.",
    "InternalServerError": "The model service reports an internal error: try again later.",
    # The openai package accepts any page as an answer.
    "object has no attribute 'usage": "The server at this address is not a model service: check its base URL "
    "(OPENAI_BASE_URL for `openai:`).",
    "RemoteProtocolError": "The model service closed the connection in the middle of its answer: try again.",
    "content_filter": "The model service's content filter refused this: rephrase it.",
    "context_length_exceeded": "Give the agents a bounded model_context, or a shorter task.",
}
_LONGEST = 500


def advice_for(cause: BaseException) -> str:
    """The advice for an exception; empty if there is none."""
    text = _signs(cause)
    return next((advice for sign, advice in _ADVICE.items() if re.search(rf"\b(?:{sign})", text)), "")


def is_out_of_credit(cause: BaseException) -> bool:
    """Whether a model service refuses requests until somebody pays, so that waiting does not help."""
    return re.search(_SPENT, _signs(cause)) is not None


def _signs(cause: BaseException) -> str:
    # Not every version of OpenAI's package has the code in the text.
    return f"{type(cause).__name__} {getattr(cause, 'code', '')} {cause}"


def said(cause: BaseException) -> str:
    """What an exception says, in a line: of an error of a model service, only its message."""
    body = getattr(cause, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message") if isinstance(inner, dict) else None
    line = " ".join((message if isinstance(message, str) and message.strip() else str(cause)).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def in_words(who: str, cause: BaseException) -> str:
    """Say who failed and why, with advice if there is any."""
    advice = advice_for(cause)
    # AutoGen's own teams put the whole traceback into the message.
    what = said(cause) if hasattr(cause, "status_code") else str(cause).partition("\nTraceback")[0]
    text = f"{who} failed: {type(cause).__name__}: {what}".rstrip(": ")
    return f"{text.rstrip('.')}. {advice}" if advice else text
