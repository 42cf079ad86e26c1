"""Adapts AutoGen's model clients and OpenAI's API to the `Model` protocol."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from coderoom._util.json_output import output_arguments, request_for_json, strict_schema
from coderoom.errors import MissingDependencyError, RequestError
from coderoom.generation.model import Message, Model, Reply
from coderoom.generation.rate_limit import one_more

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["AutoGenModel", "OpenAIModel", "as_model"]

_HEADERS_VARIABLE = "CODEROOM_MODEL_HEADERS"
_UNREADABLE = frozenset({"LengthFinishReasonError", "ContentFilterFinishReasonError"})


def as_model(client: Any) -> Model:
    """A model of what a caller may give for one.

    Args:
        client: A `Model`, or a model client of AutoGen's.

    Raises:
        RequestError: It is neither.
    """
    if isinstance(client, Model):
        return client
    # Whoever has a client of AutoGen's has imported it; this package does not.
    models = sys.modules.get("autogen_core.models")
    if models is not None and isinstance(client, models.ChatCompletionClient):
        return AutoGenModel(client)
    raise RequestError(f"expected a model client of AutoGen's or a coderoom.generation.Model, got {client!r:.200}")


class AutoGenModel:
    """A model client of AutoGen's.

    Args:
        client: The client; it stays open.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._types = sys.modules["autogen_core.models"]
        self.name = _name_of(client)

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """See `Model.complete`."""
        told = [self._message(message) for message in messages]
        arguments: dict[str, Any] = {}
        info = self._client.model_info
        if form is not None and _is_closed(form):
            arguments = output_arguments(self._client, form)
            if not info.get("structured_output"):
                told.append(self._message(Message("user", request_for_json(form))))
        elif form is not None and info.get("json_output"):
            arguments = {"json_output": True}
        try:
            result = await self._client.create(told, **arguments)
        except Exception as error:
            if isinstance(error, ValidationError) or type(error).__name__ in _UNREADABLE:
                return Reply("", complete=False)  # An answer that the client could not read is an answer.
            raise
        text = result.content if isinstance(result.content, str) else ""
        usage = result.usage
        return Reply(text, usage.prompt_tokens, usage.completion_tokens, result.finish_reason != "length")

    def _message(self, message: Message) -> Any:
        if message.role == "system":
            return self._types.SystemMessage(content=message.content)
        kind = self._types.UserMessage if message.role == "user" else self._types.AssistantMessage
        return kind(content=message.content, source="generator" if message.role == "user" else "model")


class OpenAIModel:
    """A model behind an endpoint that speaks OpenAI's protocol of chat completions.

    Args:
        name: The model; `None`: the variable `CODEROOM_MODEL`, else `gpt-4o`.
        api_key: The key; `None`: the variable `OPENAI_API_KEY`. A server with an address of its own may need none.
        base_url: The address; `None`: the variable `OPENAI_BASE_URL`, else OpenAI's own.
        headers: Headers that go with every request; `None`: the JSON object of the variable `CODEROOM_MODEL_HEADERS`.
        timeout: The seconds that a request may take.

    Raises:
        MissingDependencyError: There is no key.
        RequestError: The variable has no headers in it.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 120.0,
    ) -> None:
        from openai import AsyncOpenAI

        named = name or os.environ.get("CODEROOM_MODEL", "").strip() or "gpt-4o"
        self.name = named.removeprefix("openai:")
        key, address = api_key or os.environ.get("OPENAI_API_KEY"), base_url or os.environ.get("OPENAI_BASE_URL")
        if not key and not address:
            raise MissingDependencyError(
                f"The model {self.name!r} needs a key: give api_key=, set OPENAI_API_KEY, or give base_url= of a "
                "server that needs none."
            )
        own = _headers(headers)
        self._make_client: Callable[[], AsyncOpenAI] = lambda: AsyncOpenAI(
            api_key=key or "none", base_url=address, default_headers=own, timeout=timeout, max_retries=0
        )
        self._clients: dict[asyncio.AbstractEventLoop, AsyncOpenAI] = {}
        self._lock = threading.Lock()
        self._takes_schemas = True

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """See `Model.complete`."""
        from openai import BadRequestError

        told: list[Any] = [{"role": message.role, "content": message.content} for message in messages]
        client, arguments = self._client(), self._arguments(form)
        try:
            result = await client.chat.completions.create(model=self.name, messages=told, **arguments)
        except BadRequestError:
            if not arguments:
                raise
            self._takes_schemas = False  # Many servers speak the protocol but for this.
            await one_more()
            result = await client.chat.completions.create(model=self.name, messages=told)
        if not result.choices:
            return Reply("", complete=False)
        choice, usage = result.choices[0], result.usage
        return Reply(
            choice.message.content or choice.message.refusal or "",
            usage.prompt_tokens if usage is not None else 0,
            usage.completion_tokens if usage is not None else 0,
            choice.finish_reason != "length",
        )

    async def close(self) -> None:
        """Close its connections of this event loop."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _client(self) -> AsyncOpenAI:
        """The client of this event loop: connections cannot be used in another one."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._make_client()
            with self._lock:
                known = {each: other for each, other in self._clients.items() if not each.is_closed()}
                self._clients = {**known, loop: client}
        return client

    def _arguments(self, form: type[BaseModel] | None) -> dict[str, Any]:
        if form is None or not self._takes_schemas:
            return {}
        if not _is_closed(form):
            return {"response_format": {"type": "json_object"}}
        described = {"name": form.__name__, "strict": True, "schema": strict_schema(form.model_json_schema())}
        return {"response_format": {"type": "json_schema", "json_schema": described}}


def _headers(given: Mapping[str, str] | None) -> dict[str, str]:
    text = os.environ.get(_HEADERS_VARIABLE, "").strip()
    if given is not None or not text:
        return dict(given or {})
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
        # What it says may be a key.
        raise RequestError(f'{_HEADERS_VARIABLE} has to be a JSON object of texts, such as {{"x-api-key": "..."}}.')
    return told


def _is_closed(form: type[BaseModel]) -> bool:
    return bool(getattr(form, "closed", True))


def _name_of(client: Any) -> str:
    """What a client calls its model; clients have no common way to tell."""
    arguments = getattr(client, "_create_args", None)
    if isinstance(arguments, Mapping) and isinstance(arguments.get("model"), str):
        return str(arguments["model"])
    info = client.model_info
    return f"{type(client).__name__}:{info.get('family', 'unknown')}"
