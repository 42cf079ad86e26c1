"""A participant's place in the team: a turn either happens as a whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from autogen_agentchat.base import ChatAgent, Response, TaskResult, Team
from autogen_agentchat.messages import MessageFactory
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._events import (
    GroupChatAgentResponse,
    GroupChatError,
    GroupChatRequestPublish,
    GroupChatTeamResponse,
    SerializableException,
)
from autogen_core import CancellationToken, DefaultTopicId, MessageContext, event, trace_invoke_agent_span

__all__ = ["Participant"]

# AutoGen makes its containers and managers in private modules only; it is frozen at 0.7.5, and a test of ours fails
# loudly if these are ever not there.


class Participant(ChatAgentContainer):
    """Runs one agent, or one nested team, when it is its turn.

    Before a turn the agent's state is noted. A turn that fails or is cancelled puts it back and keeps the messages
    that it was to read, so that the next try reads each of them once. The error itself reaches the team as it is.

    Args:
        parent_topic_type: Where responses go.
        output_topic_type: Where events go.
        agent: The agent or the nested team.
        message_factory: The message types that the team knows.
        on_failure: Called with the agent's name and what it raised.
    """

    def __init__(
        self,
        parent_topic_type: str,
        output_topic_type: str,
        agent: ChatAgent | Team,
        message_factory: MessageFactory,
        on_failure: Callable[[str, Exception], None],
    ) -> None:
        super().__init__(parent_topic_type, output_topic_type, agent, message_factory)
        self._on_failure = on_failure

    @event
    async def handle_request(self, message: GroupChatRequestPublish, ctx: MessageContext) -> None:  # type: ignore[override]
        """Take a turn."""
        before = await self._note_state()
        try:
            response = await self._take_turn(ctx.cancellation_token)
        except asyncio.CancelledError:
            await self._put_back(before)
            raise
        except Exception as error:
            await self._put_back(before)
            self._on_failure(self._agent.name, error)
            await self._publish(GroupChatError(error=SerializableException.from_exception(error)), ctx)
            raise
        self._message_buffer.clear()
        await self._publish(response, ctx)

    async def _publish(self, message: object, ctx: MessageContext) -> None:
        topic = DefaultTopicId(type=self._parent_topic_type)
        await self.publish_message(message, topic_id=topic, cancellation_token=ctx.cancellation_token)

    async def _take_turn(self, cancellation_token: CancellationToken) -> GroupChatAgentResponse | GroupChatTeamResponse:
        if isinstance(self._agent, Team):
            # With nothing new to read a nested team goes on where it was; AutoGen would refuse the empty list.
            stream: Any = self._agent.run_stream(
                task=list(self._message_buffer) or None,
                cancellation_token=cancellation_token,
                output_task_messages=False,
            )
            span: Any = nullcontext()
        else:
            stream = self._agent.on_messages_stream(self._message_buffer, cancellation_token)
            span = trace_invoke_agent_span(
                agent_name=self._agent.name, agent_description=self._agent.description, agent_id=str(self.id)
            )
        last: Response | TaskResult | None = None
        with span:
            async for item in stream:
                if isinstance(item, Response):
                    await self._log_message(item.chat_message)
                    last = item
                elif isinstance(item, TaskResult):
                    last = item
                else:
                    await self._log_message(item)
        if isinstance(last, Response):
            return GroupChatAgentResponse(response=last, name=self._agent.name)
        if isinstance(last, TaskResult):
            return GroupChatTeamResponse(result=last, name=self._agent.name)
        raise RuntimeError(f"{self._agent.name!r} ended its turn without a response.")

    async def _note_state(self) -> Mapping[str, Any] | None:
        try:
            return await self._agent.save_state()
        except NotImplementedError:
            return None

    async def _put_back(self, state: Mapping[str, Any] | None) -> None:
        if state is not None:
            await self._agent.load_state(state)
