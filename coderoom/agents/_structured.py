"""Asking a model for a structured decision, whatever the model can do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, LLMMessage, RequestUsage, UserMessage
from pydantic import BaseModel, ValidationError

__all__ = ["Answer", "ask_structured", "parse_tolerantly"]

DecisionT = TypeVar("DecisionT", bound=BaseModel)

_UNREADABLE = frozenset({"LengthFinishReasonError", "ContentFilterFinishReasonError"})
"""What the OpenAI package raises, beside a `ValidationError`, for an answer that it cannot parse."""


@dataclass(frozen=True)
class Answer(Generic[DecisionT]):
    """A model's answer to a structured question.

    Attributes:
        value: The decision, or `None` if the answer could not be read as one.
        text: The answer as the model gave it.
        usage: The tokens that the call took, where the client told.
    """

    value: DecisionT | None
    text: str
    usage: RequestUsage | None


async def ask_structured(
    model_client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    schema: type[DecisionT],
    *,
    source: str,
    cancellation_token: CancellationToken,
) -> Answer[DecisionT]:
    """Ask for a decision: by structured output where the client has it, else by asking for JSON.

    Args:
        model_client: The model to ask.
        messages: The whole conversation, ending with the question.
        schema: The decision's type.
        source: The name under which a request for JSON is added.
        cancellation_token: Ends the call.

    Returns:
        The answer. A malformed one has `value=None`; it never raises.
    """
    question = list(messages)
    json_output: bool | type[BaseModel] | None = None
    if model_client.model_info.get("structured_output"):
        json_output = schema
    else:
        json_output = True if model_client.model_info.get("json_output") else None
        question.append(UserMessage(content=_request_for_json(schema), source=source))
    call = asyncio.ensure_future(
        model_client.create(question, json_output=json_output, cancellation_token=cancellation_token)
    )
    cancellation_token.link_future(call)
    try:
        result = await call
    except ValidationError as error:
        return Answer(None, f"(unreadable: {error.error_count()} mistakes)", None)
    except Exception as error:
        if type(error).__name__ in _UNREADABLE:
            return Answer(None, f"(unreadable: {error})", None)
        raise
    text = result.content if isinstance(result.content, str) else ""
    return Answer(parse_tolerantly(text, schema), text, result.usage)


def parse_tolerantly(text: str, schema: type[DecisionT]) -> DecisionT | None:
    """The first JSON object in `text` that fits `schema`: alone, in a fence, or in the middle of prose."""
    for candidate in _json_objects(text):
        try:
            return schema.model_validate(candidate)
        except ValidationError:
            continue
    return None


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    position = text.find("{")
    # A failed decode may read to the end of the text, so a long run of braces would cost its square.
    tries = 100
    while position >= 0 and tries > 0:
        tries -= 1
        end = position + 1
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            pass
        else:
            if isinstance(value, dict):
                yield value
        position = text.find("{", end)


def _request_for_json(schema: type[BaseModel]) -> str:
    return (
        "Answer with one JSON object and nothing else. It must fit this JSON schema:\n"
        f"{json.dumps(schema.model_json_schema(), ensure_ascii=False)}"
    )
