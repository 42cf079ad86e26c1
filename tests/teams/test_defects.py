"""One or more tests for each defect of AutoGen's teams that `CodingTeam` does not have, named by the defect's id."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse, AssistantAgent
from autogen_agentchat.agents import CodeExecutorAgent as AutoGenCodeExecutorAgent
from autogen_agentchat.base import Response, TerminationCondition
from autogen_agentchat.conditions import (
    ExternalTermination,
    FunctionalTermination,
    MaxMessageTermination,
    TextMentionTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    ModelClientStreamingChunkEvent,
    StructuredMessage,
    TextMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, ComponentModel
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from coderoom.agents import CodeExecutorAgent, ReviewerAgent
from coderoom.errors import AgentError
from coderoom.executors import LocalCodeExecutor
from coderoom.teams import CodeSucceeded, CodingTeam, NoProgress, ReviewApproved
from tests.teams.helpers import (
    HOWS,
    How,
    Notice,
    Outer,
    Plan,
    PlanAgent,
    PlanMessage,
    Player,
    StructuredPlanAgent,
    calls,
    deaf,
    ends,
    held_by,
    interrupt,
    listening,
    play,
    speakers,
    step_for,
    text_of,
    until,
)

# --- A1: after a cancel or an error the team goes on ---


def trio(*steps: Any) -> tuple[Player, Player, Player]:
    """Three agents; the second one has steps to take."""
    return Player("a"), Player("b", steps), Player("c")


@pytest.mark.parametrize("how", HOWS)
async def test_a1_run_without_a_task_goes_on_with_whoever_was_interrupted(how: How) -> None:
    a, b, c = trio(step_for(how))
    team = CodingTeam([a, b, c], max_turns=3)
    await interrupt(how, team, b)

    result = await play(team)

    assert speakers(result) == ["b", "c"], "the first turn of three was taken already"
    assert a.context == ["user: one"]
    assert b.context == ["user: one", "a: a 1"]
    assert c.context == ["user: one", "a: a 1", "b: b 1"]
    assert speakers(await play(team)) == ["a", "b", "c"]
    assert b.context == ["user: one", "a: a 1", "c: c 1", "a: a 2"]


@pytest.mark.parametrize("how", HOWS)
async def test_a1_a_new_task_begins_with_whoever_was_interrupted(how: How) -> None:
    a, b, c = trio(step_for(how))
    team = CodingTeam([a, b, c], max_turns=3)
    await interrupt(how, team, b)

    result = await play(team, "two")

    assert speakers(result) == ["b", "c", "a"]
    assert b.context == ["user: one", "a: a 1", "user: two"]
    assert c.context == ["user: one", "a: a 1", "user: two", "b: b 1"]
    assert a.context == ["user: one", "user: two", "b: b 1", "c: c 1"]


@pytest.mark.parametrize("how", HOWS)
async def test_a1_after_a_reset_the_team_is_as_new(how: How) -> None:
    a, b, c = trio(step_for(how))
    team = CodingTeam([a, b, c], max_turns=3)
    await interrupt(how, team, b)

    await team.reset()
    result = await play(team, "two")

    assert speakers(result) == ["a", "b", "c"]
    assert a.context == ["user: two"]
    assert b.context == ["user: two", "a: a 2"]
    assert c.context == ["user: two", "a: a 2", "b: b 1"]


@pytest.mark.parametrize("how", ["token", "error"])
async def test_a1_the_first_speaker_may_be_interrupted_too(how: How) -> None:
    a, b = Player("a", [step_for(how)]), Player("b")
    team = CodingTeam([a, b], max_turns=2)
    await interrupt(how, team, a)
    assert speakers(await play(team)) == ["a", "b"]
    assert a.context == ["user: one"]
    assert b.context == ["user: one", "a: a 1"]


async def test_a1_several_failures_in_a_row() -> None:
    hows: list[How] = ["close", "error", "token", "error", "task"]
    a, b, c = trio(*map(step_for, hows))
    team = CodingTeam([a, b, c], max_turns=3)
    for number, how in enumerate(hows):
        await interrupt(how, team, b, "one" if number == 0 else None)

    assert speakers(await play(team)) == ["b", "c"]
    assert b.context == ["user: one", "a: a 1"]
    assert c.context == ["user: one", "a: a 1", "b: b 1"]


async def test_a1_several_failures_in_a_row_with_a_task_each() -> None:
    hows: list[How] = ["token", "error", "task"]
    a, b, c = trio(*map(step_for, hows))
    team = CodingTeam([a, b, c], max_turns=3)
    for how, task in zip(hows, ("one", "two", "three"), strict=True):
        await interrupt(how, team, b, task)

    assert speakers(await play(team, "four")) == ["b", "c", "a"]
    assert b.context == ["user: one", "a: a 1", "user: two", "user: three", "user: four"]
    assert a.context == ["user: one", "user: two", "user: three", "user: four", "b: b 1", "c: c 1"]


async def test_a1_a_token_that_was_cancelled_before_the_run() -> None:
    a, b = Player("a"), Player("b")
    team = CodingTeam([a, b], max_turns=2)
    token = CancellationToken()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await team.run(task="one", cancellation_token=token)
    assert speakers(await play(team, "two")) == ["a", "b"]
    assert a.turns == b.turns == 1


async def test_a1_what_was_counted_before_goes_on_counting_without_a_task_and_starts_anew_with_one() -> None:
    a, b, c = trio(listening)
    team = CodingTeam([a, b, c], termination_condition=MaxMessageTermination(4))
    await interrupt("token", team, b)
    assert speakers(await play(team)) == ["b", "c"], "user, a, b and c are four"
    assert speakers(await play(team)) == ["a", "b", "c", "a"]

    team = CodingTeam([Player("a"), b := Player("b", [listening])], termination_condition=MaxMessageTermination(4))
    await interrupt("token", team, b)
    assert speakers(await play(team, "two")) == ["b", "a", "b"]


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


async def test_a1_after_an_error_of_the_termination_condition() -> None:
    a, b, c = Player("a"), Player("b"), Player("c")
    # First it looks at the task, then at each turn.
    team = CodingTeam([a, b, c], termination_condition=FunctionalTermination(failing(2, 3)), max_turns=3)
    with pytest.raises(Exception, match="bad condition"):
        await play(team, "one")
    with pytest.raises(Exception, match="bad condition"):
        await play(team)

    assert speakers(await play(team, "two")) == ["c", "a", "b"]
    assert a.context == ["user: one", "b: b 1", "user: two", "c: c 1"]
    assert b.context == ["user: one", "a: a 1", "user: two", "c: c 1", "a: a 2"]
    assert c.context == ["user: one", "a: a 1", "b: b 1", "user: two"]


async def test_a1_after_an_error_of_the_termination_condition_at_the_start() -> None:
    a, b = Player("a"), Player("b")
    team = CodingTeam([a, b], termination_condition=FunctionalTermination(failing(1)), max_turns=2)
    with pytest.raises(Exception, match="bad condition"):
        await play(team, "one")
    assert speakers(await play(team)) == ["a", "b"]
    assert b.context == ["user: one", "a: a 1"]


async def test_a1_after_an_error_of_one_condition_while_another_was_met() -> None:
    """What was met must not end each later run before it begins."""
    a, b = Player("a"), Player("b")
    condition = MaxMessageTermination(2) | FunctionalTermination(failing(2))
    team = CodingTeam([a, b], termination_condition=condition, max_turns=2)
    with pytest.raises(Exception, match="bad condition"):
        await play(team, "one")
    assert speakers(await play(team, "two")) == ["b"]


async def test_a1_nested_team_is_interrupted() -> None:
    x, y = Player("x"), Player("y", [listening, ValueError("no luck")])
    inner = CodingTeam([x, y], name="inner", max_turns=2)
    a = Player("a")
    team = CodingTeam([a, inner], max_turns=2)
    await interrupt("token", team, y)
    await interrupt("error", team, y, None)

    result = await play(team)

    # A turn is the whole of what the nested team does, and it happened not at all until now.
    assert speakers(result) == ["x", "y"]
    assert x.context == ["user: one", "a: a 1"]
    assert y.context == ["user: one", "a: a 1", "x: x 3"]
    assert a.context == ["user: one"]
    assert speakers(await play(team, "two")) == ["a", "x", "y"]
    assert a.context == ["user: one", "x: x 3", "y: y 1", "user: two"]
    assert x.context == ["user: one", "a: a 1", "y: y 1", "user: two", "a: a 2"]


async def test_a1_assistants_see_each_message_once_after_an_error() -> None:
    """With AutoGen's own agent, which has taken in its messages by the time its model fails."""
    client = ReplayChatCompletionClient(["from a"])
    broken = ReplayChatCompletionClient([])
    a, b = AssistantAgent("a", client), AssistantAgent("b", broken)
    team = CodingTeam([a, b], max_turns=2)
    for task in ("one", None):
        with pytest.raises(AgentError, match="No more mock responses"):
            await play(team, task)
    broken.chat_completions.append("from b")

    result = await play(team)

    assert result.messages[-1].to_text() == "from b"
    assert [str(m.content) for m in calls(broken)[0][1:]] == ["one", "from a"]


