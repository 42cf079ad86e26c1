"""`ModelAgent`: an agent that has a conversation with a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    TextMessage,
)
from autogen_agentchat.state import BaseState
from autogen_agentchat.utils import remove_images
from autogen_core import CancellationToken
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import (
    ChatCompletionClient,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel, Field

from coderoom._util.closing import at_end_of_run, note_run
from coderoom._util.components import ArgumentsConfig
from coderoom.agents import metadata as keys
from coderoom.agents.pictures import only_newest
from coderoom.models.budgets import Budget, Spending
from coderoom.models.structured import Answer, ask_structured
from coderoom.steps import hear

DecisionT = TypeVar("DecisionT", bound=BaseModel)


class StreamingAgent(BaseChatAgent):
    """An agent whose turns are streams that end with a `Response`."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(name, description=description)
        note_run()
        at_end_of_run(self.close)

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the messages that other agents get."""
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Take a turn and return its last item."""
        items = [item async for item in self.on_messages_stream(messages, cancellation_token)]
        assert isinstance(items[-1], Response)
        return items[-1]


class ConversationState(BaseState):
    """An agent's saved state: its conversation, and which messages of an unfinished turn it contains."""

    llm_context: Mapping[str, Any] = Field(default_factory=dict)
    taken: list[str] = Field(default_factory=list)


class ModelAgent(ArgumentsConfig, StreamingAgent):
    """An agent with a conversation, which is unbounded without a `model_context`."""

    def __init__(
        self,
        name: str,
        description: str,
        model_client: ChatCompletionClient | None,
        model_context: ChatCompletionContext | None,
        system_message: str | None,
        budget: Budget | None,
    ) -> None:
        super().__init__(name, description)
        if model_client is not None and getattr(model_client, "model_info", None) is None:
            raise ValueError(
                f"model_client must be one of AutoGen's model clients, not {model_client!r}; for instance "
                "OpenAIChatCompletionClient(model=...) of autogen_ext.models.openai."
            )
        self._model_client = model_client
        self._model_context = UnboundedChatCompletionContext() if model_context is None else model_context
        self._initial_context: Mapping[str, Any] | None = None
        self._taken: set[str] = set()
        self._system_message = self._instructions = system_message or None
        self.limit(budget)

    def use_model(self, model_client: ChatCompletionClient) -> None:
        """Ask another model from now on."""
        self._model_client = model_client

    @property
    def model_context(self) -> ChatCompletionContext:
        """Where the conversation is kept."""
        return self._model_context

    async def _take(self, messages: Sequence[BaseChatMessage]) -> None:
        """Add messages to the conversation, each of them once, also if a failed turn is repeated."""
        await self._save_initial_context()
        for message in messages:
            # A question to a person is not for models.
            if message.id in self._taken or keys.SHOWN in message.metadata:
                continue
            self._taken.add(message.id)
            if isinstance(message, HandoffMessage):
                for earlier in message.context:
                    await self._model_context.add_message(earlier)
            await self._model_context.add_message(message.to_model_message())

    def _end_turn(self) -> None:
        """The turn succeeded: from now on the same message may be added again."""
        self._taken.clear()

    async def _conversation(self, *more: LLMMessage) -> list[LLMMessage]:
        """What the model gets: instructions, messages, then `more`; without images that it cannot or need not see."""
        assert self._model_client is not None
        system = [] if self._instructions is None else [SystemMessage(content=self._instructions)]
        messages = [*system, *await self._model_context.get_messages(), *more]
        return only_newest(messages, self.name) if self._sees else remove_images(messages)

    async def _hear(self) -> None:
        """Add what a person says while the team works to the conversation."""
        for text in await hear(self._conversation):
            await self._model_context.add_message(UserMessage(content=text, source="user"))

    @property
    def _sees(self) -> bool:
        """Whether the model sees pictures."""
        return self._model_client is not None and bool(self._model_client.model_info.get("vision"))

    async def _ask_for(
        self, schema: type[DecisionT], question: str, cancellation_token: CancellationToken
    ) -> Answer[DecisionT]:
        """Ask a question about the conversation, without adding question and answer to it."""
        assert self._model_client is not None
        await self._hear()
        messages = await self._conversation(UserMessage(content=question, source=self.name))
        with self._within_budget():
            return await ask_structured(
                self._model_client, messages, schema, source=self.name, cancellation_token=cancellation_token
            )

    # --- Its budget ---

    @property
    def budget(self) -> Budget | None:
        """What the agent may use."""
        return self._budget

    def limit(self, budget: Budget | None) -> None:
        """Replace the agent's budget, and begin to count anew."""
        self._budget = budget
        self._spending = None if budget is None else Spending(budget, f"agent {self.name!r}")

    def _within_budget(self) -> AbstractContextManager[None]:
        """Check and charge the agent's budget, if it has one, for what it does in this context."""
        return nullcontext() if self._spending is None else self._spending.limiting(self)

    # --- Its state and its config ---

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Return to the conversation before the first message, and begin to count anew."""
        await self._save_initial_context()
        await self._load_conversation(ConversationState(llm_context=self._initial_context or {}))
        self.limit(self._budget)

    async def save_state(self) -> Mapping[str, Any]:
        """The conversation, as JSON-like data."""
        context = dict(await self._model_context.save_state())
        state = ConversationState(type=f"{type(self).__name__}State", llm_context=context, taken=sorted(self._taken))
        return state.model_dump()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned; the empty state of AutoGen's agent is accepted too."""
        await self._load_conversation(ConversationState.model_validate(state))

    async def _load_conversation(self, state: ConversationState) -> None:
        await self._save_initial_context()
        self._taken = set(state.taken)
        if state.llm_context:
            await self._model_context.load_state(state.llm_context)
        else:
            await self._model_context.clear()

    async def _save_initial_context(self) -> None:
        if self._initial_context is None:
            self._initial_context = await self._model_context.save_state()

    def _dump_argument(self, name: str, value: Any) -> Any:
        # AutoGen leaves None out of a dump, and a missing system message means the default one.
        return value or "" if name == "system_message" else super()._dump_argument(name, value)
