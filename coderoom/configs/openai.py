"""OpenAI's client, asking for the tokens of a stream whoever streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from autogen_core.models import CreateResult, LLMMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient

__all__ = ["CountingOpenAIClient"]


class CountingOpenAIClient(OpenAIChatCompletionClient):
    """AutoGen's client for OpenAI, dumped as such.

    A service tells a stream's tokens only if it is asked to, and AutoGen's assistant does not ask.
    """

    def create_stream(
        self, messages: Sequence[LLMMessage], *, include_usage: bool | None = True, **arguments: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Stream as AutoGen's client does, with the tokens at the end."""
        return super().create_stream(messages, include_usage=include_usage, **arguments)
