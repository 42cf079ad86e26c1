"""`TeamAgent`: a team as an agent. Also starts and closes the agents of a team, for `CodingTeam`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from autogen_agentchat.base import Response, TaskResult, Team
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, TextMessage
from autogen_core import CancellationToken, Component, ComponentModel
from pydantic import Field

from coderoom._util.autogen import agents_of, is_running
from coderoom._util.components import ArgumentsConfig, StrictConfig
from coderoom.agents import metadata as keys
from coderoom.agents.base import Item
from coderoom.agents.conversation import StreamingAgent
from coderoom.agents.metadata import without_questions


async def start_agents(team: Team) -> None:
    """Start the resources of all agents, also those of nested teams, before first use."""
    for agent in agents_of(team):
        if callable(start := getattr(agent, "start", None)):
            await start()


async def close_agents(team: Team) -> None:
    """Close all agents, also those of nested teams, and then raise the first error."""
    results = await asyncio.gather(*(agent.close() for agent in agents_of(team)), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


class TeamAgentConfig(StrictConfig):
    """The config of a `TeamAgent`. Each field is the constructor's argument of the same name."""

    team: ComponentModel
    name: str | None = Field(default=None, description="The agent's name; missing: the team's.")
    description: str | None = Field(default=None, description="What it is for; missing: the team's description.")


class TeamAgent(ArgumentsConfig, StreamingAgent, Component[TeamAgentConfig]):
    """A team as an agent: its turn is a run of the team.

    Some places accept agents only: AutoGen's `Swarm` and `GraphFlow`, and the builder of AutoGen Studio, which drops
    nested teams when it saves. In a `CodingTeam` it behaves like the team itself: all messages of its run go to the
    others. Elsewhere the others get the last message of the run, as a message of this agent.

    Unlike AutoGen's teams, it closes the team's agents in `close()`.

    Args:
        team: The team. This agent owns it from now on.
        name: The agent's name, an identifier; `None`: the team's name, with `_` for other characters.
        description: What it is for, for other agents; `None`: the team's description.

    Raises:
        TypeError: `team` is not a team.
        ValueError: The name is not an identifier.
    """

    component_config_schema = TeamAgentConfig
    component_provider_override = "coderoom.teams.TeamAgent"

    def __init__(self, team: Team, *, name: str | None = None, description: str | None = None) -> None:
        if not isinstance(team, Team):
            raise TypeError(f"team must be a team, not {type(team).__name__!r}.")
        super().__init__(
            re.sub(r"^(?=\d)|\W", "_", team.name) if name is None else name,  # An agent's name is an identifier.
            team.description if description is None else description,
        )
        self._team = team

    @property
    def team(self) -> Team:
        """The team whose run is a turn."""
        return self._team

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """The types of the messages that its agents send to others."""
        kinds = [kind for agent in agents_of(self._team) for kind in agent.produced_message_types]
        return tuple(dict.fromkeys([*kinds, TextMessage]))

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Item, None]:
        """Take a turn: yield what happens in the team, and its last message as the `Response`.

        Args:
            messages: The new messages. Without any, the team continues where it was.
            cancellation_token: Ends the run at once.

        Raises:
            AgentError: An agent of a `CodingTeam` failed.
            asyncio.CancelledError: The token was cancelled.
        """
        # A handoff to this agent, which the team's agents do not know, is a text message for them.
        task = [
            TextMessage(content=message.content, source=message.source, metadata=message.metadata)
            if isinstance(message, HandoffMessage) and message.target == self.name
            else message
            for message in messages
        ]
        run = self._team.run_stream(
            task=task or None, cancellation_token=cancellation_token, output_task_messages=False
        )
        # Delayed by one message, since the last one is in the response.
        pending: BaseChatMessage | None = None
        try:
            async with aclosing(run) as items:
                async for item in items:
                    if isinstance(item, TaskResult):
                        pending = None
                        yield self._response(item)
                        return
                    if pending is not None:
                        yield pending
                    pending = item if isinstance(item, BaseChatMessage) and keys.SHOWN not in item.metadata else None
                    if pending is None:
                        yield item
        except Exception:
            if pending is not None:
                yield pending
            raise

    def _response(self, result: TaskResult) -> Response:
        inner = without_questions(result).messages
        last = next((message for message in reversed(inner) if isinstance(message, BaseChatMessage)), None)
        if last is None:
            words = f"The team {self._team.name!r} said nothing. {result.stop_reason or ''}".strip()
            return Response(chat_message=TextMessage(content=words, source=self.name), inner_messages=inner)
        return Response(
            # The outer team does not know the agents of this one.
            chat_message=last.model_copy(update={"source": self.name}),
            # Handoffs between its agents do not concern the outer team.
            inner_messages=[each for each in inner if each is not last and not isinstance(each, HandoffMessage)],
        )

    # --- Passed on to the team ---

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Reset the team and its agents."""
        await self._team.reset()

    async def on_pause(self, cancellation_token: CancellationToken) -> None:
        """Pause the team, if it runs."""
        if is_running(self._team):
            await self._team.pause()

    async def on_resume(self, cancellation_token: CancellationToken) -> None:
        """Continue after `on_pause`."""
        if is_running(self._team):
            await self._team.resume()

    async def save_state(self) -> Mapping[str, Any]:
        """The team's state."""
        return await self._team.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `save_state` returned."""
        await self._team.load_state(state)

    async def start(self) -> None:
        """Start the resources of the team's agents now and not on first use."""
        await start_agents(self._team)

    async def close(self) -> None:
        """Close all agents of the team; it can be used again afterwards."""
        await close_agents(self._team)
