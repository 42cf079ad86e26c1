"""A model client that gives recorded replies, one after the other."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Self

from autogen_core import CancellationToken, Component, FunctionCall
from autogen_core.models import CreateResult, LLMMessage, RequestUsage
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel, ConfigDict, Field

from coderoom.errors import RequestError

__all__ = ["ReplayModel", "ReplayModelConfig"]

_CHUNK = re.compile(r"\s*\S+(?:\s+\Z)?|\s+\Z")


class ReplayUsage(BaseModel):
    """The tokens that a reply is said to have cost."""

    model_config = ConfigDict(extra="forbid")

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)


class ReplayReply(BaseModel):
    """A recorded reply that is more than its text.

    Attributes:
        content: The text, or the calls of functions.
        thought: The reasoning that came with it.
        finish_reason: Why the model stopped; by default `stop`, or `function_calls` where it calls functions.
        usage: The tokens it cost; by default, the words are counted.
    """

    model_config = ConfigDict(extra="forbid")

    content: str | list[FunctionCall]
    thought: str | None = None
    finish_reason: Literal["stop", "length", "function_calls", "content_filter", "unknown"] | None = None
    usage: ReplayUsage | None = None


class ReplayModelInfo(BaseModel):
    """What the recorded model is said to be able to do."""

    model_config = ConfigDict(extra="forbid")

    vision: bool = False
    function_calling: bool = False
    json_output: bool = True
    structured_output: bool = True
    family: str = "unknown"
    multiple_system_messages: bool = True


class ReplayModelConfig(BaseModel):
    """The config of a `ReplayModel`."""

    model_config = ConfigDict(extra="forbid")

    replies: list[str | ReplayReply]
    model_info: ReplayModelInfo | None = None
    name: str | None = None


class ReplayModel(ReplayChatCompletionClient, Component[ReplayModelConfig]):
    """A model client that gives recorded replies in their order, streamed or not.

    Args:
        replies: Texts, or replies with more than a text.
        model_info: What the model is said to be able to do: JSON and structured output, unless this says otherwise.
        name: What to call the recording in errors.
    """

    component_type = "model"
    component_provider_override = "coderoom.configs.ReplayModel"
    component_config_schema = ReplayModelConfig  # type: ignore[assignment]

    def __init__(
        self,
        replies: Sequence[str | ReplayReply | Mapping[str, Any]],
        model_info: ReplayModelInfo | Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
    ) -> None:
        config = ReplayModelConfig.model_validate(
            {
                "replies": [reply if isinstance(reply, (str, ReplayReply)) else dict(reply) for reply in replies],
                "model_info": model_info if model_info is None else ReplayModelInfo.model_validate(model_info),
                "name": name,
            }
        )
        info: Any = (config.model_info or ReplayModelInfo()).model_dump()
        super().__init__([], info)
        self._config = config
        self.provided_message_count = len(config.replies)
        self._cached_bool_value = False

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Give the next reply.

        Args:
            messages: What the model is asked; it is recorded in `create_calls`, as are the other arguments.
            tools: Recorded.
            tool_choice: Recorded.
            json_output: Recorded.
            extra_create_args: Recorded.
            cancellation_token: Recorded; if it is cancelled already, so is this call.

        Returns:
            The reply.

        Raises:
            RequestError: The recording has no more replies.
        """
        return self._next(
            cancellation_token,
            messages=list(messages),
            tools=list(tools),
            tool_choice=tool_choice,
            json_output=json_output,
            extra_create_args=dict(extra_create_args or {}),
        )

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Give the next reply word by word, and then whole; the words joined are exactly its content.

        Args:
            messages: As for `create`.
            tools: As for `create`.
            tool_choice: As for `create`.
            json_output: As for `create`.
            extra_create_args: As for `create`.
            cancellation_token: As for `create`.

        Yields:
            The words with the white space around them, then the reply.

        Raises:
            RequestError: The recording has no more replies.
        """
        result = await self.create(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            json_output=json_output,
            extra_create_args=extra_create_args,
            cancellation_token=cancellation_token,
        )
        if isinstance(result.content, str):
            for chunk in _CHUNK.findall(result.content):
                yield chunk
        yield result

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Count the words of messages, which stand for tokens here."""
        return sum(len(str(message.content).split()) for message in messages)

    def _next(self, cancellation_token: CancellationToken | None, **call: Any) -> CreateResult:
        if cancellation_token is not None and cancellation_token.is_cancelled():
            raise asyncio.CancelledError
        replies = self._config.replies
        if self._current_index >= len(replies):
            name = f" {self._config.name!r}" if self._config.name else ""
            count = f"{len(replies)} {'reply' if len(replies) == 1 else 'replies'}"
            raise RequestError(f"the recording{name} has {count}, and the model was asked once more; add a reply to it")
        reply = replies[self._current_index]
        self._current_index += 1
        self._create_calls.append({**call, "cancellation_token": cancellation_token})
        result = self._result(ReplayReply(content=reply) if isinstance(reply, str) else reply, call["messages"])
        self._cur_usage = result.usage
        self._update_total_usage()
        return result

    def _result(self, reply: ReplayReply, messages: Sequence[LLMMessage]) -> CreateResult:
        if reply.usage is None:
            words = reply.content if isinstance(reply.content, str) else str(reply.content)
            usage = RequestUsage(self.count_tokens(messages), len(words.split()))
        else:
            usage = RequestUsage(reply.usage.prompt_tokens, reply.usage.completion_tokens)
        reason: Any = reply.finish_reason or ("stop" if isinstance(reply.content, str) else "function_calls")
        return CreateResult(
            finish_reason=reason,
            content=reply.content,
            usage=usage,
            cached=self._cached_bool_value,
            thought=reply.thought,
        )

    def _to_config(self) -> ReplayModelConfig:  # type: ignore[override]
        return self._config.model_copy(deep=True)

    @classmethod
    def _from_config(cls, config: ReplayModelConfig) -> Self:  # type: ignore[override]
        return cls(config.replies, config.model_info, name=config.name)
