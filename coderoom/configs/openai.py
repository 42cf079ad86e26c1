"""AutoGen's client for OpenAI's service, which also counts the tokens of streamed replies. Used by `make_model`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from autogen_core.models import CreateResult, LLMMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient

__all__ = ["CountingOpenAIClient"]


class CountingOpenAIClient(OpenAIChatCompletionClient):
    """AutoGen's client, which is also what its dump names.

    A service reports the token usage of a stream only on request, and AutoGen's assistant does not request it.
    """

    def create_stream(
        self, messages: Sequence[LLMMessage], *, include_usage: bool | None = True, **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Stream a reply, with its token usage at the end."""
        return super().create_stream(messages, include_usage=include_usage, **arguments)
