"""AutoGen's defect A1: what a cancel or an error leaves of a team."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import (
    FunctionalTermination,
    MaxMessageTermination,
)
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
)
from autogen_core import CancellationToken
from autogen_ext.models.replay import ReplayChatCompletionClient

from coderoom.agents import CodeExecutorAgent
from coderoom.errors import AgentError
from coderoom.executors import LocalCodeExecutor
from coderoom.teams import CodingTeam
from tests.teams.helpers import (
    Player,
    calls,
    ends,
    failing,
    interrupt,
    listening,
    play,
    slow_step,
    speakers,
    text_of,
    trio,
    until,
)

# --- A1: after a cancel or an error the team goes on ---


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
