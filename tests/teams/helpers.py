"""What the tests of the teams share: agents that do as they are told, ways to interrupt them, and bounds on waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response, TaskResult, Team
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StructuredMessage, TextMessage
from autogen_core import CancellationToken, Component
from autogen_core.models import LLMMessage, RequestUsage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from coderoom.errors import AgentError
from coderoom.teams import CodingTeam

Step: TypeAlias = str | BaseException | Callable[[CancellationToken], Awaitable[str]]
"""What an agent does in a turn: say this, raise this, or whatever this does."""

# --- Messages of our own ---


class Plan(BaseModel):
    """The content of a structured message."""

    goal: str
    steps: list[str] = []


class PlanMessage(BaseChatMessage):
    """A message that AutoGen does not know."""

    plan: Plan
    type: Literal["PlanMessage"] = "PlanMessage"

    def to_text(self) -> str:
        return self.plan.goal

    def to_model_text(self) -> str:
        return self.plan.goal

    def to_model_message(self) -> UserMessage:
        return UserMessage(content=self.plan.goal, source=self.source)


class Notice(BaseAgentEvent):
    """An event that AutoGen does not know."""

    about: str
    type: Literal["Notice"] = "Notice"

    def to_text(self) -> str:
        return self.about


class Outer:
    class NestedMessage(PlanMessage):
        """A message whose type is in a class."""


# --- Agents ---


class PlayerConfig(BaseModel):
    name: str
    lines: list[str] = []


class Player(BaseChatAgent, Component[PlayerConfig]):
    """Remembers each message it reads, then takes the next of its steps; when there is none left it says its number.

    Like most agents it has read its messages by the time a turn fails. Its state is what it has read.
    """

    component_config_schema = PlayerConfig

    def __init__(self, name: str, steps: Sequence[Step] = ()) -> None:
        super().__init__(name, f"Plays {name}.")
        self._steps = deque(steps)
        self._lines = [step for step in steps if isinstance(step, str)]
        self.context: list[str] = []
        self.turns = 0
        self.said = 0

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        self.turns += 1
        self.context += [f"{message.source}: {message.to_text()}" for message in messages]
        step = self._steps.popleft() if self._steps else None
        if isinstance(step, BaseException):
            raise step
        text = step if isinstance(step, str) else None if step is None else await step(cancellation_token)
        self.said += 1
        return Response(
            chat_message=TextMessage(
                content=f"{self.name} {self.said}" if text is None else text,
                source=self.name,
                models_usage=RequestUsage(prompt_tokens=10, completion_tokens=5),
            )
        )

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        self.context.clear()

    async def save_state(self) -> Mapping[str, Any]:
        return {"context": list(self.context)}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        self.context = list(state["context"])

    def _to_config(self) -> PlayerConfig:
        return PlayerConfig(name=self.name, lines=self._lines)

    @classmethod
    def _from_config(cls, config: PlayerConfig) -> Self:
        return cls(config.name, config.lines)


class SpecialTeam(CodingTeam):
    """A team of somebody else's."""


class PlanAgent(Player):
    """Makes plans, in a message type of its own."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (PlanMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        said = await super().on_messages(messages, cancellation_token)
        plan = Plan(goal=said.chat_message.to_text())
        notice = Notice(about="a plan is coming", source=self.name)
        return Response(chat_message=PlanMessage(plan=plan, source=self.name), inner_messages=[notice])


class StructuredPlanAgent(Player):
    """Makes plans, in AutoGen's generic message type."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (StructuredMessage[Plan],)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        said = await super().on_messages(messages, cancellation_token)
        plan = Plan(goal=said.chat_message.to_text())
        return Response(chat_message=StructuredMessage[Plan](content=plan, source=self.name))


# --- Steps ---


async def listening(token: CancellationToken) -> str:
    """Wait for ever, or for the token."""
    waiting = asyncio.get_running_loop().create_future()
    token.link_future(waiting)
    await waiting
    return "never"


async def deaf(token: CancellationToken) -> str:
    """Wait and do not look at the token."""
    await asyncio.sleep(60)
    return "never"


def held_by(gate: asyncio.Event, text: str) -> Callable[[CancellationToken], Awaitable[str]]:
    """A step that says `text` once the gate is open."""

    async def step(token: CancellationToken) -> str:
        await gate.wait()
        return text

    return step


# --- Interrupting ---

How: TypeAlias = Literal["token", "deaf", "task", "timeout", "close", "error"]

