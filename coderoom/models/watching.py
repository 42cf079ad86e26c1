"""Requests to models as steps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import cache, wraps
from typing import Any, Final

from autogen_core import CancellationToken
from autogen_core.models import CreateResult, LLMMessage
from autogen_core.tools import Tool
from pydantic import BaseModel

from coderoom._util.tasks import await_with_token
from coderoom.models.calling import with_encoded_pictures
from coderoom.models.names import config_of, innermost_client, model_name_of
from coderoom.models.prices import priced_as
from coderoom.models.replies import keep_whole
from coderoom.steps import MODEL, await_step, doing_step, find_step, is_observed, once
from coderoom.steps.watching import put


def watch_client(client: Any) -> Callable[[], None]:
    """Make each request of a model client a step, until what this returns is called."""
    keep_whole(client)
    return put(client, lambda: _watched(client))


def _watched(client: Any) -> dict[str, Any]:
    create, create_stream = client.create, client.create_stream
    asked = cache(lambda: facts_of(client))

    def load(found: Any) -> CreateResult:
        # A recording in order has to go on after the replies that are known.
        getattr(client, "skip_reply", lambda: None)()
        return CreateResult.model_validate(found)

    async def wait(request: Any, arguments: Mapping[str, Any]) -> None:
        token = arguments.get("cancellation_token") or CancellationToken()
        await await_with_token(await_step(MODEL, request), token)

    @wraps(create)
    async def created(messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        messages = await with_encoded_pictures(messages)
        request = request_of(asked(), messages, arguments) if is_observed() else {}

        async def ask() -> CreateResult:
            await wait(request, arguments)
            result: CreateResult = await create(messages, **arguments)
            return result

        return await once(MODEL, request, ask, _dump, load)

    @wraps(create_stream)
    async def streamed(messages: Sequence[LLMMessage], **arguments: Any) -> AsyncGenerator[str | CreateResult, None]:
        messages = await with_encoded_pictures(messages)
        request = request_of(asked(), messages, arguments) if is_observed() else {}
        found = await find_step(MODEL, request)
        if found is not None:
            yield load(found)
            return
        with doing_step(MODEL, request) as keep:  # If the reader leaves before the result, it has failed.
            await wait(request, arguments)
            async with aclosing(create_stream(messages, **arguments)) as items:
                async for item in items:
                    if isinstance(item, CreateResult):
                        await keep(_dump(item))
                    yield item

    return {"create": created, "create_stream": streamed}


def request_of(
    asked: Mapping[str, Any], messages: Sequence[LLMMessage], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """A request to a model as JSON-like data, but for its messages; after what `asked` has."""
    tools = [tool.schema if isinstance(tool, Tool) else tool for tool in arguments.get("tools", ())]
    form = arguments.get("json_output")
    found = {
        **asked,
        "messages": messages,
        "tools": tools,
        "tool_choice": choice.name if isinstance(choice := arguments.get("tool_choice"), Tool) else choice,
        "json_output": form.model_json_schema() if isinstance(form, type) and issubclass(form, BaseModel) else form,
        "extra_create_args": {name: str(value) for name, value in (arguments.get("extra_create_args") or {}).items()},
    }
    return {name: value for name, value in found.items() if value or name == "messages"}


_NO_SETTINGS: Final = frozenset(
    [
        "model",
        "model_info",
        "api_key",
        "base_url",
        "azure_endpoint",
        "timeout",
        "max_retries",
        "default_headers",
        "replies",
        "name",
        "file",
    ]
)
"""The fields of clients' configs that do not change what a model answers."""


def facts_of(client: Any) -> dict[str, Any]:
    """A client's model, its abilities, its service, and its settings, such as its temperature."""
    module = type(innermost_client(client)).__module__
    provider = module.split(".")[2] if module.startswith("autogen_ext.models.") else module.partition(".")[0]
    config = config_of(innermost_client(client))
    return {
        "model": model_name_of(client),
        "model_info": dict(client.model_info),
        "provider": provider,
        "priced_as": priced_as(client),
        "settings": {name: value for name, value in config.items() if name not in _NO_SETTINGS},
    }


def _dump(reply: CreateResult) -> dict[str, Any]:
    return reply.model_dump(mode="json")
