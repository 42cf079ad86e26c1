"""Requests to models for decisions, by structured output or in words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage, UserMessage
from pydantic import BaseModel, ValidationError

from coderoom._util.tasks import aside, await_with_token
from coderoom._util.text import encodable
from coderoom.models.calling import make_ready, with_encoded_pictures
from coderoom.models.json_output import (
    output_arguments,
    parse_tolerantly,
    request_for_json,
    send_for_json,
)

DecisionT = TypeVar("DecisionT", bound=BaseModel)

_UNREADABLE = frozenset({"LengthFinishReasonError", "ContentFilterFinishReasonError"})
"""The errors of the OpenAI package, besides `ValueError`, for an answer that it cannot parse."""


@dataclass(frozen=True)
class Answer(Generic[DecisionT]):
    """A model's answer to a structured question: the decision (`None` if it cannot be read), the text and the usage."""

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
    """Ask for a decision, by structured output if the client and its service have it, else by asking for JSON.

    The last message is the question. The value of a malformed answer is `None`; an error of the client is raised.
    """

    async def create(question: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        reply = model_client.create(question, cancellation_token=cancellation_token, **arguments)
        return await await_with_token(reply, cancellation_token)

    await make_ready(model_client)
    ready = await with_encoded_pictures(messages)
    try:
        result = await create_in_form(model_client, ready, schema, source=source, create=create)
    except Exception as error:
        if is_unreadable(error):
            return Answer(None, f"(unreadable: {type(error).__name__})", None)
        raise
    text = await aside(encodable, result.content) if isinstance(result.content, str) else ""
    shown = [message.content for message in messages if isinstance(message, UserMessage)]
    texts = [part for content in shown for part in ([content] if isinstance(content, str) else content)]
    shown = [part for part in texts if isinstance(part, str)]
    value = await aside(parse_tolerantly, text, schema, shown)
    if value is None and result.finish_reason == "length":
        text = f"{text.rstrip()} (The answer was cut off at its token limit.)".lstrip()
    return Answer(value, text, result.usage)


async def create_in_form(
    model_client: ChatCompletionClient,
    messages: Sequence[LLMMessage],
    schema: type[BaseModel],
    *,
    source: str,
    create: Callable[..., Awaitable[CreateResult]],
) -> CreateResult:
    """Send a request for JSON of a schema; `create` sends messages with further arguments of the client."""
    describes = not model_client.model_info.get("structured_output")
    in_words = UserMessage(content=request_for_json(schema), source=source)

    async def send(arguments: dict[str, Any], describe: bool) -> CreateResult:
        return await create([*messages, in_words] if describe or describes else list(messages), **arguments)

    return await send_for_json(model_client, output_arguments(model_client, schema), send)


def is_unreadable(error: BaseException) -> bool:
    """Whether the model has answered, and the client could not parse the answer."""
    return isinstance(error, ValidationError) or type(error).__name__ in _UNREADABLE
