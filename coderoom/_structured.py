"""Asking a model for a structured decision, whatever the model can do."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from autogen_core import CancellationToken
from autogen_core.models import ChatCompletionClient, LLMMessage, RequestUsage, UserMessage
from pydantic import BaseModel, ValidationError

from coderoom._components import linked
from coderoom._text import encodable

__all__ = ["Answer", "ask_structured", "parse_tolerantly"]

DecisionT = TypeVar("DecisionT", bound=BaseModel)

_UNREADABLE = frozenset({"LengthFinishReasonError", "ContentFilterFinishReasonError"})
"""What the OpenAI package raises, beside a `ValueError`, for an answer that it cannot parse."""
_MOST_TRIES = 1000
_THOUGHTS = re.compile(r"<(think|thinking)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"```\w*\s*(.*?)\s*```", re.DOTALL)
_VARIES = re.compile(r"[\s\\]+")


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
        question.append(UserMessage(content=_request_for_json(schema), source=source))
    arguments = _output_arguments(model_client, schema)
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


def _output_arguments(model_client: ChatCompletionClient, schema: type[BaseModel]) -> dict[str, Any]:
    """The arguments of `create` that make the model answer in `schema`, as far as it can."""
    if not model_client.model_info.get("structured_output"):
        return {"json_output": True if model_client.model_info.get("json_output") else None}
    if not _is_openai(model_client):
        return {"json_output": schema}
    # The same on the wire as `json_output=schema`. With that, the client parses the answer itself: a malformed one
    # raises, its text and its tokens are lost, and a good one is logged with a warning of pydantic's.
    described = {"name": schema.__name__, "strict": True, "schema": _strict(schema.model_json_schema())}
    return {"extra_create_args": {"response_format": {"type": "json_schema", "json_schema": described}}}


def _is_openai(model_client: ChatCompletionClient) -> bool:
    # By name, since the import takes its time and is for nothing where another client is used.
    return any(kind.__module__.startswith("autogen_ext.models.openai") for kind in type(model_client).__mro__)


def _strict(schema: Any) -> Any:
    """The schema without open ends, as OpenAI's strict mode wants it."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _strict(value) for key, value in schema.items()}
    return closed | {"additionalProperties": False} if schema.get("type") == "object" else closed


def parse_tolerantly(text: str, schema: type[DecisionT], shown: Sequence[str] = ()) -> DecisionT | None:
    """The decision in `text`: a JSON object alone, in a fence, or in the middle of prose.

    In prose, an object that stands in what the model was shown is a quotation and no decision: code can print one,
    and a model that refuses may cite it. Two that differ are none either.

    Args:
        text: The model's answer. What it thinks aloud in `<think>` is left out.
        schema: The decision's type.
        shown: What the model was shown.
    """
    answer = _THOUGHTS.sub("", text).strip()
    objects = _json_objects(answer)
    fenced = _FENCED.fullmatch(answer)
    if len(objects) != 1 or objects[0][1] not in {answer, fenced[1] if fenced else answer}:
        known = [_bare(part) for part in shown]
        objects = [(value, raw) for value, raw in objects if not any(_bare(raw) in part for part in known)]
    found: list[DecisionT] = []
    for candidate, _ in objects:
        try:
            decision = schema.model_validate(candidate)
        except ValidationError:
            continue
        if decision not in found:
            found.append(decision)
    return found[0] if len(found) == 1 else None


def _bare(text: str) -> str:
    """The text as a quotation of it may look: however spaced, escaped and quoted."""
    return _VARIES.sub("", text).replace("'", '"').lower()


def _json_objects(text: str) -> list[tuple[dict[str, Any], str]]:
    """Every JSON object in the text and how it stands there, or none at all if there is too much to look at."""
    decoder = json.JSONDecoder(strict=False)
    found: list[tuple[dict[str, Any], str]] = []
    position = text.find("{")
    # A failed try may read to the end of the text, so that very many of them would cost its square.
    for _ in range(_MOST_TRIES):
        if position < 0:
            return found
        end = position + 1
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            pass
        else:
            found.append((_encodable(value), text[position:end]))
        position = text.find("{", end)
    return []


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {encodable(key): _encodable(item) for key, item in value.items()}
    return value


def _request_for_json(schema: type[BaseModel]) -> str:
    return (
        "Answer with one JSON object and nothing else. It must fit this JSON schema:\n"
        f"{json.dumps(schema.model_json_schema(), ensure_ascii=False)}"
    )
