"""Asking models for JSON and parsing their answers tolerantly. Used for decisions and by the generator."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar
from weakref import WeakSet

from pydantic import BaseModel, ValidationError

from coderoom._util.text import encodable

DecisionT = TypeVar("DecisionT", bound=BaseModel)

_MOST_TRIES = 1000
_THOUGHTS = re.compile(r"<(think|thinking)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"```\w*\s*(.*?)\s*```", re.DOTALL)
_VARIES = re.compile(r"[\s\\]+")


def parse_tolerantly(text: str, schema: type[DecisionT], shown: Sequence[str] = ()) -> DecisionT | None:
    """Find the decision in a model's answer: a JSON object alone, in a fence, or in prose.

    In prose, an object that also occurs in the model's input (`shown`) is a quotation and not a decision: code can
    print one, and a model may quote it. Two different decisions do not count either.
    """
    answer = without_thoughts(text).strip()
    objects = json_objects(answer)
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


def without_thoughts(text: str) -> str:
    """An answer without the text in `<think>`."""
    return _THOUGHTS.sub("", text)


def _bare(text: str) -> str:
    """The text without differences that a quotation may have: white space, escapes and quotes."""
    return _VARIES.sub("", text).replace("'", '"').lower()


def json_objects(text: str) -> list[tuple[dict[str, Any], str]]:
    """All JSON objects in the text, each with its source; none if there are too many candidates."""
    decoder = json.JSONDecoder(strict=False)
    found: list[tuple[dict[str, Any], str]] = []
    position = text.find("{")
    # Limited, since each failed attempt may read to the end of the text.
    for _ in range(_MOST_TRIES):
        if position < 0:
            return found
        end = position + 1
        try:
            value, after = decoder.raw_decode(text, position)
            found.append((_encodable(value), text[position:after]))
            end = after
        except (ValueError, RecursionError):
            pass
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


_without_formats: WeakSet[Any] = WeakSet()
"""The clients whose servers have refused a request because of its `response_format`."""
_REFUSAL = re.compile(r"response_format|json_schema|json_object|structured.output", re.IGNORECASE)


def has_structured_output(model_client: Any) -> bool:
    """Whether the model gives answers in a schema; otherwise, the request must say it in words."""
    return bool(model_client.model_info.get("structured_output")) and not has_refused_format(model_client)


def refuses_format(model_client: Any, error: Exception) -> bool:
    """Whether the server has refused the format of the answer, for the first time: the request can be repeated without.

    From then on `output_arguments` of this client asks for no format.
    """
    if getattr(error, "status_code", None) not in (400, 422) or not _REFUSAL.search(str(error)):
        return False
    if has_refused_format(model_client):
        return False
    _without_formats.add(innermost_client(model_client))
    return True


def has_refused_format(model_client: Any) -> bool:
    """Whether the server has refused a format of the answer before."""
    return innermost_client(model_client) in _without_formats


def output_arguments(model_client: Any, schema: type[BaseModel]) -> dict[str, Any]:
    """The arguments of `create` for an answer in `schema`, as far as the model supports that."""
    if has_refused_format(model_client):
        return {}
    if not model_client.model_info.get("structured_output"):
        return {"json_output": True if model_client.model_info.get("json_output") else None}
    if not _is_openai(model_client):
        return {"json_output": schema}
    # The same request as with `json_output=schema`. With that, the client would parse the answer: a malformed one
    # raises, its text and token counts are lost, and a valid one causes a warning of pydantic's.
    described = {"name": schema.__name__, "strict": True, "schema": strict_schema(schema.model_json_schema())}
    return {"extra_create_args": {"response_format": {"type": "json_schema", "json_schema": described}}}


def _is_openai(model_client: Any) -> bool:
    # By name, since the import is slow and often not needed.
    kinds = type(innermost_client(model_client)).__mro__
    return any(kind.__module__.startswith("autogen_ext.models.openai") for kind in kinds)


def innermost_client(model_client: Any) -> Any:
    """The client that sends the requests, if others are wrapped around it, such as a cache or a rate limit."""
    while hasattr(inner := getattr(model_client, "client", None), "model_info"):
        model_client = inner
    return model_client


def strict_schema(schema: Any) -> Any:
    """The schema without additional properties, for OpenAI's strict mode."""
    if isinstance(schema, list):
        return [strict_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict_schema(value) for key, value in schema.items()}
    return closed | {"additionalProperties": False} if schema.get("type") == "object" else closed


def request_for_json(schema: type[BaseModel]) -> str:
    """The request for JSON, for a model without structured output."""
    return (
        "Answer with one JSON object and nothing else. It must fit this JSON schema:\n"
        f"{json.dumps(schema.model_json_schema(), ensure_ascii=False)}"
    )