HOWS: tuple[How, ...] = ("token", "deaf", "task", "timeout", "close", "error")
"""The ways in which a turn is cut short: a cancelled token, the same with an agent that does not look at it, a
cancelled task, `asyncio.timeout`, closing the stream, and an error of the agent."""


def step_for(how: How) -> Step:
    """What the agent that is to be interrupted in this way has to do."""
    if how == "error":
        return ValueError("no luck")
    return deaf if how == "deaf" else listening


async def interrupt(how: How, team: CodingTeam, agent: Player, task: str | None = "one") -> None:
    """Run the team until `agent` is at its turn, and cut that turn short."""
    turns = agent.turns

    def is_busy() -> bool:
        return agent.turns > turns

    async with asyncio.timeout(10):
        if how == "error":
            with pytest.raises(AgentError, match="no luck"):
                await team.run(task=task)
        elif how == "timeout":
            with pytest.raises(TimeoutError):
                await _run_out_of_time(team, task, is_busy)
        elif how == "close":
            stream = team.run_stream(task=task)
            await anext(stream)
            await until(is_busy)
            await stream.aclose()
        else:
            token = CancellationToken()
            running = asyncio.create_task(team.run(task=task, cancellation_token=token))
            await until(is_busy)
            running.cancel() if how == "task" else token.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
    assert agent.turns == turns + 1


async def _run_out_of_time(team: CodingTeam, task: str | None, is_busy: Callable[[], bool]) -> None:
    async def time_out(timeout: asyncio.Timeout) -> None:
        await until(is_busy)
        timeout.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(None) as timeout:
        watcher = asyncio.create_task(time_out(timeout))
        try:
            await team.run(task=task)
        finally:
            await watcher


async def ends(running: asyncio.Task[Any]) -> bool:
    """Whether a run ends by itself, in bounds. One that does not is torn down, so that the other tests can go on."""
    done, _ = await asyncio.wait({running}, timeout=8)
    if not done:
        for _ in range(3):
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                if "fixture" not in repr(task) and "test_" not in repr(task.get_coro()):
                    task.cancel()
            await asyncio.wait({running}, timeout=0.2)
    return bool(done)


# --- Looking ---


async def play(team: Team, task: str | Sequence[BaseChatMessage] | None = None) -> TaskResult:
    """Run a team; one that never ends fails the test."""
    async with asyncio.timeout(20):
        return await team.run(task=task)


def speakers(result: TaskResult) -> list[str]:
    """Who said something, in order, the user left out."""
    return [
        message.source for message in result.messages if isinstance(message, BaseChatMessage) and not is_user(message)
    ]


def is_user(message: BaseAgentEvent | BaseChatMessage) -> bool:
    return message.source == "user"


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so; fail if it never is."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def calls(client: ReplayChatCompletionClient) -> list[list[LLMMessage]]:
    """The messages of each call that a client got."""
    return [list(call["messages"]) for call in client.create_calls]


def text_of(messages: Sequence[LLMMessage]) -> str:
    """All that a model got to read in one call."""
    return "\n".join(str(message.content) for message in messages)


def trio(*steps: Any) -> tuple[Player, Player, Player]:
    """Three agents; the second one has steps to take."""
    return Player("a"), Player("b", steps), Player("c")


def failing(*at: int) -> Callable[[Sequence[BaseAgentEvent | BaseChatMessage]], bool]:
    """For a condition that fails when it is asked for the n-th time, counted from 1."""
    asked = 0

    def ask(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> bool:
        nonlocal asked
        asked += 1
        if asked in at:
            raise ValueError("bad condition")
        return False

    return ask


async def slow_step(token: CancellationToken) -> str:
    """Give others a chance, now and then, and look at the token."""
    for _ in range(3):
        pause = asyncio.ensure_future(asyncio.sleep(0))
        token.link_future(pause)
        await pause
    return "said"


async def collect(stream: AsyncGenerator[Any, None], into: list[Any]) -> None:
    async for item in stream:
        into.append(item)


async def run_and_pause(team: CodingTeam, first: Player, gate: asyncio.Event) -> asyncio.Task[TaskResult]:
    """Start a run, pause it in the first turn, which the gate holds open, and wait until that turn is over."""
    running = asyncio.create_task(team.run(task="one"))
    await until(lambda: first.turns == 1)
    await team.pause()
    gate.set()
    await until(lambda: first.said == 1)
    await asyncio.sleep(0.2)
    return running
