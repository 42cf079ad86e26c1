"""What the agents share that write code by a model: turns as streams, model calls, and a pause between steps."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
)
from autogen_core import CancellationToken, ComponentModel
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, UserMessage

from coderoom._util.components import linked
from coderoom.agents.code_runner import CodeRunner
from coderoom.agents.model_agent import ModelAgent
from coderoom.agents.model_calls import call_model
from coderoom.approval import Approval, ApprovalFuncType

__all__ = ["CodingAgent", "Item"]

Item = BaseAgentEvent | BaseChatMessage | Response
"""What an agent's stream yields."""


class CodingAgent(ModelAgent):
    """An agent whose turns are streams that end with a `Response`.

    Args:
        name: The agent's name.
        description: What it is for, for other agents.
        model_client: The model; `None` for an agent that asks none.
        model_context: Where the conversation is kept; `None`: an unbounded one.
        model_client_stream: Whether to yield the model's chunks as they come.
        system_message: What every model call begins with, or `None`.
        runner: Runs the code.
    """

    def __init__(
        self,
        name: str,
        description: str,
        model_client: ChatCompletionClient | None,
        model_context: ChatCompletionContext | None,
        model_client_stream: bool,
        system_message: str | None,
        runner: CodeRunner,
    ) -> None:
        super().__init__(name, description, model_client, model_context, system_message)
        self._model_client_stream = model_client_stream
        self._runner = runner
        self._going = asyncio.Event()
        self._going.set()

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Item, None]:
        """Take a turn: yield what happens as it happens, and the `Response` last.

        Args:
            messages: What is new since the last turn.
            cancellation_token: Ends the turn at once, also while code runs; nothing is left running.

        Raises:
            SandboxUnavailable: The place where code runs broke.
            asyncio.CancelledError: The token was cancelled.
        """
        inner: list[BaseAgentEvent | BaseChatMessage] = []
        try:
            async with aclosing(self._turn(messages, cancellation_token)) as items:
                async for item in items:
                    if isinstance(item, Response):
                        item.inner_messages = inner
                        self._end_turn()
                    elif not isinstance(item, ModelClientStreamingChunkEvent):
                        inner.append(item)
                    yield item
        finally:
            await self._runner.let_go()

    @abstractmethod
    def _turn(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Item, None]:
        """What happens in a turn, as it happens."""

    def _end_turn(self) -> None:
        """The turn went well."""
        self._conversation.end_turn()

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Wait before the next model call or run, until `on_resume`."""
        self._going.clear()

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Go on after `on_pause`."""
        self._going.set()

    def ask_instead(self, approval: Approval) -> Approval | ApprovalFuncType | None:
        """Ask somebody else before code runs. No config tells of it.

        Returns:
            Who was asked until now, if anybody.
        """
        return self._runner.ask_instead(approval)

    async def _ask_model(
        self, message_id: str, cancellation_token: CancellationToken, hint: str | None = None
    ) -> AsyncGenerator[ModelClientStreamingChunkEvent | ThoughtEvent | CreateResult, None]:
        """One model call; its reply goes into the context."""
        assert self._model_client is not None
        await self._may_go_on(cancellation_token)
        more = [] if hint is None else [UserMessage(content=hint, source=self.name)]
        call = call_model(
            self._model_client,
            await self._conversation.for_model(self._model_client, *more),
            stream=self._model_client_stream,
            source=self.name,
            message_id=message_id,
            cancellation_token=cancellation_token,
        )
        async with aclosing(call) as items:
            async for item in items:
                if isinstance(item, CreateResult):
                    if item.thought:
                        yield ThoughtEvent(content=item.thought, source=self.name)
                    await self._model_context.add_message(
                        AssistantMessage(content=item.content, thought=item.thought, source=self.name)
                    )
                yield item

    async def _add_to_context(self, text: str) -> None:
        await self._model_context.add_message(UserMessage(content=text, source=self.name))

    async def _may_go_on(self, cancellation_token: CancellationToken) -> None:
        await linked(self._going.wait(), cancellation_token)

    def _approval_config(self, approval: Approval | ApprovalFuncType | None) -> ComponentModel | None:
        """An approval as it stands in a config.

        Raises:
            ValueError: It is a function.
        """
        if approval is None or isinstance(approval, Approval):
            return None if approval is None else approval.dump_component()
        raise ValueError(
            f"Cannot serialize {type(self).__name__} with approval_func set to {approval!r}: a function cannot stand "
            "in a config. Use a component of coderoom.approval."
        )
