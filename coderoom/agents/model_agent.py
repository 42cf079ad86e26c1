"""What all agents share: a conversation, and a model that is asked about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_core import CancellationToken
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import ChatCompletionClient, UserMessage
from pydantic import BaseModel

from coderoom._util.structured import Answer, ask_structured
from coderoom.agents.model_calls import Conversation

__all__ = ["ModelAgent"]

DecisionT = TypeVar("DecisionT", bound=BaseModel)


class ModelAgent(BaseChatAgent):
    """An agent with a conversation.

    Args:
        name: The agent's name.
        description: What it is for, for other agents.
        model_client: The model; `None` for an agent that asks none.
        model_context: Where the conversation is kept; `None`: an unbounded one.
        system_message: What every model call begins with, or `None`.

    Raises:
        ValueError: The model client is none.
    """

    def __init__(
        self,
        name: str,
        description: str,
        model_client: ChatCompletionClient | None,
        model_context: ChatCompletionContext | None,
        system_message: str | None,
    ) -> None:
        super().__init__(name, description)
        if model_client is not None and getattr(model_client, "model_info", None) is None:
            raise ValueError(
                f"model_client must be one of AutoGen's model clients, not {model_client!r}; for instance "
                "OpenAIChatCompletionClient(model=...) of autogen_ext.models.openai."
            )
        self._model_client = model_client
        self._model_context = UnboundedChatCompletionContext() if model_context is None else model_context
        self._system_message = system_message or None
        self._conversation = Conversation(self._model_context, self._system_message)

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the messages that other agents get."""
        return (TextMessage,)

    @property
    def model_context(self) -> ChatCompletionContext:
        """Where the conversation is kept."""
        return self._model_context

    async def _ask_for(
        self, schema: type[DecisionT], question: str, cancellation_token: CancellationToken
    ) -> Answer[DecisionT]:
        """Ask about the conversation; neither the question nor the answer goes into it."""
        assert self._model_client is not None
        return await ask_structured(
            self._model_client,
            await self._conversation.for_model(self._model_client, UserMessage(content=question, source=self.name)),
            schema,
            source=self.name,
            cancellation_token=cancellation_token,
        )

    @property
    def _system_message_in_config(self) -> str:
        # AutoGen drops None from a dump, and what is left out means the default.
        return self._system_message or ""
