"""AutoGen's defect A2: a cancel and the end of a run."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_agentchat.agents import CodeExecutorAgent as AutoGenCodeExecutorAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
)
from autogen_core import CancellationToken

from coderoom.agents import CodeExecutorAgent
from coderoom.executors import LocalCodeExecutor
from coderoom.teams import CodingTeam
from tests.teams.helpers import (
    Player,
    deaf,
    ends,
    interrupt,
    listening,
    play,
    speakers,
    until,
)

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
