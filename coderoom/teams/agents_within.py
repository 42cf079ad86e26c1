"""The agents of a team and of the teams in it, AutoGen's own too, which neither start nor close theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from autogen_agentchat.base import Team

__all__ = ["agents_of", "close_agents", "start_agents"]


def agents_of(team: Team) -> Iterator[Any]:
    """Give all of them, in the order of their turns."""
    for participant in getattr(team, "_participants", ()):
        if isinstance(participant, Team):
            yield from agents_of(participant)
        else:
            yield participant


async def start_agents(team: Team) -> None:
    """Start what they own, executors for instance, and not only on first use."""
    for agent in agents_of(team):
        if callable(start := getattr(agent, "start", None)):
            await start()


async def close_agents(team: Team) -> None:
    """Close them.

    Raises:
        Exception: What the first that could not be closed raised, once all others are.
    """
    results = await asyncio.gather(*(agent.close() for agent in agents_of(team)), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
