"""The manager and the agent containers of a `CodingTeam`, in place of AutoGen's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, nullcontext
from typing import Any

from autogen_agentchat.base import ChatAgent, Response, TaskResult, Team, TerminatedException
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
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
from coderoom.agents.metadata import without_questions
from coderoom.errors import AgentError, TeamError
from coderoom.teams.conditions import load_condition_state, save_condition_state
from coderoom.teams.team_agent import TeamAgent


class CodingTeamManagerState(RoundRobinManagerState):
    """AutoGen's state with more fields. Each can load the other's."""

    active_speakers: list[str] = Field(default_factory=list)
    termination_condition: Mapping[str, Any] | None = None


class CodingTeamManager(RoundRobinGroupChatManager):
    """Selects the next speaker, and continues an interrupted run."""

    def __init__(self, *args: Any, turns: Turns, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turns = turns

    async def validate_group_state(self, messages: list[BaseChatMessage] | None) -> None:
        """Continue an interrupted run: the interrupted participant speaks first.

        AutoGen calls this at every start. A new task resets the counters; without a task they continue.
        """
        was_interrupted = bool(self._active_speakers or self._current_turn)
        if self._active_speakers:
            self._next_speaker_index = self._participant_names.index(self._active_speakers[0])
            self._active_speakers.clear()
        if messages and was_interrupted:
            self._current_turn = 0
            if self._termination_condition is not None:
                await self._termination_condition.reset()

    async def select_speaker(self, thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> list[str] | str:
        """The next in the round, once the team is not paused."""
        await self._turns.going.wait()
        return await super().select_speaker(thread)

    async def _apply_termination_condition(
        self, delta: Sequence[BaseAgentEvent | BaseChatMessage], increment_turn_count: bool = False
    ) -> bool:
        try:
            return await super()._apply_termination_condition(delta, increment_turn_count)
        except (Exception, TerminatedException, asyncio.CancelledError) as error:
            # A condition may raise more than `Exception`; uncaught, such errors would let the run hang.
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self._turns.failure = TeamError("The termination condition", error)
            # Sent and not raised: the runtime would also log a traceback.
            await self._signal_termination_with_error(SerializableException.from_exception(self._turns.failure))
            return True

    async def _transition_to_next_speakers(self, cancellation_token: CancellationToken) -> None:
        try:
            await super()._transition_to_next_speakers(cancellation_token)
        except asyncio.CancelledError:
            # The run has ended; if raised, this would be logged as an error.
            if not cancellation_token.is_cancelled():
                raise

    async def reset(self) -> None:
        """Return to the initial state."""
        await super().reset()
        self._active_speakers.clear()

    async def save_state(self) -> Mapping[str, Any]:
        """AutoGen's state, whose turn it is, and the counters of the termination condition."""
        condition = self._termination_condition
        return {
            **await super().save_state(),
            "type": "CodingTeamManagerState",
            "active_speakers": list(self._active_speakers),
            "termination_condition": None if condition is None else save_condition_state(condition),
        }

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned."""
        await super().load_state(state)
        loaded = CodingTeamManagerState.model_validate(state)
        self._active_speakers = [name for name in loaded.active_speakers if name in self._participant_names]
        if self._termination_condition is not None and loaded.termination_condition is not None:
            load_condition_state(self._termination_condition, loaded.termination_condition)


logger = logging.getLogger(__name__)


class Turns:
    """What a team shares with its manager and its participants.

    Attributes:
        running: The running turns, so that they can be ended.
        failure: What has ended the run.
        going: Clear while the team is paused.
    """

    GRACE_SECONDS = 1.0
    """How long a cancelled turn may take to end, in seconds."""
    _AGAIN_SECONDS = 0.2
    _MOST_TRIES = 25

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()
        self.failure: TeamError | None = None
        self.going = asyncio.Event()
        self.going.set()

    async def end(self) -> None:
        """Wait for the turns whose token was cancelled, then cancel the others, repeatedly if necessary."""
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

    The agent's state is saved before a turn. If the turn fails or is cancelled, the state is restored and the unread
    messages are kept, so that the next turn reads each of them once. The error reaches the team unchanged. After a
    cancellation, an agent that `goes_on_after_cut` keeps what it has done.
    """

    def __init__(self, *args: Any, turns: Turns, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        agent = self._agent
        self._team = agent if isinstance(agent, Team) else None
        # A subclass may override how it takes its turns.
        if isinstance(agent, TeamAgent) and type(agent).on_messages_stream is TeamAgent.on_messages_stream:
            self._team = agent.team
        self._turns = turns

    @event
    async def handle_request(self, message: GroupChatRequestPublish, ctx: MessageContext) -> None:  # type: ignore[override]
        """Take a turn. An error is sent to the team and not raised: the runtime would also log a traceback."""
        turn = asyncio.current_task()
        assert turn is not None
        before: Mapping[str, Any] | None = None
        with self._tolerant("saved"):
            before = await self._agent.save_state()
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
        is_cancelled = ctx.cancellation_token.is_cancelled()
        is_cut = is_cancelled and isinstance(outcome, asyncio.CancelledError)
        goes_on = is_cut and getattr(self._agent, "goes_on_after_cut", False)
        if before is not None and not goes_on and (is_cancelled or isinstance(outcome, BaseException)):
            with self._tolerant("restored"):
                await self._agent.load_state(before)
        if is_cancelled:
            return
        if isinstance(outcome, BaseException):
            self._turns.failure = failure = AgentError(self._agent.name, outcome)
            await self._publish(GroupChatError(error=SerializableException.from_exception(failure)), ctx)
        else:
            self._message_buffer.clear()
            await self._publish(outcome, ctx)

    async def on_unhandled_message(self, message: Any, ctx: MessageContext) -> None:
        """Ignore the errors of other participants, which are sent to all."""
        if not isinstance(message, GroupChatError):
            await super().on_unhandled_message(message, ctx)

    async def _publish(self, message: object, ctx: MessageContext) -> None:
        topic = DefaultTopicId(type=self._parent_topic_type)
        await self.publish_message(message, topic_id=topic, cancellation_token=ctx.cancellation_token)

    async def _take_turn(self, cancellation_token: CancellationToken) -> GroupChatAgentResponse | GroupChatTeamResponse:
        if self._team is not None:
            # Without new messages a nested team continues; AutoGen would reject an empty list.
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
        last = None
        with span:
            async with aclosing(stream):
                async for last in stream:
                    if cancellation_token.is_cancelled():
                        raise asyncio.CancelledError
                    if not isinstance(last, TaskResult):
                        await self._log_message(last.chat_message if isinstance(last, Response) else last)
        if isinstance(last, Response):
            return GroupChatAgentResponse(response=last, name=self._agent.name)
        if isinstance(last, TaskResult):
            return GroupChatTeamResponse(result=without_questions(last), name=self._agent.name)
        raise RuntimeError("The turn ended without a response.")

    @contextmanager
    def _tolerant(self, what: str) -> Iterator[None]:
        try:
            yield
        except (Exception, asyncio.CancelledError) as error:
            logger.debug("The state of %r cannot be %s: %s", self._agent.name, what, error)
