"""AutoGen's defects A1, A4 and A8, in any order: everybody reads each message once, and takes turns.

That is, of runs, interruptions, pauses, resets and loads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest
from autogen_core import CancellationToken
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coderoom.teams import CodingTeam
from tests.teams.helpers import HOWS, How, Player, held_by, interrupt, play, speakers, step_for, until

NAMES = ("a", "b", "c")
TURNS = 4


class AnyOrder(RuleBasedStateMachine):
    """Does to a team what users do, and knows what each agent must have read."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.make_team()
        self.tasks = 0
        self.forget()

    def make_team(self) -> None:
        self.players = [Player(name) for name in NAMES]
        self.team = CodingTeam(self.players, max_turns=TURNS)
        self.said = dict.fromkeys(NAMES, 0)

    def forget(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.read = dict.fromkeys(NAMES, 0)
        self.next = 0
        self.left = TURNS

    def do(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    # --- What must be so ---

    def new_task(self, wanted: bool) -> str | None:
        """The task of the next run; the first one has one."""
        if not wanted and self.told:
            return None
        self.tasks += 1
        task = f"task {self.tasks}"
        self.told.append(("user", task))
        self.left = TURNS
        return task

    def takes_turn(self) -> str:
        name = NAMES[self.next]
        self.read[name] = len(self.told)
        self.said[name] += 1
        self.told.append((name, f"{name} {self.said[name]}"))
        self.next = (self.next + 1) % len(NAMES)
        self.left -= 1
        return name

    def take_turns(self) -> list[str]:
        names = [self.takes_turn() for _ in range(self.left)]
        self.left = TURNS
        return names

    @invariant()
    def everybody_has_read_each_message_once(self) -> None:
        for player in self.players:
            told = self.told[: self.read[player.name]]
            assert player.context == [f"{source}: {text}" for source, text in told if source != player.name]

    # --- What users do ---

    @rule(new=st.booleans())
    def run_to_the_end(self, new: bool) -> None:
        task = self.new_task(new)
        assert speakers(self.do(play(self.team, task))) == self.take_turns()

    @rule(new=st.booleans(), how=st.sampled_from(HOWS), turns=st.integers(0, len(NAMES) - 1))
    def run_and_interrupt(self, new: bool, how: How, turns: int) -> None:
        task = self.new_task(new)
        turns = min(turns, self.left - 1)
        if how == "close" and task is None and not turns:
            how = "token"  # Nothing is in the stream yet that could be closed.
        for _ in range(turns):
            player = self.players[self.next]
            player._steps.append(f"{self.takes_turn()} {self.said[player.name]}")
        player = self.players[self.next]
        player._steps.append(step_for(how))
        self.do(interrupt(how, self.team, player, task))  # The turn has not happened.

    @rule(new=st.booleans(), then=st.sampled_from(["resume", "cancel", "save and load"]))
    def run_with_a_pause(self, new: bool, then: str) -> None:
        """The pause begins in a turn, which ends; the next one waits."""

        async def paused(task: str | None) -> None:
            gate, token, turns = asyncio.Event(), CancellationToken(), self.turns_taken()
            first = self.players[self.next]
            first._steps.append(held_by(gate, f"{first.name} {self.said[first.name] + 1}"))
            running = asyncio.create_task(self.team.run(task=task, cancellation_token=token))
            await until(lambda: self.turns_taken() > turns)
            await self.team.pause()
            gate.set()
            if self.left > 1:
                name = self.takes_turn()
                await until(lambda: first.said == self.said[name])
                for _ in range(50):
                    await asyncio.sleep(0)
                assert (self.turns_taken(), running.done()) == (turns + 1, False)
                if then != "resume":
                    state = await self.team.save_state()
                    token.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await running
                    if then == "save and load":
                        await self.load(state)
                    return
                await self.team.resume()
                assert speakers(await running) == [name, *self.take_turns()]
            else:
                await self.team.resume()
                assert speakers(await running) == self.take_turns()

        self.do(asyncio.wait_for(paused(self.new_task(new)), 20))

    def turns_taken(self) -> int:
        return sum(player.turns for player in self.players)

    @rule()
    def pause_without_a_run(self) -> None:
        self.do(self.team.pause())

    @rule()
    def reset(self) -> None:
        self.do(self.team.reset())
        self.forget()

    @precondition(lambda self: self.told)
    @rule()
    def save_and_load(self) -> None:
        self.do(self.load(self.do(self.team.save_state())))

    async def load(self, state: Mapping[str, Any]) -> None:
        self.make_team()
        await self.team.load_state(json.loads(json.dumps(state)))

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


AnyOrder.TestCase.settings = settings(max_examples=15, deadline=None, stateful_step_count=12)
TestAnyOrder = AnyOrder.TestCase


class AnyOrderAtLength(AnyOrder):
    pass


AnyOrderAtLength.TestCase.settings = settings(AnyOrder.TestCase.settings, max_examples=150)
TestAnyOrderAtLength = pytest.mark.slow(AnyOrderAtLength.TestCase)
