"""Asking a model for a structured decision, whatever the model can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, LLMMessage, RequestUsage, UserMessage
from pydantic import BaseModel, ValidationError

from coderoom._util.components import linked
from coderoom._util.connections import close_with_loop
from coderoom._util.json_output import output_arguments, parse_tolerantly, request_for_json
from coderoom._util.text import encodable

__all__ = ["Answer", "ask_structured"]

DecisionT = TypeVar("DecisionT", bound=BaseModel)

_UNREADABLE = frozenset({"LengthFinishReasonError", "ContentFilterFinishReasonError"})
"""What the OpenAI package raises, beside a `ValueError`, for an answer that it cannot parse."""


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
        The answer. A malformed one has `value=None` and raises nothing.

    Raises:
        Exception: What the client raises when the call itself fails.
    """
    question = list(messages)
    if not model_client.model_info.get("structured_output"):
        question.append(UserMessage(content=request_for_json(schema), source=source))
    arguments = output_arguments(model_client, schema)
    await close_with_loop(model_client)
    try:
        result = await linked(
            model_client.create(question, cancellation_token=cancellation_token, **arguments), cancellation_token
        )
    except Exception as error:
        if isinstance(error, ValidationError) or type(error).__name__ in _UNREADABLE:
            return Answer(None, f"(unreadable: {type(error).__name__})", None)
        raise
    text = encodable(result.content) if isinstance(result.content, str) else ""
    shown = [message.content for message in messages if isinstance(message, UserMessage)]
    texts = [part for content in shown for part in ([content] if isinstance(content, str) else content)]
    return Answer(parse_tolerantly(text, schema, [part for part in texts if isinstance(part, str)]), text, result.usage)
