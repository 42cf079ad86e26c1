"""The `Model` protocol, and adapters of AutoGen's model clients and of OpenAI's API to it. Used by the generator."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, TypeAdapter, ValidationError

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.models.json_output import (
    output_arguments,
    request_for_json,
    send_for_json,
    strict_schema,
)
from coderoom.models.names import innermost_client, model_name_of
from coderoom.models.ready import make_ready
from coderoom.models.replies import check_responses
from coderoom.models.services import DEFAULT_MODEL, MODEL_VARIABLE, OPENAI, client_config, is_model_text, service_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@dataclass(frozen=True)
class Message:
    """A message in a conversation with a model.

    Attributes:
        role: The role of the author.
        content: The text.
    """

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Reply:
    """The reply of a model.

    Attributes:
        text: The text of the reply.
        prompt_tokens: The number of prompt tokens; 0 if the server does not report it.
        completion_tokens: The number of completion tokens; 0 if the server does not report it.
        complete: Whether the reply is whole, that is, was not cut off at a length limit.
    """

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    complete: bool = True


@runtime_checkable
class Model(Protocol):
    """A model that the generator can call.

    Attributes:
        name: The name of the model. It is part of the key of cached solutions.
    """

    name: str

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """Request a reply.

        Args:
            messages: The whole conversation.
            form: The schema of the reply as JSON; `None`: plain text. The reply is parsed tolerantly, so models
                without structured output can be used too.

        Raises:
            Exception: The request failed.
        """


@runtime_checkable
class Embeddings(Protocol):
    """Turns texts into vectors.

    Attributes:
        name: The name of its model. Only vectors of the same model are compared.
    """

    name: str

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """The vectors of texts.

        Raises:
            Exception: The request failed.
        """


class OpenAIEmbeddings:
    """Embeddings of a service with OpenAI's API.

    Args:
        model: The name of its model.
        api_key: The key; `None`: the variable `OPENAI_API_KEY`.
        base_url: The address; `None`: the variable `OPENAI_BASE_URL`, else that of OpenAI.
    """

    def __init__(self, model: str, *, api_key: str | None = None, base_url: str | None = None) -> None:
        self.name = model
        self._options = {"api_key": api_key, "base_url": base_url}

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Embeddings.embed`."""
        from openai import AsyncOpenAI

        async with AsyncOpenAI(**self._options) as client:  # type: ignore[arg-type]
            check_responses(client._client)
            found = await client.embeddings.create(model=self.name, input=[*texts], encoding_format="float")
        return [each.embedding for each in found.data]


_REASONING = re.compile(r"(?:openai/)?(?:o\d|gpt-5)")
_HEADERS_VARIABLE = "CODEROOM_MODEL_HEADERS"
_UNREADABLE = frozenset({"LengthFinishReasonError", "ContentFilterFinishReasonError"})


def as_model(client: Any, *, max_answer_tokens: int | None = None) -> Model:
    """Adapt what a caller passes: a `Model`, which has to limit its replies itself, or a model client of AutoGen."""
    if isinstance(client, Model):
        if not isinstance(client.name, str):
            raise RequestError(f"the name of a model is a text, not {client.name!r:.200}")
        if max_answer_tokens is not None:
            raise RequestError("max_answer_tokens= works with a model client of AutoGen or model=; limit your Model.")
        return client
    # This package does not import AutoGen. A caller with one of its clients has done so.
    models = sys.modules.get("autogen_core.models")
    if models is not None and isinstance(client, models.ChatCompletionClient):
        return AutoGenModel(client, max_answer_tokens=max_answer_tokens)
    raise RequestError(f"expected a model client of AutoGen or a coderoom.generation.Model, got {client!r:.200}")


