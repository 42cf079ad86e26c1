"""Answers in JSON, whatever a model makes of the request for it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from coderoom._util.text import encodable

__all__ = [
    "json_objects",
    "output_arguments",
    "parse_tolerantly",
    "request_for_json",
    "strict_schema",
    "without_thoughts",
]

DecisionT = TypeVar("DecisionT", bound=BaseModel)

_MOST_TRIES = 1000
_THOUGHTS = re.compile(r"<(think|thinking)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"```\w*\s*(.*?)\s*```", re.DOTALL)
_VARIES = re.compile(r"[\s\\]+")


def parse_tolerantly(text: str, schema: type[DecisionT], shown: Sequence[str] = ()) -> DecisionT | None:
    """The decision in `text`: a JSON object alone, in a fence, or in the middle of prose.

    In prose, an object that stands in what the model was shown is a quotation and no decision: code can print one,
    and a model that refuses may cite it. Two that differ are none either.

    Args:
        text: The model's answer. What it thinks aloud in `<think>` is left out.
        schema: The decision's type.
        shown: What the model was shown.
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
    """An answer without what the model thinks aloud in `<think>`."""
    return _THOUGHTS.sub("", text)


def _bare(text: str) -> str:
    """The text as a quotation of it may look: however spaced, escaped and quoted."""
    return _VARIES.sub("", text).replace("'", '"').lower()


def json_objects(text: str) -> list[tuple[dict[str, Any], str]]:
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


def output_arguments(model_client: Any, schema: type[BaseModel]) -> dict[str, Any]:
    """The arguments of `create` that make the model answer in `schema`, as far as it can."""
    if not model_client.model_info.get("structured_output"):
        return {"json_output": True if model_client.model_info.get("json_output") else None}
    if not _is_openai(model_client):
        return {"json_output": schema}
    # The same on the wire as `json_output=schema`. With that, the client parses the answer itself: a malformed one
    # raises, its text and its tokens are lost, and a good one is logged with a warning of pydantic's.
    described = {"name": schema.__name__, "strict": True, "schema": strict_schema(schema.model_json_schema())}
    return {"extra_create_args": {"response_format": {"type": "json_schema", "json_schema": described}}}


def _is_openai(model_client: Any) -> bool:
    # By name, since the import takes its time and is for nothing where another client is used.
    return any(kind.__module__.startswith("autogen_ext.models.openai") for kind in type(model_client).__mro__)


def strict_schema(schema: Any) -> Any:
    """The schema without open ends, as OpenAI's strict mode wants it."""
    if isinstance(schema, list):
        return [strict_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict_schema(value) for key, value in schema.items()}
    return closed | {"additionalProperties": False} if schema.get("type") == "object" else closed


def request_for_json(schema: type[BaseModel]) -> str:
    """What to ask of a model whose client cannot hold it to a schema."""
    return (
        "Answer with one JSON object and nothing else. It must fit this JSON schema:\n"
        f"{json.dumps(schema.model_json_schema(), ensure_ascii=False)}"
    )
