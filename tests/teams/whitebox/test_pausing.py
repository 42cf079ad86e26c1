"""A pause at every step of a run; only AutoGen's private flag says when a run has begun."""

from __future__ import annotations

import asyncio

import pytest

from coderoom.teams import CodingTeam
from tests.teams.helpers import Player, ends, slow_step, speakers


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
