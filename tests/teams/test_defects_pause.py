"""AutoGen's defect A8: pause and resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autogen_agentchat.messages import (
    CodeExecutionEvent,
)
from autogen_ext.models.replay import ReplayChatCompletionClient

from coderoom.agents import CodeExecutorAgent
from coderoom.executors import LocalCodeExecutor
from coderoom.teams import CodingTeam
from tests.teams.helpers import (
    Player,
    calls,
    collect,
    ends,
    held_by,
    run_and_pause,
    speakers,
    until,
)

# --- A8: pause and resume ---


async def test_a8_code_executor_agent_holds_back_its_next_step(tmp_path: Path) -> None:
    waiting = "while not pathlib.Path('go').exists():\n    time.sleep(0.01)"
    code = f"import pathlib, time\npathlib.Path('ready').touch()\n{waiting}"
    client = ReplayChatCompletionClient([f"```python\n{code}\n```", "Done."])
    team = CodingTeam([CodeExecutorAgent("coder", LocalCodeExecutor(tmp_path), model_client=client)], max_turns=1)
    async with team, asyncio.timeout(20):
        seen: list[Any] = []
        running = asyncio.create_task(collect(team.run_stream(task="one"), seen))
        await until((tmp_path / "ready").exists)
        await team.pause()
        (tmp_path / "go").touch()
        await until(lambda: any(isinstance(item, CodeExecutionEvent) for item in seen))
        await asyncio.sleep(0.2)
        assert len(calls(client)) == 1, "the reflection waits"
        await team.resume()
        await running
    assert len(calls(client)) == 2


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
        running = await run_and_pause(team, x, gate)
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
