"""`CodingTeam`: a round-robin team that continues after failures."""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import Any, Self, cast

from autogen_agentchat.base import ChatAgent, TaskResult, Team, TerminationCondition
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StructuredMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import AgentRuntime, CancellationToken, ComponentLoader
from pydantic import BaseModel, ConfigDict, Field

from coderoom._util.autogen import (
    ChatAgentContainer,
    QuietRuntime,
    RoundRobinGroupChatConfig,
    RoundRobinGroupChatManager,
    agents_in,
    executor_of,
    is_running,
)
from coderoom._util.components import DumpsAsItself
from coderoom._util.tasks import call_in_loop, retrieve_exception, run_uncancellable
from coderoom.agents.base import CodingAgent
from coderoom.agents.metadata import without_questions
from coderoom.teams.group_chat import CodingTeamManager, Participant, Turns
from coderoom.teams.team_agent import close_agents, start_agents

Message = BaseAgentEvent | BaseChatMessage


class CodingTeamConfig(RoundRobinGroupChatConfig):
    """The config of a `CodingTeam`. Each field is the constructor's argument of the same name."""

    model_config = ConfigDict(extra="forbid")

    max_turns: int | None = Field(default=None, ge=1)
    custom_message_types: list[str] = Field(default_factory=list)
    """Dotted names, `mypackage.messages.Plan` or `autogen_agentchat.messages.StructuredMessage[mypackage.Plan]`."""
    shared_session: bool = False