class AutoGenModel:
    """Adapts a model client of AutoGen.

    Args:
        client: The client. It is not closed.
        max_answer_tokens: The most tokens of one reply; `None`: the client's own limit.
    """

    def __init__(self, client: Any, *, max_answer_tokens: int | None = None) -> None:
        self._client = client
        self._types = sys.modules["autogen_core.models"]
        self._limit = {} if max_answer_tokens is None else _answer_limit(client, max_answer_tokens)
        self.name = model_name_of(client)

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """See `Model.complete`."""
        await make_ready(self._client)
        payload = [self._message(message) for message in messages]
        described = form if form is not None and _is_closed(form) else None
        arguments: dict[str, Any] = {}
        info = self._client.model_info
        if described is not None:
            arguments = output_arguments(self._client, described)
        elif form is not None and info.get("json_output"):
            arguments = {"json_output": True}

        async def send(arguments: dict[str, Any], describe: bool) -> Any:
            request = payload
            if described is not None and (describe or not info.get("structured_output")):
                request = [*payload, self._message(Message("user", request_for_json(described)))]
            extra = {**arguments.get("extra_create_args", {}), **self._limit}
            return await self._client.create(request, **arguments | ({"extra_create_args": extra} if extra else {}))

        try:
            result = await send_for_json(self._client, arguments, send)
        except Exception as error:
            if isinstance(error, ValidationError) or type(error).__name__ in _UNREADABLE:
                return Reply("", complete=False)  # The model replied, even if the client could not parse the reply.
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
    """A model behind an endpoint with OpenAI's chat completions API.

    Args:
        name: The model; `None`: the environment variable `CODEROOM_MODEL`, else `gpt-4o`. Without `base_url`, it may
            name a service with OpenAI's API, such as `gemini:NAME`.
        api_key: The key; `None`: the variable `OPENAI_API_KEY`. A server given by `base_url` may need none.
        base_url: The address; `None`: the variable `OPENAI_BASE_URL`, else that of OpenAI.
        headers: Headers for every request; `None`: the JSON object in the variable `CODEROOM_MODEL_HEADERS`.
        timeout: The most seconds that a request may take.
        max_answer_tokens: The most tokens of one reply; `None`: the server's own limit.

    Raises:
        MissingDependencyError: There is no key.
        RequestError: The model's service has another API, or the variable is not a JSON object of strings.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 120.0,
        max_answer_tokens: int | None = None,
    ) -> None:
        from openai import AsyncOpenAI

        named = name or os.environ.get(MODEL_VARIABLE, "").strip() or DEFAULT_MODEL
        self.name = named.removeprefix("openai:")
        key, address = api_key or os.environ.get("OPENAI_API_KEY"), base_url or os.environ.get("OPENAI_BASE_URL")
        if base_url is None and self.name == named and is_model_text(named):
            service = service_of(named)
            if service is None or service[0].provider != OPENAI:
                made = f"model_client=coderoom.configs.make_model({named!r})"
                raise RequestError(f"the model {named!r} needs a client of its own; give {made}")
            found = client_config(named, os.environ)
            self.name, key, address = found["model"], api_key or found["api_key"], found["base_url"]
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
        self._limit: dict[str, Any] = {} if max_answer_tokens is None else {_limit_name(self.name): max_answer_tokens}

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """See `Model.complete`."""
        payload: list[Any] = [{"role": message.role, "content": message.content} for message in messages]
        create = self._client().chat.completions.create

        async def send(arguments: dict[str, Any], _: bool) -> Any:
            return await create(model=self.name, messages=payload, **arguments, **self._limit)

        result = await send_for_json(self, _response_format(form), send)
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
        """Close the connections of this event loop."""
        with self._lock:
            client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _client(self) -> AsyncOpenAI:
        """The client of this event loop: connections cannot be used in another one."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                known = {each: client for each, client in self._clients.items() if not each.is_closed()}
                self._clients = {**known, loop: self._make_client()}
                check_responses(self._clients[loop]._client)
            return self._clients[loop]


def _response_format(form: type[BaseModel] | None) -> dict[str, Any]:
    if form is None:
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
        return TypeAdapter(dict[str, str]).validate_json(text)
    except ValidationError:  # It shows the value, which may be a key.
        why = f'{_HEADERS_VARIABLE} must be a JSON object of strings, such as {{"x-api-key": "..."}}.'
    raise RequestError(why)


def _is_closed(form: type[BaseModel]) -> bool:
    return bool(getattr(form, "closed", True))


def _limit_name(model: str) -> str:
    """The field of OpenAI's API that limits a reply. Reasoning models reject the older one, many servers the newer."""
    return "max_completion_tokens" if _REASONING.match(model) else "max_tokens"


def _answer_limit(client: Any, tokens: int) -> dict[str, Any]:
    """The extra arguments that limit a reply; none if the client takes no extra arguments."""
    client = innermost_client(client)
    parameters = inspect.signature(client.create).parameters
    if "extra_create_args" not in parameters and inspect.Parameter.VAR_KEYWORD not in (
        each.kind for each in parameters.values()
    ):
        return {}
    is_ollama = any(kind.__module__.startswith("autogen_ext.models.ollama") for kind in type(client).__mro__)
    return {"num_predict" if is_ollama else _limit_name(model_name_of(client)): tokens}
