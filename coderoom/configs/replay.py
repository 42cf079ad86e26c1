"""A model client that returns recorded replies, in their order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Self

from autogen_core import CancellationToken, Component, FunctionCall
from autogen_core.models import CreateResult, LLMMessage, RequestUsage
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel, Field

from coderoom._util.components import StrictConfig
from coderoom.errors import RequestError

_CHUNK = re.compile(r"\s*\S+(?:\s+\Z)?|\s+\Z")


def words_of(text: str) -> list[str]:
    """The words of a text with the white space around them, as the chunks of a stream."""
    return _CHUNK.findall(text)


class ReplayUsage(StrictConfig):
    """The token usage of a reply."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)


class ReplayReply(StrictConfig):
    """A recorded reply with more than a text.

    Attributes:
        content: The text, or the function calls.
        thought: The reasoning of the model.
        finish_reason: Why the model stopped; by default `stop`, or `function_calls` for function calls.
        usage: The token usage; by default the number of words.
    """

    content: str | list[FunctionCall]
    thought: str | None = None
    finish_reason: Literal["stop", "length", "function_calls", "content_filter", "unknown"] | None = None
    usage: ReplayUsage | None = None


class ReplayModelInfo(StrictConfig):
    """The capabilities of the recorded model."""

    vision: bool = False
    function_calling: bool = False
    json_output: bool = True
    structured_output: bool = True
    family: str = "unknown"
    multiple_system_messages: bool = True


class ReplayModelConfig(StrictConfig):
    """The config of a `ReplayModel`."""

    replies: list[str | ReplayReply]
    model_info: ReplayModelInfo | None = None
    name: str | None = None


class ReplayModel(ReplayChatCompletionClient, Component[ReplayModelConfig]):
    """A model client that returns recorded replies in their order, streamed or not.

    Args:
        replies: Texts, or replies with more than a text.
        model_info: The capabilities of the model; by default JSON and structured output.
        name: The name of the recording in error messages.
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
        """Return the next reply, and record the arguments in `create_calls`.

        Raises:
            RequestError: The recording has no more replies.
            asyncio.CancelledError: The token is cancelled already.
        """
        if cancellation_token is not None and cancellation_token.is_cancelled():
            raise asyncio.CancelledError
        replies = self._config.replies
        if self._current_index >= len(replies):
            name = f" {self._config.name!r}" if self._config.name else ""
            count = f"{len(replies)} {'reply' if len(replies) == 1 else 'replies'}"
            raise RequestError(f"the recording{name} has {count}, and the model was asked once more; add a reply to it")
        reply = replies[self._current_index]
        self._current_index += 1
        call = {
            "messages": list(messages),
            "tools": list(tools),
            "tool_choice": tool_choice,
            "json_output": json_output,
            "extra_create_args": dict(extra_create_args or {}),
            "cancellation_token": cancellation_token,
        }
        self._create_calls.append(call)
        result = self._result(ReplayReply(content=reply) if isinstance(reply, str) else reply, messages)
        self._cur_usage = result.usage
        self._update_total_usage()
        return result

    async def create_stream(
        self, messages: Sequence[LLMMessage], **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Return the next reply word by word, and then whole; the words joined are exactly its content.

        Args:
            messages: As for `create`.
            **arguments: As for `create`.

        Yields:
            The words with the white space around them, then the reply.

        Raises:
            RequestError: The recording has no more replies.
        """
        # Not that of the instance, which may be watched and count as another request.
        result = await ReplayModel.create(self, messages, **arguments)
        if isinstance(result.content, str):
            for chunk in words_of(result.content):
                yield chunk
        yield result

    def skip_reply(self) -> None:
        """Skip a reply, which a resumed run has had before."""
        self._current_index += 1

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Count words, which serve as tokens here."""
        return sum(len(str(message.content).split()) for message in messages)

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