async def test_a1_code_executor_agent_sees_each_message_once_after_a_cancel(tmp_path: Path) -> None:
    waiting = "```python\nimport pathlib, time\npathlib.Path('ready').touch()\ntime.sleep(60)\n```"
    client = ReplayChatCompletionClient([waiting, "```python\nprint(6 * 7)\n```", "It is 42."])
    coder = CodeExecutorAgent("coder", LocalCodeExecutor(tmp_path), model_client=client)
    team = CodingTeam([coder], max_turns=1)
    async with team:
        token = CancellationToken()
        running = asyncio.create_task(team.run(task="What is 6 * 7?", cancellation_token=token))
        await until((tmp_path / "ready").exists)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(10):
                await running
        result = await play(team)
    assert "It is 42." in result.messages[-1].to_text()
    assert text_of(calls(client)[1]).count("What is 6 * 7?") == 1
    assert "time.sleep" not in text_of(calls(client)[1]), "the turn that was cut short never was"


class Amnesiac(Player):
    """An agent whose state cannot be saved."""

    async def save_state(self) -> dict[str, Any]:
        raise TypeError("this agent's state cannot be saved")


async def test_a1_an_agent_whose_state_cannot_be_saved_can_still_take_turns() -> None:
    """AutoGen asks for the state only when somebody saves the team."""
    team = CodingTeam([Amnesiac("a"), Player("b")], max_turns=2)
    assert speakers(await play(team, "one")) == ["a", "b"]


class Unrestorable(Player):
    """An agent whose saved state does not load."""

    async def load_state(self, state: Any) -> None:
        raise KeyError("state")


async def test_a1_an_error_is_told_even_if_the_state_cannot_be_put_back() -> None:
    team = CodingTeam([Unrestorable("a", [ValueError("no luck")]), Player("b")], max_turns=2)
    with pytest.raises(AgentError, match="no luck"):
        await play(team, "one")
    assert speakers(await play(team)) == ["a", "b"]


class SelfCancelling(Player):
    """An agent that ends as cancelled without anyone having asked, as libraries with cancel scopes of their own do."""

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        if self.turns == 0:
            self.turns += 1
            raise asyncio.CancelledError
        return await super().on_messages(messages, cancellation_token)


async def test_a1_an_agent_that_ends_as_cancelled_by_itself_does_not_hang_the_team() -> None:
    a, b = SelfCancelling("a"), Player("b")
    team = CodingTeam([a, b], max_turns=2)
    running = asyncio.create_task(team.run(task="one"))
    assert await ends(running)
    # Whether it counts as a cancel or as the agent's error: it is no success.
    assert running.cancelled() or isinstance(running.exception(), AgentError)
    assert speakers(await play(team)) == ["a", "b"]


class Fatal(BaseException):
    """What `except Exception` does not catch."""


async def test_a1_an_agent_that_raises_no_exception_but_worse_does_not_hang_the_team() -> None:
    a, b = Player("a", [Fatal("no luck")]), Player("b")
    team = CodingTeam([a, b], max_turns=2)
    running = asyncio.create_task(team.run(task="one"))
    assert await ends(running)
    assert running.exception() is not None
    assert speakers(await play(team)) == ["a", "b"]
    assert b.context == ["user: one", "a: a 1"]


async def test_a1_a_condition_that_was_met_already_does_not_hang_the_team() -> None:
    """Its `TerminatedException` is no `Exception`; a condition that stands twice in a combination raises it."""
    twice = MaxMessageTermination(3)
    team = CodingTeam([Player("a"), Player("b")], termination_condition=twice | twice)
    running = asyncio.create_task(team.run(task="one"))
    assert await ends(running)
    assert running.cancelled() or running.exception() or running.result().stop_reason


@pytest.mark.parametrize("at", [1, 2], ids=["at the start", "after a turn"])
async def test_a1_a_condition_that_ends_as_cancelled_by_itself_does_not_hang_the_team(at: int) -> None:
    asked = 0

    async def ask(messages: Sequence[BaseAgentEvent | BaseChatMessage]) -> bool:
        nonlocal asked
        asked += 1
        if asked == at:
            raise asyncio.CancelledError
        return False

    a, b = Player("a"), Player("b")
    team = CodingTeam([a, b], termination_condition=FunctionalTermination(ask), max_turns=2)
    running = asyncio.create_task(team.run(task="one"))
    assert await ends(running)
    assert running.cancelled() or running.exception() is not None
    assert speakers(await play(team)) == [["a", "b"], ["b", "a"]][at - 1]
    assert b.context == ["user: one", "a: a 1"]


