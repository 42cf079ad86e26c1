"""Starting and closing the agents of a team and of nested teams: AutoGen's own teams do neither."""

from __future__ import annotations

import asyncio

from autogen_agentchat.base import Team

from coderoom._util.autogen import agents_of

__all__ = ["close_agents", "start_agents"]


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
