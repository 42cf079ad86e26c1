"""Asking models for JSON and parsing their answers tolerantly. Used for decisions and by the generator."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from weakref import ref

from pydantic import BaseModel, ValidationError

from coderoom._util.text import encodable, in_texts
from coderoom.models.names import address_of, innermost_client, is_openai, model_name_of
from coderoom.models.services import says

DecisionT = TypeVar("DecisionT", bound=BaseModel)
T = TypeVar("T")

_MOST_TRIES = 1000
_FENCE = re.compile(r"```\w*+")
_VARIES = re.compile(r"[\s\\]+")


def parse_tolerantly(text: str, schema: type[DecisionT], shown: Sequence[str] = ()) -> DecisionT | None:
    """Find the decision in a model's answer: a JSON object alone, in a fence, or in prose.

    In prose, an object that also occurs in the model's input (`shown`) is a quotation and not a decision: code can
    print one, and a model may quote it. Two different decisions do not count either.
    """
    from coderoom.blocks import without_thoughts  # Slow to import, and quick commands import this module.

    answer = without_thoughts(text).strip()
    objects = json_objects(answer)
    fence = _FENCE.match(answer) if answer.endswith("```") else None
    if len(objects) != 1 or objects[0][1] not in {answer, answer[fence.end() : -3].strip() if fence else answer}:
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
            found.append((in_texts(value, encodable), text[position:after]))
            end = after
        except (ValueError, RecursionError):
            pass
        position = text.find("{", end)
    return []


def output_arguments(model_client: Any, schema: type[BaseModel]) -> dict[str, Any]:
    """The arguments of `create` for an answer in `schema`, as far as the model supports that."""
    if not model_client.model_info.get("structured_output"):
        return {"json_output": True if model_client.model_info.get("json_output") else None}
    if not is_openai(model_client):
        return {"json_output": schema}
    # The same request as with `json_output=schema`. With that, the client would parse the answer: a malformed one
    # raises, its text and token counts are lost, and a valid one causes a warning of pydantic's.
    described = {"name": schema.__name__, "strict": True, "schema": strict_schema(schema.model_json_schema())}
    return {"extra_create_args": {"response_format": {"type": "json_schema", "json_schema": described}}}


_PLAIN: Final[set[Any]] = set()
"""The models on servers that refuse requests for JSON output; a client, if its server is not known."""
_REFUSED = frozenset({400, 404, 405, 406, 415, 422, 500, 501, 502, 503})
"""The statuses of a refused argument: that of a wrong request, or of a server that fails at what it does not know."""


async def send_for_json(
    model_client: Any, arguments: dict[str, Any], send: Callable[[dict[str, Any], bool], Awaitable[T]]
) -> T:
    """Send a request with the arguments of `output_arguments`, or without them if the service refuses these.

    Many servers with OpenAI's protocol answer 400 to `response_format`, and some 500. The server and the model are
    remembered. The second argument of `send` says whether the request must describe the JSON in words.
    """
    if not any(arguments.values()):
        return await send({}, False)
    address = address_of(model_client)
    asked = (address, model_name_of(model_client)) if address else ref(innermost_client(model_client))
    if asked in _PLAIN:
        return await send({}, True)
    try:
        return await send(arguments, False)
    except Exception as error:
        if not may_refuse_arguments(error):
            raise
        refusal = error
    try:
        result = await send({}, True)
    except Exception as error:
        raise (refusal if may_refuse_arguments(error) else error) from None
    _PLAIN.add(asked)
    return result


def may_refuse_arguments(error: Exception) -> bool:
    """Whether a service may have refused a request for the arguments that not every service knows."""
    return getattr(error, "status_code", None) in _REFUSED and not says(error, "wrong beside its arguments")


def strict_schema(schema: Any) -> Any:
    """The schema without additional properties, for OpenAI's strict mode."""
    if isinstance(schema, list):
        return [strict_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict_schema(value) for key, value in schema.items()}
    return closed | {"additionalProperties": False} if schema.get("type") == "object" else closed


REQUEST_FOR_JSON: Final = "Answer with one JSON object and nothing else. It must fit this JSON schema:"


def request_for_json(schema: type[BaseModel]) -> str:
    """The request for JSON, for a model without structured output."""
    return f"{REQUEST_FOR_JSON}\n{json.dumps(schema.model_json_schema(), ensure_ascii=False)}"
