"""Model clients around other model clients, as components. Used by team files and scripts."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final
from weakref import WeakValueDictionary

from autogen_core import CancellationToken, Component, ComponentModel
from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo, RequestUsage
from autogen_core.tools import Tool, ToolSchema
from pydantic import Field

from coderoom._util.components import ArgumentsConfig, StrictConfig
from coderoom._util.tasks import await_with_token
from coderoom.errors import RequestError
from coderoom.models.rates import RateLimiter

__all__ = ["RateLimitedClient", "RateLimitedClientConfig"]

_limiters: Final[WeakValueDictionary[str, RateLimiter]] = WeakValueDictionary()


class RateLimitedClientConfig(StrictConfig):
    """The config of a `RateLimitedClient`. Each field is the constructor's argument of the same name."""

    client: ComponentModel
    requests_per_minute: float = Field(gt=0, allow_inf_nan=False)


class RateLimitedClient(ArgumentsConfig, ChatCompletionClient, Component[RateLimitedClientConfig]):
    """A model client whose requests start no more often than allowed.

    All who use it share the limit, in any event loop or thread. Clients with the same configuration share it too, such
    as those of a team file, in which each agent has a client of its own.

    Args:
        client: The client that sends the requests. Its own retries are not counted.
        requests_per_minute: How many requests may start in a minute.

    Raises:
        RequestError: `requests_per_minute` is not a positive number.
    """

    component_type = "model"
    component_provider_override = "coderoom.models.RateLimitedClient"
    component_config_schema = RateLimitedClientConfig

    def __init__(self, client: ChatCompletionClient, requests_per_minute: float) -> None:
        if not 0 < requests_per_minute < float("inf"):
            raise RequestError(f"requests_per_minute={requests_per_minute!r} must be a positive number.")
        self.client = self._client = client
        self._requests_per_minute = requests_per_minute
        try:
            key = json.dumps([client.dump_component().model_dump(mode="json"), requests_per_minute], sort_keys=True)
        except Exception:  # It cannot be dumped, as a client that is no component.
            self._limiter = RateLimiter(requests_per_minute)
        else:
            self._limiter = _limiters.setdefault(key, RateLimiter(requests_per_minute))

    async def create(self, messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        """Send a request when the limit allows it. The arguments are those of the client."""
        await self._wait(arguments)
        return await self.client.create(messages, **arguments)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Stream a reply when the limit allows it. The arguments are those of the client."""
        # OpenAI's client counts the tokens of a stream only with this argument, which other clients do not have.
        if "include_usage" in inspect.signature(self.client.create_stream).parameters:
            arguments = {"include_usage": True, **arguments}
        await self._wait(arguments)
        async with aclosing(self.client.create_stream(messages, **arguments)) as items:
            async for item in items:
                yield item

    async def _wait(self, arguments: Mapping[str, Any]) -> None:
        await await_with_token(self._limiter.begin(), arguments.get("cancellation_token") or CancellationToken())

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()

    def actual_usage(self) -> RequestUsage:
        """The tokens of the client's last request."""
        return self.client.actual_usage()

    def total_usage(self) -> RequestUsage:
        """The tokens of all requests of the client."""
        return self.client.total_usage()

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """The number of tokens of a conversation."""
        return self.client.count_tokens(messages, tools=tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """The number of tokens that a conversation leaves."""
        return self.client.remaining_tokens(messages, tools=tools)

    @property
    def capabilities(self) -> Any:
        """The capabilities of the model, in AutoGen's old form."""
        return self.client.capabilities

    @property
    def model_info(self) -> ModelInfo:
        """The capabilities of the model."""
        return self.client.model_info
