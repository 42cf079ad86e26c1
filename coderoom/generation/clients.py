"""Models of the generator: AutoGen's model clients, and a service with OpenAI's API."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel, TypeAdapter, ValidationError

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.generation.models import Message, Model, Reply
from coderoom.models.calling import make_ready
from coderoom.models.clients import make_client
from coderoom.models.json_output import send_for_json
from coderoom.models.names import innermost_client, model_name_of
from coderoom.models.services import (
    DEFAULT_MODEL,
    MODEL_VARIABLE,
    NO_KEY,
    OPENAI,
    client_config,
    is_model_text,
    service_of,
)
from coderoom.models.structured import create_in_form, is_unreadable
from coderoom.models.watching import watch_client

_REASONING = re.compile(r"(?:openai/)?(?:o\d|gpt-5)")
_HEADERS_VARIABLE = "CODEROOM_MODEL_HEADERS"


def as_model(client: Any, *, max_answer_tokens: int | None = None) -> Model:
    """Adapt what a caller passes: a `Model`, which has to limit its replies itself, or a model client of AutoGen."""
    if isinstance(client, Model):
        if not isinstance(client.name, str):
            raise RequestError(f"the name of a model is a text, not {client.name!r:.200}")
        if max_answer_tokens is not None:
            raise RequestError("max_answer_tokens= works with a model client of AutoGen or model=; limit your Model.")
        return client
    if isinstance(client, ChatCompletionClient):
        return AutoGenModel(client, max_answer_tokens=max_answer_tokens)
    raise RequestError(f"expected a model client of AutoGen or a coderoom.generation.Model, got {client!r:.200}")


class AutoGenModel:
    """Adapts a model client of AutoGen.

    Args:
        client: The client. It is not closed.
        max_answer_tokens: The most tokens of one reply; `None`: the client's own limit.
    """

    is_watched = True

    def __init__(self, client: ChatCompletionClient, *, max_answer_tokens: int | None = None) -> None:
        self._client = client
        self._limit = {} if max_answer_tokens is None else _answer_limit(client, max_answer_tokens)
        self.name = model_name_of(client)

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """See `Model.complete`."""
        await make_ready(self._client)
        unwatch = watch_client(self._client)
        try:
            return await self._complete(list(map(_of_autogen, messages)), form)
        except Exception as error:
            if is_unreadable(error):
                return Reply("", complete=False)
            raise
        finally:
            unwatch()

    async def _complete(self, payload: Sequence[LLMMessage], form: type[BaseModel] | None) -> Reply:

        async def create(messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
            if extra := {**arguments.get("extra_create_args", {}), **self._limit}:
                arguments["extra_create_args"] = extra
            return await self._client.create(messages, **arguments)

        async def send(arguments: dict[str, Any], _: bool) -> CreateResult:
            return await create(payload, **arguments)

        if form is None:
            result = await create(payload)
        elif getattr(form, "closed", True):
            result = await create_in_form(self._client, payload, form, source="generator", create=create)
        else:  # A schema cannot say what is asked for; the request does.
            wants_json = bool(self._client.model_info.get("json_output"))
            result = await send_for_json(self._client, {"json_output": True} if wants_json else {}, send)
        text = result.content if isinstance(result.content, str) else ""
        usage = result.usage
        return Reply(text, usage.prompt_tokens, usage.completion_tokens, result.finish_reason != "length")


def _of_autogen(message: Message) -> LLMMessage:
    match message.role:
        case "system":
            return SystemMessage(content=message.content)
        case "user":
            return UserMessage(content=message.content, source="generator")
        case _:
            return AssistantMessage(content=message.content, source="model")


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

    is_watched = True

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
        self._config = {
            "model": self.name,
            "api_key": key or NO_KEY,
            **({"base_url": address} if address else {}),
            "default_headers": _headers(headers),
            "timeout": timeout,
            "max_retries": 0,
            "include_name_in_message": False,
        }
        self._most_tokens = max_answer_tokens
        self._models: dict[asyncio.AbstractEventLoop, AutoGenModel] = {}
        self._lock = threading.Lock()

    async def complete(self, messages: Sequence[Message], form: type[BaseModel] | None = None) -> Reply:
        """See `Model.complete`."""
        loop = asyncio.get_running_loop()
        with self._lock:  # Connections cannot be used in another event loop.
            if loop not in self._models:
                known = {each: model for each, model in self._models.items() if not each.is_closed()}
                model = AutoGenModel(make_client(OPENAI, self._config), max_answer_tokens=self._most_tokens)
                self._models = {**known, loop: model}
            model = self._models[loop]
        return await model.complete(messages, form)

    async def close(self) -> None:
        """Close the connections of this event loop."""
        with self._lock:
            model = self._models.pop(asyncio.get_running_loop(), None)
        if model is not None:
            await model._client.close()


def _headers(given: Mapping[str, str] | None) -> dict[str, str]:
    text = os.environ.get(_HEADERS_VARIABLE, "").strip()
    if given is not None or not text:
        return dict(given or {})
    try:
        return TypeAdapter(dict[str, str]).validate_json(text)
    except ValidationError:  # It shows the value, which may be a key.
        why = f'{_HEADERS_VARIABLE} must be a JSON object of strings, such as {{"x-api-key": "..."}}.'
    raise RequestError(why)


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
