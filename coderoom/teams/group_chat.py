"""What a `CodingTeam` puts in the place of AutoGen's group chat: its manager and the containers of its agents."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from typing import Any

from autogen_agentchat.base import ChatAgent, Response, TaskResult, Team, TerminatedException
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, MessageFactory
from autogen_agentchat.state import RoundRobinManagerState
from autogen_core import CancellationToken, DefaultTopicId, MessageContext, event, trace_invoke_agent_span
from pydantic import Field

from coderoom._util.autogen import (
    ChatAgentContainer,
    GroupChatAgentResponse,
    GroupChatError,
    GroupChatRequestPublish,
    GroupChatTeamResponse,
    RoundRobinGroupChatManager,
    SerializableException,
)
from coderoom.agents.messages import without_questions
from coderoom.errors import AgentError, TeamError
from coderoom.teams.conditions import load_condition_state, save_condition_state
from coderoom.teams.team_agent import TeamAgent

__all__ = ["CodingTeamManager", "Participant", "Turns"]


class CodingTeamManagerState(RoundRobinManagerState):
    """AutoGen's state and what it leaves out. Each loads the other's."""

    active_speakers: list[str] = Field(default_factory=list)
    termination_condition: Mapping[str, Any] | None = None


class CodingTeamManager(RoundRobinGroupChatManager):
    """Gives the turns round, and goes on where a cancel or an error cut a run short.

    Args:
        args: As AutoGen's manager takes them.
        on_failure: Called with what ended a run when the termination condition failed.
        kwargs: As AutoGen's manager takes them.
    """

    def __init__(
        self, *args: Any, on_failure: Callable[[TeamError], None], going: asyncio.Event, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._on_failure = on_failure
        self._going = going

    async def validate_group_state(self, messages: list[BaseChatMessage] | None) -> None:
        """Take up a run that was cut short: whoever was interrupted speaks first.

        AutoGen calls this at every start. A new task starts counting anew; no task goes on counting.
        """
        if not self._active_speakers:
            return
        self._next_speaker_index = self._participant_names.index(self._active_speakers[0])
        self._active_speakers.clear()
        if messages:
            self._current_turn = 0
            if self._termination_condition is not None:
                await self._termination_condition.reset()

    async def select_speaker(self, thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> list[str] | str:
        """The next in the round, once the team is not paused."""
        await self._going.wait()
        return await super().select_speaker(thread)

    async def _apply_termination_condition(
        self, delta: Sequence[BaseAgentEvent | BaseChatMessage], increment_turn_count: bool = False
    ) -> bool:
        try:
            return await super()._apply_termination_condition(delta, increment_turn_count)
        except (Exception, TerminatedException, asyncio.CancelledError) as error:
            # Not every error of a condition is an `Exception`, and what is none would leave the run hanging.
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            failure = TeamError("The termination condition", error)
            self._on_failure(failure)
            # Told and not raised: the runtime would log its traceback as well.
            await self._signal_termination_with_error(SerializableException.from_exception(failure))
            return True

    async def _transition_to_next_speakers(self, cancellation_token: CancellationToken) -> None:
        try:
            await super()._transition_to_next_speakers(cancellation_token)
        except asyncio.CancelledError:
            # The run has ended; raised, it would be logged as an error.
            if not cancellation_token.is_cancelled():
                raise

    async def reset(self) -> None:
        """Start anew."""
        await super().reset()
        self._active_speakers.clear()

    async def save_state(self) -> Mapping[str, Any]:
        """AutoGen's state, whose turn it is, and what the termination condition has counted."""
        condition = self._termination_condition
        return {
            **await super().save_state(),
            "type": "CodingTeamManagerState",
            "active_speakers": list(self._active_speakers),
            "termination_condition": None if condition is None else save_condition_state(condition),
        }

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` gave."""
        await super().load_state(state)
        loaded = CodingTeamManagerState.model_validate(state)
        self._active_speakers = [name for name in loaded.active_speakers if name in self._participant_names]
        if self._termination_condition is not None and loaded.termination_condition is not None:
            load_condition_state(self._termination_condition, loaded.termination_condition)


logger = logging.getLogger(__name__)


class Turns:
    """The turns that a team is taking right now, so that they can be ended.

    Args:
        on_failure: Called with what ended a turn that failed.
    """

    GRACE_SECONDS = 1.0
    """How long a cancelled turn may take to end by itself."""
    _AGAIN_SECONDS = 0.2
    _MOST_TRIES = 25

    def __init__(self, on_failure: Callable[[TeamError], None]) -> None:
        self.on_failure = on_failure
        self.running: set[asyncio.Task[Any]] = set()

    async def end(self) -> None:
        """End them: first those that look at their token, then all others, also those that need to be told twice."""
        if self.running:
            await asyncio.wait(self.running, timeout=self.GRACE_SECONDS)
        for _ in range(self._MOST_TRIES):
            if not self.running:
                return
            for turn in self.running:
                turn.cancel()
            await asyncio.wait(self.running, timeout=self._AGAIN_SECONDS)


class Participant(ChatAgentContainer):
    """Runs one agent, or one nested team, when it is its turn.

    Before a turn the agent's state is noted. A turn that fails or is cancelled puts it back and keeps the messages
    that it was to read, so that the next try reads each of them once. The error itself reaches the team as it is.

    Args:
        parent_topic_type: Where responses go.
        output_topic_type: Where events go.
        agent: The agent or the nested team.
        message_factory: The message types that the team knows.
        turns: Where a turn is noted while it is taken.
    """

    def __init__(
        self,
        parent_topic_type: str,
        output_topic_type: str,
        agent: ChatAgent | Team,
        message_factory: MessageFactory,
        turns: Turns,
    ) -> None:
        super().__init__(parent_topic_type, output_topic_type, agent, message_factory)
        self._team = agent if isinstance(agent, Team) else None
        # A subclass may take its turns in another way.
        if isinstance(agent, TeamAgent) and type(agent).on_messages_stream is TeamAgent.on_messages_stream:
            self._team = agent.team
        self._turns = turns

    @event
    async def handle_request(self, message: GroupChatRequestPublish, ctx: MessageContext) -> None:  # type: ignore[override]
        """Take a turn. An error is told to the team and not raised: the runtime would log its traceback as well."""
        turn = asyncio.current_task()
        assert turn is not None
        before = await self._note_state()
        if ctx.cancellation_token.is_cancelled():
            return
        self._turns.running.add(turn)
        try:
            outcome: object = await self._take_turn(ctx.cancellation_token)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            outcome = error
        finally:
            self._turns.running.discard(turn)
        if ctx.cancellation_token.is_cancelled():
            await self._put_back(before)
        elif isinstance(outcome, BaseException):
            await self._put_back(before)
            failure = AgentError(self._agent.name, outcome)
            self._turns.on_failure(failure)
            await self._publish(GroupChatError(error=SerializableException.from_exception(failure)), ctx)
        else:
            self._message_buffer.clear()
            await self._publish(outcome, ctx)

    async def on_unhandled_message(self, message: Any, ctx: MessageContext) -> None:
        """Leave alone what is for the manager: another participant's error goes to all."""
        if not isinstance(message, GroupChatError):
            await super().on_unhandled_message(message, ctx)

    async def _publish(self, message: object, ctx: MessageContext) -> None:
        topic = DefaultTopicId(type=self._parent_topic_type)
        await self.publish_message(message, topic_id=topic, cancellation_token=ctx.cancellation_token)

    async def _take_turn(self, cancellation_token: CancellationToken) -> GroupChatAgentResponse | GroupChatTeamResponse:
        if self._team is not None:
            # With nothing new to read a nested team goes on where it was; AutoGen would refuse the empty list.
            stream: Any = self._team.run_stream(
                task=list(self._message_buffer) or None,
                cancellation_token=cancellation_token,
                output_task_messages=False,
            )
            span: Any = nullcontext()
        else:
            assert isinstance(self._agent, ChatAgent)
            stream = self._agent.on_messages_stream(self._message_buffer, cancellation_token)
            span = trace_invoke_agent_span(
                agent_name=self._agent.name, agent_description=self._agent.description, agent_id=str(self.id)
            )
        with span:
            async with aclosing(stream):
                last = await self._pass_on(stream, cancellation_token)
        if isinstance(last, Response):
            return GroupChatAgentResponse(response=last, name=self._agent.name)
        if isinstance(last, TaskResult):
            return GroupChatTeamResponse(result=without_questions(last), name=self._agent.name)
        raise RuntimeError("The turn ended without a response.")

    async def _pass_on(self, stream: Any, cancellation_token: CancellationToken) -> Response | TaskResult | None:
        last: Response | TaskResult | None = None
        async for item in stream:
            if cancellation_token.is_cancelled():
                raise asyncio.CancelledError
            if isinstance(item, Response):
                await self._log_message(item.chat_message)
                last = item
            elif isinstance(item, TaskResult):
                last = item
            else:
                await self._log_message(item)
        return last

    async def _note_state(self) -> Mapping[str, Any] | None:
        try:
            return await self._agent.save_state()
        except (Exception, asyncio.CancelledError) as error:
            logger.debug("The state of %r cannot be noted: %s", self._agent.name, error)
            return None

    async def _put_back(self, state: Mapping[str, Any] | None) -> None:
        if state is None:
            return
        try:
            await self._agent.load_state(state)
        except (Exception, asyncio.CancelledError) as error:
            logger.debug("The state of %r cannot be put back: %s", self._agent.name, error)