@pytest.mark.parametrize("how", ["token", "task"])
@pytest.mark.slow
async def test_a1_at_whatever_moment_the_cancel_comes(how: str) -> None:
    """After any number of steps of the loop the state is whole, and each message gets to each agent once."""
    steps, finished = 0, 0
    while finished < 3:
        team = CodingTeam([Player(name, [slow_step] * 4) for name in NAMES], max_turns=3)
        token = CancellationToken()
        running = asyncio.create_task(team.run(task="one", cancellation_token=token))
        for _ in range(steps):
            await asyncio.sleep(0)
        token.cancel() if how == "token" else running.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait({running})
        finished += not running.cancelled()
        steps += 1
        assert_consistent(await team.save_state())
        assert speakers(await play(team, "two" if steps % 2 else None)) != []
        assert_consistent(await team.save_state())


NAMES = ("a", "b", "c")


async def slow_step(token: CancellationToken) -> str:
    """Give others a chance, now and then, and look at the token."""
    for _ in range(3):
        pause = asyncio.ensure_future(asyncio.sleep(0))
        token.link_future(pause)
        await pause
    return "said"


def assert_consistent(state: Any) -> None:
    """All take turns, and each has read, or has waiting for it, what the others said, in order."""
    states = state["agent_states"]
    thread = [f"{m['source']}: {m['content']}" for m in states["RoundRobinGroupChatManager"]["message_thread"]]
    said = [message[0] for message in thread if not message.startswith("user")]
    assert said == [NAMES[number % 3] for number in range(len(said))]
    for name in NAMES:
        waiting = [f"{m['source']}: {m['content']}" for m in states[name]["message_buffer"]]
        heard = states[name]["agent_state"]["context"] + waiting
        assert heard == [message for message in thread if not message.startswith(f"{name}:")]


# --- A2: a cancel ends the run at once ---

FOREVER = """\
import os, pathlib, subprocess
child = subprocess.Popen(["sleep", "300"])
pathlib.Path("soon").write_text(f"{os.getpid()} {child.pid}")
os.rename("soon", "ready")
while True:
    pass
"""


def agree(request: ApprovalRequest) -> ApprovalResponse:
    return ApprovalResponse(approved=True, reason="a test")


def code_task(code: str) -> TextMessage:
    return TextMessage(content=f"```python\n{code}\n```", source="user")


@pytest.mark.parametrize("how", ["token", "task", "close", "thread"])
@pytest.mark.parametrize("agent", [CodeExecutorAgent, AutoGenCodeExecutorAgent], ids=["ours", "autogen"])
async def test_a2_cancel_ends_running_code_with_its_children(tmp_path: Path, how: str, agent: Any) -> None:
    executor = LocalCodeExecutor(tmp_path)
    runner = agent("runner", code_executor=executor, approval_func=agree)
    team = CodingTeam([runner], max_turns=1)
    token = CancellationToken()
    async with executor, asyncio.timeout(20):
        stream = team.run_stream(task=code_task(FOREVER), cancellation_token=token)
        await anext(stream)
        await until((tmp_path / "ready").exists)
        pids = (tmp_path / "ready").read_text().split()
        assert all(Path("/proc", pid).exists() for pid in pids), "the code and its child"
        if how == "close":
            await stream.aclose()
        else:
            rest = asyncio.create_task(_rest(stream))
            await asyncio.sleep(0)
            if how == "task":
                rest.cancel()
            elif how == "thread":
                threading.Thread(target=token.cancel).start()
            else:
                token.cancel()
            with pytest.raises(asyncio.CancelledError):
                await rest
        await until(lambda: not any(Path("/proc", pid).exists() for pid in pids))
        # What was cut short would be read and run again.
        await team.reset()
        result = await team.run(task=code_task("print('still here')"))
    assert "still here" in result.messages[-1].to_text()


async def _rest(stream: AsyncGenerator[Any, None]) -> list[Any]:
    return [item async for item in stream]


async def test_a2_stream_that_is_abandoned_ends(tmp_path: Path) -> None:
    team = CodingTeam([CodeExecutorAgent("runner", LocalCodeExecutor(tmp_path))], max_turns=1)
    async with team:
        async for _ in team.run_stream(task=code_task(FOREVER)):
            await until((tmp_path / "ready").exists)
            break
        pids = (tmp_path / "ready").read_text().split()
        gc.collect()
        await until(lambda: not any(Path("/proc", pid).exists() for pid in pids))
        await _until_it_can_run_again(team)
        assert "4" in (await play(team, [code_task("print(2 + 2)")])).messages[-1].to_text()


async def _until_it_can_run_again(team: CodingTeam) -> None:
    # Resetting is refused as long as the team is running.
    async with asyncio.timeout(10):
        while True:
            try:
                return await team.reset()
            except RuntimeError:
                await asyncio.sleep(0.01)


def test_a2_stream_that_is_abandoned_at_the_end_of_the_program(capfd: pytest.CaptureFixture[str]) -> None:
    a = Player("a", [listening])

    async def program() -> None:
        async for _ in CodingTeam([a]).run_stream(task="one"):
            await until(lambda: a.turns == 1)
            break

    asyncio.run(program())
    gc.collect()
    assert a.turns == 1
    assert capfd.readouterr().err == ""


async def test_a2_breaking_out_of_a_deaf_agents_turn() -> None:
    a = Player("a", [deaf])
    team = CodingTeam([a], max_turns=1)
    async with asyncio.timeout(10):
        stream = team.run_stream(task="one")
        async for _ in stream:
            await until(lambda: a.turns == 1)
            break
        await stream.aclose()
    assert speakers(await play(team)) == ["a"]


async def test_a2_deaf_agent_in_a_nested_team() -> None:
    y = Player("y", [deaf])
    team = CodingTeam([CodingTeam([Player("x"), y], name="inner", max_turns=2)], max_turns=1)
    await interrupt("deaf", team, y)
    assert speakers(await play(team)) == ["x", "y"]
    assert y.context == ["user: one", "x: x 2"]


async def test_a2_agent_that_swallows_a_cancellation() -> None:
    """A loop that tries again after whatever went wrong is a common mistake."""

    async def stubborn(token: CancellationToken) -> str:
        for _ in range(2):
            try:
                await asyncio.sleep(60)
            except BaseException:
                continue
        return "never mind"

    a = Player("a", [stubborn])
    team = CodingTeam([a], max_turns=1)
    token = CancellationToken()
    running = asyncio.create_task(team.run(task="one", cancellation_token=token))
    await until(lambda: a.turns == 1)
    token.cancel()
    assert await ends(running)
    assert running.cancelled()