class CodingTeam(DumpsAsItself, RoundRobinGroupChat):
    """AutoGen's round-robin group chat, made robust.

    It continues after a cancellation, an agent's error and `reset()`: the interrupted agent speaks first, and reads
    each message once. Cancelling the token or the task ends the running turn at once. An agent's error is raised as an
    `AgentError` with the agent's exception as its `__cause__`. `pause()` and `resume()` delay turns. The saved state
    includes the counters of the termination condition. `async with team` starts and stops the agents' resources,
    executors for instance.

    Args:
        participants: The agents and nested teams, in the order of their turns.
        name: The team's name.
        description: What the team is for.
        termination_condition: When to stop; `None` to run until `max_turns`.
        max_turns: The most turns of a run; `None` for no limit.
        runtime: The runtime to use instead of the team's own.
        custom_message_types: Message types besides AutoGen's that the participants exchange.
        emit_team_events: Whether the stream has events for the selected speakers.
        shared_session: Whether the code of all agents runs in one session, that of the first one's executor, so that
            they see the same variables and may call each other's functions. All have the same executor config, with
            `state="session"`.

    Raises:
        ValueError: `max_turns` is too small, names are given twice, or the agents cannot share a session.
    """

    DEFAULT_NAME = "CodingTeam"
    DEFAULT_DESCRIPTION = "A team of agents that write, run and review code in turns."

    component_config_schema = CodingTeamConfig
    component_provider_override = "coderoom.teams.CodingTeam"

    def __init__(
        self,
        participants: Sequence[ChatAgent | Team],
        *,
        name: str | None = None,
        description: str | None = None,
        termination_condition: TerminationCondition | None = None,
        max_turns: int | None = None,
        runtime: AgentRuntime | None = None,
        custom_message_types: Sequence[type[Message]] | None = None,
        emit_team_events: bool = False,
        shared_session: bool = False,
    ) -> None:
        if max_turns is not None and max_turns < 1:
            raise ValueError(f"The maximum number of turns must be 1 or more, not {max_turns}.")
        participants = list(participants)
        names = [participant.name for participant in participants]
        if twice := sorted({repr(name) for name in names if names.count(name) > 1}):
            raise ValueError(f"The participant names must be unique; given more than once: {', '.join(twice)}.")
        self._custom_message_types = list(custom_message_types or ())
        super().__init__(
            participants,
            name=name,
            description=description,
            termination_condition=termination_condition,
            max_turns=max_turns,
            runtime=runtime,
            custom_message_types=self._custom_message_types,
            emit_team_events=emit_team_events,
        )
        self._shared_session = shared_session
        if shared_session:
            from coderoom.agents.sharing import share_session  # Imports the agents, which a check does not need.

            share_session(_agents_with_code(participants))
        self._turns = Turns()
        self._cut_short = False
        self._loop: asyncio.AbstractEventLoop | None = None
        if self._embedded_runtime:
            self._runtime = QuietRuntime(ignore_unhandled_exceptions=False)

    @property
    def participants(self) -> Sequence[ChatAgent | Team]:
        """The agents and nested teams, in the order of their turns."""
        return tuple(self._participants)

    # --- Running ---

    async def run_stream(
        self,
        *,
        task: str | BaseChatMessage | Sequence[BaseChatMessage] | None = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[Message | TaskResult, None]:
        """Run the team; yield the messages as they come and a `TaskResult` last.

        Args:
            task: What to do; `None` to continue where the last run ended or was interrupted.
            cancellation_token: Ends the run at once.
            output_task_messages: Whether the task itself is among the messages.

        Raises:
            AgentError: An agent failed; its `__cause__` is the agent's exception.
            TeamError: The termination condition failed.
            asyncio.CancelledError: The token was cancelled.
            ValueError: The task is empty or has no messages, or the team is running already.
        """
        if isinstance(task, Sequence) and not isinstance(task, str):
            task = list(task)
        if not self._is_running:
            await self._recover()
        stop = CancellationToken()
        if cancellation_token is not None:
            cancellation_token.add_callback(stop.cancel)
        run = super().run_stream(task=task, cancellation_token=stop, output_task_messages=output_task_messages)
        items: asyncio.Queue[Message | TaskResult | None] = asyncio.Queue()
        # In a task: AutoGen's generator waits for the whole conversation when it is closed early.
        running = asyncio.create_task(_pass_on(run, items))
        loop = asyncio.get_running_loop()
        ending: list[asyncio.Task[None]] = []

        def end_turns() -> None:
            if not ending and not running.done():
                ending.append(loop.create_task(self._turns.end()))

        stop.add_callback(lambda: call_in_loop(loop, end_turns))
        item: Message | TaskResult | None = None
        try:
            while (following := await items.get()) is not None and not stop.is_cancelled():
                item = without_questions(following) if isinstance(following, TaskResult) else following
                yield item
            await self._ended(running)
            if not isinstance(item, TaskResult):
                # It ended while it was being cancelled.
                raise asyncio.CancelledError
        finally:
            if not running.done():
                stop.cancel()
            if stop.is_cancelled():
                end_turns()
            await run_uncancellable(asyncio.wait({running, *ending}))
            retrieve_exception(running)

    async def _ended(self, running: asyncio.Task[None]) -> None:
        try:
            # Shielded: a cancellation would interrupt AutoGen while it stops its runtime.
            await asyncio.shield(running)
        except BaseException as error:
            self._cut_short = True
            if self._turns.failure is not None and isinstance(error, RuntimeError):
                # Raised again, since AutoGen's runtime raises the error without its cause.
                raise self._turns.failure from self._turns.failure.cause
            raise

    async def _recover(self) -> None:
        await self._follow_loop()
        condition = self._termination_condition
        if self._cut_short and condition is not None and condition.terminated:
            await condition.reset()
        if not self._turns.going.is_set():
            await self.resume()
        self._turns.failure, self._cut_short = None, False

    async def _follow_loop(self) -> None:
        """Move to another event loop, as after two calls of `asyncio.run`: queues belong to one loop."""
        loop, before = asyncio.get_running_loop(), self._loop
        self._loop = loop
        if before is None or before is loop or not self._embedded_runtime:
            return
        state = await self.save_state()
        self._runtime = QuietRuntime(ignore_unhandled_exceptions=False)
        self._output_message_queue = asyncio.Queue()
        self._initialized = False
        await self.load_state(state)

    async def reset(self) -> None:
        """Reset the team, its agents and its termination condition."""
        if not self._is_running:
            await self._follow_loop()
        await super().reset()

    async def pause(self) -> None:
        """Delay further turns and pause the agents that support it. Does nothing if the team does not run."""
        if not self._is_running:
            return
        # Not by messages, as in AutoGen's team: those are lost if the run ends in the meantime.
        self._turns.going.clear()
        for participant in self._participants:
            if isinstance(participant, ChatAgent):
                await participant.on_pause(CancellationToken())
            elif is_running(participant):
                await participant.pause()

    async def resume(self) -> None:
        """Continue after `pause`."""
        for participant in self._participants:
            if isinstance(participant, ChatAgent):
                await participant.on_resume(CancellationToken())
            elif is_running(participant):
                await participant.resume()
        self._turns.going.set()

    # --- Starting and stopping the agents ---

    async def __aenter__(self) -> Self:
        try:
            await start_agents(self)
        except BaseException:
            with suppress(Exception):
                await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all agents, also those of nested teams; the team can be used again afterwards.

        Raises:
            Exception: The first error, after all agents were tried.
        """
        await close_agents(self)

    # --- The parts of AutoGen's team ---

    def _create_participant_factory(self, *args: Any, **kwargs: Any) -> Callable[[], ChatAgentContainer]:
        return lambda: Participant(*args, turns=self._turns, **kwargs)

    def _create_group_chat_manager_factory(self, *args: Any, **kwargs: Any) -> Callable[[], RoundRobinGroupChatManager]:
        return lambda: CodingTeamManager(*args, turns=self._turns, emit_team_events=self._emit_team_events, **kwargs)

    # --- Configs ---

    def _to_config(self) -> CodingTeamConfig:
        return CodingTeamConfig(
            **super()._to_config().model_dump(),
            custom_message_types=[name_of_message_type(kind) for kind in self._custom_message_types],
            shared_session=self._shared_session,
        )

    @classmethod
    def _from_config(cls, config: RoundRobinGroupChatConfig) -> Self:
        assert isinstance(config, CodingTeamConfig)
        condition = config.termination_condition
        participants = []
        for model in config.participants:
            # Checked after loading, since `component_type` is optional in a config.
            participant = ComponentLoader.load_component(model, expected=object)
            if not isinstance(participant, ChatAgent | Team):
                raise TypeError(f"{model.provider!r} is neither an agent nor a team.")
            participants.append(participant)
        return cls(
            participants,
            name=config.name,
            description=config.description,
            termination_condition=None if condition is None else TerminationCondition.load_component(condition),
            max_turns=config.max_turns,
            custom_message_types=[find_message_type(name) for name in config.custom_message_types],
            emit_team_events=config.emit_team_events,
            shared_session=config.shared_session,
        )


def _agents_with_code(participants: Sequence[ChatAgent | Team]) -> list[CodingAgent[Any]]:
    """The agents that run code, those of nested teams too, without what is around them.

    Raises:
        ValueError: There is none, or one that is not CodeRoom's.
    """
    found: list[CodingAgent[Any]] = []
    for each in agents_in(participants, hidden=True):
        agent = getattr(each, "agent", each)
        if isinstance(agent, CodingAgent):
            found.append(agent)
        elif executor_of(agent) is not None:
            raise ValueError(
                f"The code of {each.name!r} cannot run in a shared session; use a CodeExecutorAgent or a CodeActAgent "
                "of coderoom.agents."
            )
    if not found:
        raise ValueError("shared_session needs agents that run code: a CodeExecutorAgent or a CodeActAgent.")
    return found


async def _pass_on(
    run: AsyncGenerator[Message | TaskResult, None], items: asyncio.Queue[Message | TaskResult | None]
) -> None:
    try:
        async for item in run:
            items.put_nowait(item)
    finally:
        items.put_nowait(None)


def name_of_message_type(kind: type[BaseAgentEvent | BaseChatMessage]) -> str:
    """Return the dotted name of a message type, for a config."""
    if issubclass(kind, StructuredMessage):
        arguments = kind.__pydantic_generic_metadata__["args"]
        if len(arguments) == 1:
            return f"autogen_agentchat.messages.StructuredMessage[{_dotted(arguments[0])}]"
    return _dotted(kind)


def _dotted(kind: type[BaseModel]) -> str:
    if "<" in kind.__qualname__:
        raise TypeError(
            f"{kind.__qualname__!r} is a local class and cannot be part of a config; define it in a module."
        )
    return f"{kind.__module__}.{kind.__qualname__}"


def find_message_type(name: str) -> type[BaseAgentEvent | BaseChatMessage]:
    """Return the message type with this dotted name."""
    outer, bracket, inner = name.strip().partition("[")
    try:
        kind: Any = _imported(outer)
        if bracket:
            if kind is not StructuredMessage or not inner.endswith("]"):
                raise ValueError("only StructuredMessage has a type, in brackets")
            kind = kind[_imported(inner[:-1])]
        elif not issubclass(kind, BaseAgentEvent | BaseChatMessage):
            raise ValueError("it is another class")
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"There is no message type {name!r}: {error}.") from error
    return cast("type[BaseChatMessage]", kind)


def _imported(name: str) -> type[BaseModel]:
    found = pkgutil.resolve_name(name)
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise ValueError(f"{name!r} is something else")
    return found
