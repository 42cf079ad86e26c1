"""Has the code of several agents run in one session. Used by `CodingTeam`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coderoom.agents.base import CodingAgent
from coderoom.agents.code_act import CodeActAgent
from coderoom.agents.shared_session import SharedSession
from coderoom.approval import Approval
from coderoom.executors import SandboxCodeExecutor

_ONE_CONFIG = "a shared session has one executor: give all agents that run code the same code_executor"


def share_session(agents: Sequence[CodingAgent[Any]]) -> None:
    """Have the code of these agents run in one session, that of the first one's executor.

    Args:
        agents: The agents, none of which has run code.

    Raises:
        ValueError: Their executors keep no variables or have different configs; initial variables or imports of the
            same name, or folders of skills, are different; or the code of one could call functions without what
            decides about its own calls.
    """
    first = agents[0]
    for agent in agents:
        if not isinstance(agent.code_executor, SandboxCodeExecutor) or agent.code_executor.state != "session":
            raise ValueError(
                f"shared_session needs a SandboxCodeExecutor with state='session'; that of {agent.name!r} is another."
            )
        if different := _differences(first.code_executor, agent.code_executor):
            names = " and ".join(map(repr, different))
            raise ValueError(
                f"The executors of {first.name!r} and {agent.name!r} differ in {names}, and {_ONE_CONFIG}."
            )
    actors = [agent for agent in agents if isinstance(agent, CodeActAgent)]
    _check_names(actors)
    _check_calls(actors)
    shared = SharedSession(first.code_executor, [agent._session for agent in actors])
    for agent in agents:
        agent._runner.share(shared)
    for agent in actors:
        agent._session.share(shared)


def _differences(one: SandboxCodeExecutor, other: SandboxCodeExecutor) -> list[str]:
    if type(one) is not type(other):
        return ["their classes"]
    ours, theirs = one._to_config(), other._to_config()
    return [name for name in type(ours).model_fields if getattr(ours, name) != getattr(theirs, name)]


def _check_names(agents: Sequence[CodeActAgent]) -> None:
    """Refuse different initial variables and imports of the same name, and different folders of skills."""
    found: dict[str, tuple[str, Any]] = {}
    for agent in agents:
        folder = {} if agent._skills is None else {"skills": agent._skills.folder.path}
        for name, value in {**agent._initial_variables, **agent._initial_imports, **folder}.items():
            known, before = found.setdefault(name, (agent.name, value))
            if before != value:
                raise ValueError(
                    f"{known!r} and {agent.name!r} share a session and begin with different values of {name!r}."
                )


def _check_calls(agents: Sequence[CodeActAgent]) -> None:
    """Refuse that code calls a function of another agent which its own agent would ask about, or forbid."""
    offering = [agent for agent in agents if agent._tools or agent._workbench]
    for agent in agents:
        asks = agent._call_approval is not None
        for other in offering if asks or agent._call_rules else ():
            if agent._call_rules != other._call_rules or not _same(agent._call_approval, other._call_approval):
                raise ValueError(
                    f"The code of {agent.name!r} can call the functions of {other.name!r} in a shared session: give "
                    "both the same call_rules and the same call_approval."
                )


def _same(one: object, other: object) -> bool:
    """Whether two approvals are one, or have the same config."""
    if one is other or not isinstance(one, Approval) or not isinstance(other, Approval):
        return one is other
    return bool(one.dump_component() == other.dump_component())