async def test_a2_agent_in_a_nested_team_that_swallows_a_cancellation() -> None:
    async def stubborn(token: CancellationToken) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return await deaf(token)

    x, y = Player("x"), Player("y", [stubborn])
    team = CodingTeam([CodingTeam([x, y], name="inner", max_turns=2)], max_turns=1)
    token = CancellationToken()
    running = asyncio.create_task(team.run(task="one", cancellation_token=token))
    await until(lambda: y.turns == 1)
    token.cancel()
    assert await ends(running)
    assert running.cancelled()
    assert speakers(await play(team)) == ["x", "y"]
    assert x.context == ["user: one"]
    assert y.context == ["user: one", "x: x 2"]


async def test_a2_a_cancel_just_before_the_turn_of_a_deaf_agent() -> None:
    """At each step on the way to its turn, up to the first at which the turn has begun."""
    steps, begun = 0, False
    while not begun:
        b = Player("b", [deaf])
        team = CodingTeam([Player("a"), b], max_turns=2)
        token = CancellationToken()
        running = asyncio.create_task(team.run(task="one", cancellation_token=token))
        for _ in range(steps):
            await asyncio.sleep(0)
        begun = b.turns > 0
        token.cancel()
        assert await ends(running), f"after {steps} steps"
        assert running.cancelled()
        steps += 1
    assert steps > 1


async def test_a2_a_cancelled_task_after_a_cancelled_token() -> None:
    a, b = Player("a", [deaf]), Player("b")
    team = CodingTeam([a, b], max_turns=2)
    token = CancellationToken()
    running = asyncio.create_task(team.run(task="one", cancellation_token=token))
    await until(lambda: a.turns == 1)
    token.cancel()
    await asyncio.sleep(0.1)
    running.cancel()
    assert await ends(running)
    await _until_it_can_run_again(team)
    assert speakers(await play(team, "two")) == ["a", "b"]
    assert a.context == ["user: two"]


async def test_a2_a_cancelled_task_after_a_cancelled_token_with_messages_still_to_be_read() -> None:
    a, b = Player("a", [deaf]), Player("b")
    team = CodingTeam([a, b], max_turns=2)
    token = CancellationToken()
    read = asyncio.Event()

    async def slow_reader() -> None:
        task = [TextMessage(content="one", source="user"), TextMessage(content="more", source="user")]
        async for _ in team.run_stream(task=task, cancellation_token=token):
            if not token.is_cancelled():
                await until(lambda: a.turns == 1)
                await asyncio.sleep(0.05)
                token.cancel()
                read.set()

    running = asyncio.create_task(slow_reader())
    await read.wait()
    await asyncio.sleep(0.1)
    running.cancel()
    assert await ends(running)
    await _until_it_can_run_again(team)
    assert speakers(await play(team, "two")) == ["a", "b"]


class Chatterbox(Player):
    """Streams without end, or so many pieces, and does not look at its token."""

    def __init__(self, name: str, pieces: int | None) -> None:
        super().__init__(name)
        self.pieces = pieces
        self.streamed = 0

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        self.turns += 1
        while self.pieces is None or self.streamed < self.pieces:
            self.streamed += 1
            yield ModelClientStreamingChunkEvent(content=str(self.streamed), source=self.name)
            await asyncio.sleep(0)
        yield await self.on_messages(messages, cancellation_token)


async def test_a2_agent_that_streams_without_end() -> None:
    a = Chatterbox("a", None)
    team = CodingTeam([a], max_turns=1)
    token = CancellationToken()
    running = asyncio.create_task(team.run(task="one", cancellation_token=token))
    await until(lambda: a.streamed > 5)
    token.cancel()
    assert await ends(running)
    assert running.cancelled()
    a.pieces = 0
    assert speakers(await play(team)) == ["a"]


async def test_a2_nothing_more_is_delivered_after_a_cancel() -> None:
    """What has been produced ahead of a slow consumer is not what it waits for any more."""
    a = Chatterbox("a", 50)
    b = Player("b", [listening])
    team = CodingTeam([a, b])
    token = CancellationToken()
    delivered = 0

    async def listen() -> None:
        nonlocal delivered
        async for _ in team.run_stream(task="one", cancellation_token=token):
            delivered += 1
            await until(lambda: b.turns == 1)
            token.cancel()

    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await listen()
    assert delivered <= 2


async def test_a2_a_stream_may_be_closed_after_the_team_failed_unseen() -> None:
    """The error of a run that nobody waits for any more is not asyncio's to complain of."""
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))

    async def fail() -> None:
        a = Player("a", [ValueError("no luck")])
        stream = CodingTeam([a]).run_stream(task="one")
        await anext(stream)
        await until(lambda: a.turns == 1)
        await asyncio.sleep(0.1)
        await stream.aclose()

    await fail()
    gc.collect()
    assert complaints == []


