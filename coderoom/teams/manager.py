"""Who speaks next, and what a team remembers of where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autogen_agentchat.base import TerminatedException
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_agentchat.state import RoundRobinManagerState
from autogen_core import CancellationToken
from pydantic import Field

from coderoom._util.autogen import RoundRobinGroupChatManager, SerializableException
from coderoom.errors import TeamError
from coderoom.teams.condition_state import load_condition_state, save_condition_state

__all__ = ["CodingTeamManager"]


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
