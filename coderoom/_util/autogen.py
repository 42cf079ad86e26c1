"""The private names of AutoGen that CodeRoom uses. AutoGen is frozen at 0.7.5; no other module names any of these."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from autogen_agentchat.base import Team

__all__ = ["agents_of", "closers_of", "executor_of", "model_client_of", "participants_of", "transports_of"]


def participants_of(team: Any) -> list[Any]:
    """A team's agents and nested teams, in the order of their turns."""
    return list(getattr(team, "_participants", ()))


def agents_of(team: Any, *, hidden: bool = False) -> Iterator[Any]:
    """A team's agents and those of nested teams, in the order of their turns.

    Args:
        team: The team.
        hidden: Whether to include those of teams inside an agent, such as a `TeamAgent` or `SocietyOfMindAgent`.
    """
    for participant in participants_of(team):
        if isinstance(participant, Team):
            yield from agents_of(participant, hidden=hidden)
            continue
        if hidden:
            yield from agents_of(getattr(participant, "_team", None), hidden=True)
        yield participant


def executor_of(agent: Any) -> Any:
    """Where an agent's code runs, or `None`."""
    return getattr(agent, "code_executor", None) or getattr(agent, "_code_executor", None)


def model_client_of(agent: Any) -> Any:
    """An agent's model client, or `None`."""
    return getattr(agent, "_model_client", None)


def closers_of(team: Any) -> list[Callable[[], Awaitable[None]]]:
    """What closes all that a team's agents use: AutoGen's agents leave their executor and their model client open."""
    found = []
    for agent in agents_of(team, hidden=True):
        found.append(agent.close)
        if (executor := getattr(agent, "_code_executor", None)) is not None:
            found.append(executor.stop)
        if callable(close := getattr(model_client_of(agent), "close", None)):
            found.append(close)
    return found


def transports_of(model_client: Any) -> list[Any]:
    """The connection pools of a client that uses httpx, as those of OpenAI's and Anthropic's services do."""
    http = getattr(getattr(model_client, "_client", None), "_client", None)
    found = [getattr(http, "_transport", None), *getattr(http, "_mounts", {}).values()]
    return [transport for transport in found if callable(getattr(transport, "aclose", None))]