async def test_a2_a_second_cancel_while_the_first_is_under_way() -> None:
    a = Player("a", [deaf])
    team = CodingTeam([a], max_turns=1)
    running = asyncio.create_task(team.run(task="one"))
    await until(lambda: a.turns == 1)
    running.cancel()
    await asyncio.sleep(0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await running
    await _until_it_can_run_again(team)
    assert speakers(await play(team, "two")) == ["a"]


def test_a2_a_token_may_be_cancelled_after_its_loop_is_closed() -> None:
    token = CancellationToken()
    a = Player("a")
    asyncio.run(CodingTeam([a], max_turns=1).run(task="one", cancellation_token=token))
    token.cancel()
    assert a.said == 1


async def test_a2_a_token_that_is_cancelled_after_the_run_changes_nothing() -> None:
    token = CancellationToken()
    team = CodingTeam([Player("a"), Player("b")], max_turns=2)
    async with asyncio.timeout(10):
        await team.run(task="one", cancellation_token=token)
    token.cancel()
    assert speakers(await play(team, "two")) == ["a", "b"]


# --- A3: whoever comes next sees the code, the exit code and the output ---


@pytest.mark.parametrize(
    ("code", "outcome", "output"),
    [
        ("print('sum:', 40 + 2)", "exit code 0", "sum: 42"),
        ("print('begun')\nraise SystemExit(3)", "exit code 3", "begun"),
    ],
    ids=["success", "failure"],
)
async def test_a3_next_agent_sees_code_exit_code_and_output(
    tmp_path: Path, code: str, outcome: str, output: str
) -> None:
    client = ReplayChatCompletionClient([f"```python\n{code}\n```", "I am done."])
    reviewer = Player("reviewer")
    team = CodingTeam(
        [CodeExecutorAgent("coder", LocalCodeExecutor(tmp_path), model_client=client), reviewer], max_turns=2
    )
    async with team:
        await play(team, "Write a sum.")
    assert reviewer.context[0] == "user: Write a sum."
    seen = reviewer.context[1]
    assert all(part in seen for part in ("I am done.", code, outcome, output)), seen


async def test_a3_reviewers_model_sees_code_exit_code_and_output(tmp_path: Path) -> None:
    coder_client = ReplayChatCompletionClient(["```python\nprint('sum:', 40 + 2)\n```", "I am done."])
    reviewer_client = ReplayChatCompletionClient(['{"approved": true, "issues": [], "summary": "Fine."}'])
    team = CodingTeam(
        [
            CodeExecutorAgent("coder", LocalCodeExecutor(tmp_path), model_client=coder_client),
            ReviewerAgent("reviewer", reviewer_client),
        ],
        termination_condition=ReviewApproved(),
        max_turns=2,
    )
    async with team:
        result = await play(team, "Write a sum.")
    assert result.stop_reason == "reviewer approved."
    seen = text_of(calls(reviewer_client)[0])
    assert all(part in seen for part in ("Write a sum.", "print('sum:', 40 + 2)", "exit code 0", "sum: 42")), seen


# --- A4: the saved state is the whole state ---


def as_json(state: Any) -> Any:
    """The state as a file would hold it."""
    return json.loads(json.dumps(state))


async def test_a4_interrupted_speaker_and_turns_survive() -> None:
    a, b, c = trio(listening)
    team = CodingTeam([a, b, c], max_turns=3)
    await interrupt("token", team, b)
    other = CodingTeam.load_component(team.dump_component())
    await other.load_state(as_json(await team.save_state()))

    assert speakers(await play(other)) == ["b", "c"]

    d, e, f = (_player(other, number) for number in range(3))
    assert d.context == ["user: one"]
    assert e.context == ["user: one", "a: a 1"]
    assert f.context == ["user: one", "a: a 1", "b: b 1"]


def _player(team: CodingTeam, number: int) -> Player:
    player = team.participants[number]
    assert isinstance(player, Player)
    return player


async def test_a4_a_loaded_team_takes_a_new_task_as_the_first_one_would() -> None:
    a, b, c = trio(listening)
    team = CodingTeam([a, b, c], max_turns=3)
    await interrupt("token", team, b)
    other = CodingTeam.load_component(team.dump_component())
    await other.load_state(as_json(await team.save_state()))
    assert speakers(await play(other, "two")) == ["b", "c", "a"]
    assert _player(other, 1).context == ["user: one", "a: a 1", "user: two"]


async def test_a4_state_of_a_nested_team_survives() -> None:
    y = Player("y", [listening])
    team = CodingTeam([Player("a"), CodingTeam([Player("x"), y], name="inner", max_turns=2)], max_turns=2)
    await interrupt("token", team, y)
    other = CodingTeam.load_component(team.dump_component())
    await other.load_state(as_json(await team.save_state()))
    assert speakers(await play(other)) == ["x", "y"]
    inner = other.participants[1]
    assert isinstance(inner, CodingTeam)
    assert _player(inner, 0).context == ["user: one", "a: a 1"]


# Each message of a Player costs 15 tokens. After the task, a's message and b's interruption two messages are counted.
CONDITIONS: dict[str, tuple[Callable[[], TerminationCondition], list[str]]] = {
    "MaxMessage": (lambda: MaxMessageTermination(4), ["b", "c"]),
    "TokenUsage": (lambda: TokenUsageTermination(max_total_token=45), ["b", "c"]),
    "prompt tokens": (lambda: TokenUsageTermination(max_prompt_token=30), ["b", "c"]),
    "completion tokens": (lambda: TokenUsageTermination(max_completion_token=15), ["b", "c"]),
    "or": (lambda: MaxMessageTermination(9) | TokenUsageTermination(max_total_token=45), ["b", "c"]),
    "and": (lambda: TextMentionTermination("a 1") & MaxMessageTermination(4), ["b", "c"]),
    "nested": (
        lambda: NoProgress() | (TextMentionTermination("a 1") & (MaxMessageTermination(4) | ExternalTermination())),
        ["b", "c"],
    ),
}


@pytest.mark.parametrize("name", CONDITIONS)
async def test_a4_counters_of_conditions_survive(name: str) -> None:
    make, expected = CONDITIONS[name]
    b = Player("b", [listening])
    team = CodingTeam([Player("a"), b, Player("c")], termination_condition=make())
    await interrupt("token", team, b)
    state = as_json(await team.save_state())
    other = CodingTeam([Player("a"), Player("b"), Player("c")], termination_condition=make())
    await other.load_state(state)
    result = await play(other)
    assert speakers(result) == expected
    # The first team counts the same, and its state did not change with the other's.
    assert speakers(await play(team)) == expected
    assert (await play(other)).stop_reason is not None, "what was met is reset"


async def test_a4_a_stop_that_was_asked_for_from_outside_survives() -> None:
    b = Player("b", [listening])
    condition = ExternalTermination()
    team = CodingTeam([Player("a"), b], termination_condition=MaxMessageTermination(9) | condition)
    await interrupt("token", team, b)
    condition.set()
    other = CodingTeam(
        [Player("a"), Player("b")], termination_condition=MaxMessageTermination(9) | ExternalTermination()
    )
    await other.load_state(as_json(await team.save_state()))
    assert speakers(await play(other)) == ["b"]


async def test_a4_what_an_and_has_met_already_is_told_after_loading() -> None:
    b = Player("b", [listening])
    condition = TextMentionTermination("a 1") & MaxMessageTermination(4)
    team = CodingTeam([Player("a"), b, Player("c")], termination_condition=condition)
    await interrupt("token", team, b)
    other = CodingTeam.load_component(
        CodingTeam([Player("a"), Player("b"), Player("c")], termination_condition=condition).dump_component()
    )
    await other.load_state(as_json(await team.save_state()))
    result, expected = await play(other), await play(team)
    assert result.stop_reason == expected.stop_reason
    assert result.stop_reason is not None
    assert "'a 1' mentioned" in result.stop_reason


async def test_a4_own_conditions_survive_in_a_team_from_the_config() -> None:
    """`NoProgress` has heard the sentence once before the cancel; once more is too often."""
    b = Player("b", [listening])
    condition = MaxMessageTermination(50) | (NoProgress(repeats=2) | CodeSucceeded())
    a = Player("a", ["again", "again", "again", "again"])
    team = CodingTeam([a, b], termination_condition=condition)
    await interrupt("token", team, b)
    other = CodingTeam.load_component(team.dump_component())
    await other.load_state(as_json(await team.save_state()))
    result = await play(other)
    assert speakers(result) == ["b", "a"]
    assert result.stop_reason == "No progress: a said the same thing 2 times."


async def test_a4_state_of_autogens_team_loads_and_the_other_way_round() -> None:
    theirs = RoundRobinGroupChat([Player("a"), Player("b"), Player("c")], max_turns=2)
    await play(theirs, "one")
    ours = CodingTeam([Player("a"), b := Player("b"), c := Player("c")], max_turns=2)
    await ours.load_state(as_json(await theirs.save_state()))
    assert speakers(await play(ours, "two")) == ["c", "a"]
    assert c.context == ["user: one", "a: a 1", "b: b 1", "user: two"]
    assert b.context == ["user: one", "a: a 1"]

    back = RoundRobinGroupChat([Player("a"), b := Player("b"), Player("c")], max_turns=1)
    await back.load_state(as_json(await ours.save_state()))
    assert speakers(await play(back, "three")) == ["b"]
    assert b.context == ["user: one", "a: a 1", "user: two", "c: c 1", "a: a 1", "user: three"]


async def test_a4_a_state_saved_while_paused_goes_on_elsewhere() -> None:
    gate = asyncio.Event()
    a, b = Player("a", [held_by(gate, "a speaks")]), Player("b")
    team = CodingTeam([a, b], termination_condition=MaxMessageTermination(3))
    async with asyncio.timeout(10):
        running = asyncio.create_task(team.run(task="one"))
        await until(lambda: a.turns == 1)
        await team.pause()
        gate.set()
        await until(lambda: a.said == 1)
        await asyncio.sleep(0.1)
        state = as_json(await team.save_state())
        await team.resume()
        assert speakers(await running) == ["a", "b"]

    other = CodingTeam([Player("a"), d := Player("b")], termination_condition=MaxMessageTermination(3))
    await other.load_state(state)
    assert speakers(await play(other)) == ["b"]
    assert d.context == ["user: one", "a: a speaks"]


# --- A5: a nested team with nothing new to read ---


@pytest.mark.parametrize("kind", [CodingTeam, RoundRobinGroupChat])
async def test_a5_nested_team_with_nothing_new_to_read(kind: type[RoundRobinGroupChat]) -> None:
    x, y = Player("x"), Player("y")
    team = CodingTeam([kind([x, y], name="inner", max_turns=1)], max_turns=3)
    assert speakers(await play(team, "one")) == ["x", "y", "x"]
    assert x.context == ["user: one", "y: y 1"]


async def test_a5_nested_team_that_says_nothing_leaves_the_others_nothing_to_read() -> None:
    """The first nested team ends whenever it has read something, so that the second has read all there is."""
    mute = CodingTeam([Player("x")], name="mute", termination_condition=FunctionalTermination(lambda _: True))
    y = Player("y")
    team = CodingTeam([mute, CodingTeam([y], name="inner", max_turns=1)], max_turns=4)
    assert speakers(await play(team, "one")) == ["y", "y"]
    assert y.context == ["user: one"]


# --- A6: message types of one's own survive in a config ---

TYPES: Sequence[type[BaseAgentEvent | BaseChatMessage]] = (PlanMessage, Notice, StructuredMessage[Plan])


async def test_a6_custom_message_types_survive_a_config() -> None:
    planner, structured, b = PlanAgent("planner"), StructuredPlanAgent("structured"), Player("b")
    team = CodingTeam([planner, structured, b], max_turns=3, custom_message_types=TYPES)
    config = json.loads(team.dump_component().model_dump_json())
    assert config["config"]["custom_message_types"] == [
        "tests.teams.helpers.PlanMessage",
        "tests.teams.helpers.Notice",
        "autogen_agentchat.messages.StructuredMessage[tests.teams.helpers.Plan]",
    ]
    other = CodingTeam.load_component(config)
    assert other.dump_component() == team.dump_component()

    result = await play(other, [PlanMessage(plan=Plan(goal="the goal"), source="user")])

    kinds = [type(message) for message in result.messages]
    assert kinds == [PlanMessage, Notice, PlanMessage, StructuredMessage[Plan], TextMessage]
    assert _player(other, 2).context[:2] == ["user: the goal", "planner: planner 1"]
    third = CodingTeam.load_component(config)
    await third.load_state(as_json(await other.save_state()))
    assert len(speakers(await play(third, "again"))) == 3


async def test_a6_a_task_of_a_structured_type_that_no_agent_makes() -> None:
    team = CodingTeam([a := Player("a")], max_turns=1, custom_message_types=[StructuredMessage[Plan]])
    other = CodingTeam.load_component(team.dump_component())
    await play(other, [StructuredMessage[Plan](content=Plan(goal="the goal"), source="user")])
    assert "the goal" in _player(other, 0).context[0]
    assert a.context == []


def test_a6_local_types_are_refused_with_a_clear_error() -> None:
    class LocalMessage(PlanMessage):
        pass

    class LocalContent(BaseModel):
        text: str

    kinds: list[type[BaseChatMessage]] = [LocalMessage, StructuredMessage[LocalContent]]
    for kind in kinds:
        team = CodingTeam([Player("a")], custom_message_types=[kind])
        with pytest.raises(TypeError, match=r"Local\w+.*local class.*config"):
            team.dump_component()


def test_a6_type_inside_a_class_survives_or_is_refused_at_the_dump() -> None:
    team = CodingTeam([Player("a")], custom_message_types=[Outer.NestedMessage])
    try:
        dumped = team.dump_component()
    except TypeError as error:
        assert "NestedMessage" in str(error)  # noqa: PT017
    else:
        assert CodingTeam.load_component(dumped).dump_component() == dumped


@pytest.mark.parametrize(
    "name",
    [
        "",
        "PlanMessage",
        "tests.teams.helpers.Nothing",
        "tests.no_such_module.Message",
        "tests.teams.helpers.Plan",
        "tests.teams.helpers.deaf",
        "autogen_agentchat.messages.StructuredMessage[tests.teams.helpers.Nothing]",
        "autogen_agentchat.messages.StructuredMessage[tests.teams.helpers.deaf]",
        "autogen_agentchat.messages.StructuredMessage[a.B[c.D]]",
        "autogen_agentchat.messages.StructuredMessage[",
        "tests.teams.helpers.PlanMessage[tests.teams.helpers.Plan]",
    ],
)
def test_a6_a_name_that_leads_nowhere_is_told(name: str) -> None:
    config = CodingTeam([Player("a")]).dump_component().model_dump()
    config["config"]["custom_message_types"] = [name]
    with pytest.raises(ValueError, match="message type"):
        CodingTeam.load_component(config)


# --- A7: errors keep their type ---


class RefusedError(Exception):
    """An error with data of its own."""

    def __init__(self, code: int) -> None:
        super().__init__(f"refused with {code}")
        self.code = code


async def test_a7_error_keeps_its_type() -> None:
    cause = RefusedError(7)
    team = CodingTeam([Player("a"), Player("b", [cause])], max_turns=2)
    with pytest.raises(AgentError) as caught:
        await play(team, "one")
    assert caught.value.__cause__ is cause
    assert caught.value.agent == "b"
    assert isinstance(caught.value, RuntimeError), "what AutoGen's teams raise"
    assert str(caught.value) == "Agent 'b' failed: RefusedError: refused with 7"


async def test_a7_what_was_said_before_the_error_is_delivered_first() -> None:
    team = CodingTeam([Player("a"), Player("b", [RefusedError(7)])])
    seen: list[Any] = []
    with pytest.raises(AgentError):
        await _collect(team.run_stream(task="one"), seen)
    assert [item.to_text() for item in seen] == ["one", "a 1"]


async def test_a7_error_in_a_nested_team_keeps_its_type() -> None:
    cause = RefusedError(7)
    team = CodingTeam([CodingTeam([Player("x", [cause])], name="inner")])
    with pytest.raises(AgentError) as caught:
        await play(team, "one")
    inner = caught.value.__cause__
    assert isinstance(inner, AgentError)
    assert (caught.value.agent, inner.agent, inner.__cause__) == ("inner", "x", cause)
    assert "Traceback" not in str(caught.value)


async def test_a7_two_errors_are_each_told_as_they_are() -> None:
    causes = [RefusedError(1), ValueError("other")]
    team = CodingTeam([Player("a", causes)])
    for cause in causes:
        with pytest.raises(AgentError) as caught:
            await play(team, "one")
        assert caught.value.__cause__ is cause


@pytest.mark.parametrize("at", [1, 2], ids=["at the start", "after a turn"])
async def test_a7_error_of_a_condition_keeps_its_type(at: int) -> None:
    team = CodingTeam([Player("a")], termination_condition=FunctionalTermination(failing(at)), max_turns=2)
    with pytest.raises(Exception, match="bad condition") as caught:
        await play(team, "one")
    assert isinstance(caught.value, ValueError) or isinstance(caught.value.__cause__, ValueError)
    assert "Traceback" not in str(caught.value)


async def test_a7_message_of_a_type_that_the_team_does_not_know() -> None:
    team = CodingTeam([PlanAgent("planner")])
    with pytest.raises(AgentError, match=r"PlanMessage|Notice") as caught:
        await play(team, "one")
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a7_message_of_a_nested_team_that_the_outer_one_does_not_know() -> None:
    inner = CodingTeam([PlanAgent("planner")], name="inner", max_turns=1, custom_message_types=[PlanMessage, Notice])
    team = CodingTeam([inner])
    for _ in range(2):
        with pytest.raises(AgentError, match=r"PlanMessage|Notice") as caught:
            await play(team, "one")
        assert isinstance(caught.value.__cause__, ValueError)


class Tidy(Player):
    """Does something, and tidies up."""

    tidied = False

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        try:
            yield Notice(about="unknown to the team", source=self.name)
            yield await self.on_messages(messages, cancellation_token)
        finally:
            self.tidied = True


async def test_a7_agents_stream_is_closed_when_its_turn_fails() -> None:
    a = Tidy("a")
    with pytest.raises(AgentError, match="Notice"):
        await play(CodingTeam([a]), "one")
    assert a.tidied


@pytest.mark.parametrize("how", ["error", "token", "deaf"])
async def test_a7_what_is_raised_is_not_logged_with_its_traceback_as_well(
    how: How, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that has set up no logging would show it on its standard error, though it handled the error."""
    caplog.set_level(logging.WARNING, logger="autogen_core")
    a = Player("a", [step_for(how)])
    await interrupt(how, CodingTeam([a, Player("b")]), a)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a7_nor_is_an_error_of_the_condition_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="autogen_core")
    team = CodingTeam([Player("a")], termination_condition=FunctionalTermination(failing(2)))
    with pytest.raises(Exception, match="bad condition"):
        await play(team, "one")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a7_nor_is_a_cancel_between_two_turns_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="autogen_core")
    gate = asyncio.Event()
    a = Player("a", [held_by(gate, "a speaks")])
    team = CodingTeam([a, Player("b")])
    running = asyncio.create_task(team.run(task="one"))
    await until(lambda: a.turns == 1)
    await team.pause()
    gate.set()
    await until(lambda: a.said == 1)
    await asyncio.sleep(0.1)
    running.cancel()
    assert await ends(running)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a7_wrong_tasks_are_told_as_autogen_tells_them() -> None:
    team = CodingTeam([Player("a")], max_turns=1)
    wrong: list[Any] = [[], (), 5, [5], PlanMessage(plan=Plan(goal="x"), source="user")]
    for task in wrong:
        with pytest.raises(ValueError, match=r"[Tt]ask|type"):
            await play(team, task)
    assert speakers(await play(team, "one")) == ["a"]


# --- A8: pause and resume ---


async def test_a8_pause_holds_back_the_next_turn() -> None:
    gate = asyncio.Event()
    a, b = Player("a", [held_by(gate, "a speaks")]), Player("b")
    team = CodingTeam([a, b], max_turns=2)
    async with asyncio.timeout(10):
        running = asyncio.create_task(team.run(task="one"))
        await until(lambda: a.turns == 1)
        await team.pause()
        gate.set()
        await until(lambda: a.said == 1)
        await asyncio.sleep(0.2)
        assert b.turns == 0
        assert not running.done()
        await team.resume()
        assert speakers(await running) == ["a", "b"]


async def test_a8_a_paused_team_can_be_cancelled_and_run_again() -> None:
    gate = asyncio.Event()
    a, b = Player("a", [held_by(gate, "a speaks")]), Player("b")
    team = CodingTeam([a, b], max_turns=2)
    token = CancellationToken()
    async with asyncio.timeout(10):
        running = asyncio.create_task(team.run(task="one", cancellation_token=token))
        await until(lambda: a.turns == 1)
        await team.pause()
        gate.set()
        await until(lambda: a.said == 1)
        await asyncio.sleep(0.1)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert speakers(await play(team)) == ["b"]
    assert b.context == ["user: one", "a: a speaks"]


async def test_a8_code_executor_agent_holds_back_its_next_step(tmp_path: Path) -> None:
    waiting = "while not pathlib.Path('go').exists():\n    time.sleep(0.01)"
    code = f"import pathlib, time\npathlib.Path('ready').touch()\n{waiting}"
    client = ReplayChatCompletionClient([f"```python\n{code}\n```", "Done."])
    team = CodingTeam([CodeExecutorAgent("coder", LocalCodeExecutor(tmp_path), model_client=client)], max_turns=1)
    async with team, asyncio.timeout(20):
        seen: list[Any] = []
        running = asyncio.create_task(_collect(team.run_stream(task="one"), seen))
        await until((tmp_path / "ready").exists)
        await team.pause()
        (tmp_path / "go").touch()
        await until(lambda: any(isinstance(item, CodeExecutionEvent) for item in seen))
        await asyncio.sleep(0.2)
        assert len(calls(client)) == 1, "the reflection waits"
        await team.resume()
        await running
    assert len(calls(client)) == 2


async def _collect(stream: AsyncGenerator[Any, None], into: list[Any]) -> None:
    async for item in stream:
        into.append(item)


async def test_a8_code_executor_agent_works_again_after_a_cancel_in_a_pause(tmp_path: Path) -> None:
    """A new run begins unpaused, for the team and for its agents."""
    gate = asyncio.Event()
    code = "```python\nprint('ran')\n```"
    a = Player("a", [held_by(gate, code), code])
    runner = CodeExecutorAgent("runner", LocalCodeExecutor(tmp_path))
    team = CodingTeam([a, runner], max_turns=2)
    async with team:
        running = asyncio.create_task(team.run(task="one"))
        await until(lambda: a.turns == 1)
        await team.pause()
        running.cancel()
        await asyncio.wait({running})
        running = asyncio.create_task(team.run())
        assert await ends(running)
    assert speakers(await running) == ["a", "runner"]
    assert (await running).messages[-1].to_text().strip() == "ran"


async def test_a8_pause_reaches_into_the_nested_team_at_its_turn() -> None:
    gate = asyncio.Event()
    x, y = Player("x", [held_by(gate, "x speaks")]), Player("y")
    team = CodingTeam([CodingTeam([x, y], name="inner", max_turns=2)], max_turns=1)
    async with asyncio.timeout(10):
        running = asyncio.create_task(team.run(task="one"))
        await until(lambda: x.turns == 1)
        await team.pause()
        gate.set()
        await until(lambda: x.said == 1)
        await asyncio.sleep(0.2)
        assert y.turns == 0
        await team.resume()
        assert speakers(await running) == ["x", "y"]


async def test_a8_pause_while_a_nested_team_has_not_had_a_turn_yet() -> None:
    gate = asyncio.Event()
    a, x = Player("a", [held_by(gate, "a speaks")]), Player("x")
    team = CodingTeam([a, CodingTeam([x], name="inner", max_turns=1)], max_turns=2)
    await _pause_and_resume(team, "one", lambda: a.turns == 1, gate, lambda: x.turns == 0)


async def test_a8_pause_while_a_nested_team_is_between_its_turns() -> None:
    gate = asyncio.Event()
    a, x = Player("a", ["first", held_by(gate, "a speaks")]), Player("x")
    team = CodingTeam([a, CodingTeam([x], name="inner", max_turns=1)], max_turns=4)
    await _pause_and_resume(team, "one", lambda: a.turns == 2, gate, lambda: x.turns == 1)
    assert x.turns == 2


async def _pause_and_resume(
    team: CodingTeam, task: str, busy: Callable[[], bool], gate: asyncio.Event, held: Callable[[], bool]
) -> None:
    running = asyncio.create_task(team.run(task=task))
    try:
        await until(busy)
        async with asyncio.timeout(5):
            await team.pause()
        gate.set()
        await asyncio.sleep(0.2)
        assert held()
        async with asyncio.timeout(5):
            await team.resume()
            await running
    finally:
        gate.set()
        running.cancel()
        await asyncio.wait({running})


@pytest.mark.slow
async def test_a8_a_pause_at_whatever_moment() -> None:
    """It neither hangs nor fails nor gets lost, not even when the run is about to end."""
    steps, ended = 0, False
    while not ended:
        a, b = Player("a", [slow_step]), Player("b", [slow_step])
        team = CodingTeam([a, b], max_turns=2)
        running = asyncio.create_task(team.run(task="one"))
        for _ in range(steps):
            await asyncio.sleep(0)
        ended = running.done()
        turns, is_running = a.turns + b.turns, team._is_running
        pausing = asyncio.create_task(team.pause())
        assert await ends(pausing), f"pause() hangs after {steps} steps"
        await pausing
        await asyncio.sleep(0.02)
        # One more turn may have been given already.
        assert not is_running or a.turns + b.turns <= turns + 1, f"the pause was lost after {steps} steps"
        resuming = asyncio.create_task(team.resume())
        assert await ends(resuming), f"resume() hangs after {steps} steps"
        await resuming
        assert await ends(running)
        assert speakers(await running) == ["a", "b"]
        steps += 1


async def test_a8_pausing_a_team_that_does_not_run_does_not_hang() -> None:
    team = CodingTeam([Player("a")], max_turns=1)
    await play(team, "one")
    async with asyncio.timeout(5):
        for call in (team.pause, team.resume):
            try:
                await call()
            except RuntimeError as error:
                assert "running" in str(error)  # noqa: PT017
    assert speakers(await play(team, "two")) == ["a"]


# --- A9: what AutoGen's types allow and its code refuses ---


def without_component_types(model: ComponentModel) -> dict[str, Any]:
    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key != "component_type"}
        return [strip(item) for item in value] if isinstance(value, list) else value

    config = strip(model.model_dump())
    assert isinstance(config, dict)
    return config


async def test_a9_nested_config_without_component_types_loads() -> None:
    inner = CodingTeam([Player("x")], name="inner", max_turns=1)
    team = CodingTeam([Player("a"), inner], termination_condition=MaxMessageTermination(3))
    config = without_component_types(team.dump_component())
    assert "component_type" not in json.dumps(config)
    other = CodingTeam.load_component(config)
    assert other.dump_component() == team.dump_component()
    assert speakers(await play(other, "one")) == ["a", "x"]


def test_a9_participant_that_is_neither_an_agent_nor_a_team_is_named() -> None:
    config = CodingTeam([Player("a")]).dump_component().model_dump()
    config["config"]["participants"] = [MaxMessageTermination(3).dump_component().model_dump()]
    with pytest.raises(TypeError, match=r"MaxMessageTermination.*neither an agent nor a team"):
        CodingTeam.load_component(config)


async def test_a9_task_may_be_a_tuple() -> None:
    team = CodingTeam([a := Player("a")], max_turns=1)
    await play(team, (TextMessage(content="one", source="user"), TextMessage(content="two", source="user")))
    assert a.context == ["user: one", "user: two"]
