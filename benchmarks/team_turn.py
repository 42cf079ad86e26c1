"""Measure what a turn costs in a CodingTeam, as a ratio to AutoGen's RoundRobinGroupChat in the same run.

python benchmarks/team_turn.py [turns]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Sequence
from time import perf_counter

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken

from coderoom.teams import CodingTeam

ROUNDS = 7


class Speaker(BaseChatAgent):
    """Says the same thing each time, so that all that is measured is the team."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        """Plain text."""
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        """Say it."""
        return Response(chat_message=TextMessage(source=self.name, content="words"))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Nothing to forget."""


async def seconds_a_turn(kind: type[RoundRobinGroupChat], turns: int) -> float:
    """Run a team of three and return the time of a turn."""
    team = kind([Speaker(name, "speaks") for name in ("a", "b", "c")], max_turns=turns)
    begin = perf_counter()
    await team.run(task="speak")
    return (perf_counter() - begin) / turns


async def main() -> None:
    """Measure both in turn, round by round, and print the medians."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    kinds = (RoundRobinGroupChat, CodingTeam)
    times: dict[str, list[float]] = {kind.__name__: [] for kind in kinds}
    for _ in range(ROUNDS):
        for kind in kinds:
            times[kind.__name__].append(await seconds_a_turn(kind, turns))
    base = statistics.median(times["RoundRobinGroupChat"])
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:20} {median * 1000:6.2f} ms a turn   {median / base:5.2f} of AutoGen's")


if __name__ == "__main__":
    asyncio.run(main())
