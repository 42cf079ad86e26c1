"""The private names of AutoGen and AutoGen Studio that CodeRoom uses; no other module has any.

AutoGen is frozen at 0.7.5, and a test checks that each name is there. Not listed are the protected members of AutoGen's
classes that CodeRoom's subclasses use on themselves.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.agents._user_proxy_agent import cancellable_input
from autogen_agentchat.base import Team
from autogen_agentchat.messages import MessageFactory
from autogen_agentchat.teams import BaseGroupChat, GraphFlow
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._events import (
    GroupChatAgentResponse,
    GroupChatError,
    GroupChatRequestPublish,
    GroupChatTeamResponse,
    SerializableException,
)
from autogen_agentchat.teams._group_chat._round_robin_group_chat import (
    RoundRobinGroupChatConfig,
    RoundRobinGroupChatManager,
)
from autogen_core import ComponentBase, MessageHandlerContext, SingleThreadedAgentRuntime
from autogen_core._component_config import WELL_KNOWN_PROVIDERS, ComponentFromConfig
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import StreamTool

# AutoGen's own names that other modules import from here.
__all__ = [
    "WELL_KNOWN_PROVIDERS",
    "ChatAgentContainer",
    "GroupChatAgentResponse",
    "GroupChatError",
    "GroupChatRequestPublish",
    "GroupChatTeamResponse",
    "RoundRobinGroupChatConfig",
    "RoundRobinGroupChatManager",
    "SerializableException",
]

P = TypeVar("P")

# Termination conditions keep their counts in private attributes, without a way to save them. The start of a
# `TimeoutTermination` is left out: its clock restarts in a new process.
COUNTERS = (
    "_terminated",
    "_setted",
    "_message_count",
    "_total_token_count",
    "_prompt_token_count",
    "_completion_token_count",
)
CONDITIONS = "_conditions"
"""The conditions that a condition combines."""
STOP_MESSAGES = "_stop_messages"
"""The stop messages of the conditions that an `AndTerminationCondition` combines."""


# What AutoGen says in words only, and others must know.
AFTER_ONE_TURN = "Maximum number of turns 1 reached."
"""Why a team of one agent stops, which is not worth a word."""
_AT_ITS_LIMIT = "Maximum number of "
_TEXT_MENTIONED = re.compile(r"Text '(.+)' mentioned", re.DOTALL)


def says_timeout(output: str) -> bool:
    """Whether the output of an executor, whose exit code may be that of the code, ends with a timeout."""
    return output.rstrip().endswith("Timeout")


def wants_model_info(error: ValueError) -> bool:
    """Whether a client refuses its config because it does not know the model, whose abilities must be given."""
    return "model_info" in str(error)


def is_at_its_limit(stop_reason: str | None) -> bool:
    """Whether a team has stopped at its limit of turns or messages."""
    return (stop_reason or "").startswith(_AT_ITS_LIMIT)


def is_at_its_turns(stop_reason: str | None) -> bool:
    """Whether a team has stopped at its limit of turns."""
    return (stop_reason or "").startswith(f"{_AT_ITS_LIMIT}turns")


def text_mentioned(stop_reason: str | None) -> str:
    """The text whose mention has stopped a team; empty if that was not the reason."""
    found = _TEXT_MENTIONED.fullmatch(stop_reason or "")
    return "" if found is None else found[1]


class QuietRuntime(SingleThreadedAgentRuntime):
    """AutoGen's runtime without the error that it raises when the loop ends before the run does."""

    async def _process_publish(self, message_envelope: Any) -> None:
        try:
            await super()._process_publish(message_envelope)
        except ValueError:  # It has replaced the queue that it reports to.
            if self._run_context is not None:
                raise


acting_as: Final[ContextVar[str | None]] = ContextVar("coderoom_acting_as", default=None)
"""The agent whose earlier code runs again in this context; empty if that was a person's."""


def current_agent() -> str:
    """The name of the agent whose turn this code is a part of; empty outside of a team."""
    if (agent := acting_as.get()) is not None:
        return agent
    try:
        kind = MessageHandlerContext.agent_id().type
    except RuntimeError:
        return ""
    return kind.rpartition("_")[0]  # A team adds its own id to the name.


def agents_of(team: Any, *, hidden: bool = False) -> Iterator[Any]:
    """A team's agents and those of nested teams, in the order of their turns.

    With `hidden`, also those of teams inside an agent, such as a `TeamAgent` or `SocietyOfMindAgent`.
    """
    yield from agents_in(getattr(team, "_participants", ()), hidden=hidden)


def agents_in(participants: Iterable[Any], *, hidden: bool = False) -> Iterator[Any]:
    """The agents among participants of a team, and those of nested teams; see `agents_of`."""
    for participant in participants:
        if isinstance(participant, Team):
            yield from agents_of(participant, hidden=hidden)
            continue
        if hidden:
            yield from agents_of(getattr(participant, "_team", None), hidden=True)
        yield participant


def executor_of(agent: Any) -> Any:
    """Where an agent's code runs, or `None`."""
    return getattr(agent, "code_executor", None) or getattr(agent, "_code_executor", None)


def is_running(team: Any) -> bool:
    """Whether a team runs, or may run if that is not known."""
    return bool(getattr(team, "_is_running", True))


def is_executor_started(executor: Any) -> bool:
    """Whether an executor is known to be started. A second start could start a second container, for instance."""
    return any(getattr(executor, name, False) is True for name in ("_running", "_started"))


def is_started(workbench: Any) -> bool:
    """Whether a workbench is known to be started."""
    return getattr(workbench, "_actor", None) is not None


def loads_past_versions(component_class: Any) -> bool:
    """Whether a component class can load configs of earlier versions."""
    return component_class._from_config_past_version.__func__ is not (
        ComponentFromConfig._from_config_past_version.__func__  # type: ignore[attr-defined]
    )


def known_model_info(client_class: type, name: str) -> Mapping[str, Any] | None:
    """What a class of AutoGen's clients knows about a model; empty for classes of others, which may need nothing."""
    package = client_class.__module__.rpartition(".")[0]
    if package.removeprefix("autogen_ext.models.") not in ("anthropic", "ollama", "openai"):
        return {}
    try:
        info: Mapping[str, Any] = importlib.import_module(f"{package}._model_info").get_info(name)
    except (KeyError, ValueError):
        return None
    return info


_NOT_IN_CONFIGS = (
    "_candidate_func",
    "_device_requests",
    "_functions",
    "_max_retries_on_error",
    "_selector_func",
    "_sources",
    "_strict",
    "_tool_call_summary_formatter",
    "_virtual_env_context",
)
"""Attributes with arguments of AutoGen's constructors that a dump leaves out."""


def lost_arguments(component: Any) -> dict[str, Any]:
    """The arguments of a component of AutoGen that its own dump leaves out."""
    if not type(component).__module__.startswith("autogen_"):
        return {}
    in_config = component.component_config_schema.model_fields
    only_in_python = inspect.signature(type(component)).parameters.keys() - in_config.keys()
    found = {name[1:]: getattr(component, name, None) for name in _NOT_IN_CONFIGS if name[1:] in only_in_python}
    if isinstance(component, UserProxyAgent) and component.input_func is not cancellable_input:
        found["input_func"] = component.input_func
    if isinstance(component, BaseGroupChat):
        of_agents = {kind for agent in agents_of(component) for kind in getattr(agent, "produced_message_types", ())}
        kinds = {*component._message_factory._message_types.values()} - {*MessageFactory()._message_types.values()}
        found["custom_message_types"] = kinds - of_agents
    if isinstance(component, GraphFlow):
        edges = [edge for node in component._graph.nodes.values() for edge in node.edges]
        found["condition (a function) of edges"] = any(edge.condition_function for edge in edges)
    given = getattr(component, "_raw_config", {})
    found |= {name: value for name, value in given.items() if name not in in_config}
    info = getattr(component, "_model_info", None)
    if "model_info" in in_config and "model" in given and "model_info" not in given:
        found["model_info"] = None if info == known_model_info(type(component), given["model"]) else info
    return {name: value for name, value in found.items() if value}


def part_of(component: Any, key: str) -> Any:
    """The component, or the list of components, that a component has under a key of its config, or `None`."""
    names = (f"_input_{key}", f"_{key}", key)
    return next((part for name in names if (part := getattr(component, name, None)) is not None), None)


def model_client_of(agent: Any) -> Any:
    """An agent's model client, or `None`."""
    return getattr(agent, "_model_client", None)


def parts_of(whole: Any, kind: type[P]) -> Iterator[P]:
    """A component's parts of a kind, however deep, each once; what is inside of a model client is left out."""
    seen, waiting = set[int](), [whole]
    while waiting:
        part = waiting.pop(0)
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, kind):
            yield part
        if isinstance(part, list | tuple):
            waiting += part
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, ComponentBase) and not isinstance(part, ChatCompletionClient):
            waiting += vars(part).values()


def clients_of(team: Any) -> list[ChatCompletionClient]:
    """The model clients of a team and of all its parts, such as agents, their tools and their approval; each once."""
    return list(parts_of(team, ChatCompletionClient))  # type: ignore[type-abstract]


def workbenches_of(team: Any) -> list[Any]:
    """The workbenches of AutoGen's assistants in a team, or in the tools of one."""
    return [each for agent in parts_of(team, AssistantAgent) for each in agent._workbench]


def streams(workbench: Any, name: str) -> bool:
    """Whether a tool of a workbench is a run of an agent or a team, whose messages become those of its caller."""
    return isinstance(tools_of(workbench).get(name), StreamTool)


def condition_of(team: Any) -> Any:
    """A team's termination condition, or `None`."""
    return getattr(team, "_termination_condition", None)


def closers_of(team: Any) -> list[Callable[[], Awaitable[None]]]:
    """Functions that close all resources of a team; AutoGen's agents close no executor and no model client."""
    found = []
    for agent in agents_of(team, hidden=True):
        found.append(agent.close)
        if (executor := getattr(agent, "_code_executor", None)) is not None:
            found.append(executor.stop)
    return [*found, *(client.close for client in clients_of(team) if callable(getattr(client, "close", None)))]


def http_client_of(model_client: Any) -> Any:
    """The httpx client of a client that has one, or `None`."""
    return getattr(getattr(model_client, "_client", None), "_client", None)


def retries_of(model_client: Any) -> int:
    """How often a client repeats a request that has failed; the default of OpenAI's package if that is not known."""
    return int(getattr(getattr(model_client, "_client", None), "max_retries", 2))


def accept_other_names(model_client: Any) -> None:
    """Have OpenAI's client say nothing about a service that calls its model by another name."""
    if hasattr(model_client, "_resolved_model"):
        model_client._resolved_model = None


def transports_of(model_client: Any) -> list[Any]:
    """The connection pools of a client that uses httpx, such as OpenAI's and Anthropic's."""
    http = http_client_of(model_client)
    found = [getattr(http, "_transport", None), *getattr(http, "_mounts", {}).values()]
    return [transport for transport in found if callable(getattr(transport, "aclose", None))]


def work_dir_of(executor: Any) -> Any:
    """The configured folder of an executor; reading `work_dir` of AutoGen's executors may create a temporary one."""
    return getattr(executor, "_work_dir" if hasattr(executor, "_work_dir") else "work_dir", None)


def function_of(tool: Any) -> tuple[Any, inspect.Signature | None]:
    """The function that a `FunctionTool` wraps and its signature, which says more than the tool's schema."""
    signature = getattr(tool, "_signature", None)
    return getattr(tool, "_func", None), signature if isinstance(signature, inspect.Signature) else None


def server_params_of(tool_or_workbench: Any) -> Any:
    """How the MCP server of a tool or a workbench is reached; `None` if there is no such server."""
    return getattr(tool_or_workbench, "_server_params", None)


async def mcp_tools(workbench: Any) -> dict[str, Any]:
    """An MCP server's tools as the server gives them: AutoGen's lack what `$ref` refers to, and annotations."""
    if server_params_of(workbench) is None or (actor := getattr(workbench, "_actor", None)) is None:
        return {}
    names = _names_in(workbench)
    answer = await (await actor.call("list_tools", None))
    return {names.get(tool.name, tool.name): tool for tool in answer.tools}


def mcp_tool_of(tool: Any) -> Any:
    """An MCP server's tool as the server gives it, of one of AutoGen's; `None` if it is of another kind."""
    return getattr(tool, "_tool", None) if server_params_of(tool) is not None else None


def tools_of(workbench: Any) -> dict[str, Any]:
    """The tools that a workbench is made of, by the names under which it offers them; empty if it has others."""
    names = _names_in(workbench)
    return {names.get(tool.name, tool.name): tool for tool in getattr(workbench, "_tools", ())}


def _names_in(workbench: Any) -> dict[str, str]:
    """The names under which a workbench offers tools that are renamed there, by their own."""
    return {original: name for name, original in getattr(workbench, "_override_name_to_original", {}).items()}


def forget_early_answers(input_func: Callable[..., object]) -> None:
    """Drop the answers that AutoGen Studio received before the question.

    Studio keeps them for the next question, which may be about other code. Its input function is a closure; other
    functions are ignored.
    """
    with suppress(TypeError, ValueError):  # It is not a closure, or has names that are not bound yet.
        known = inspect.getclosurevars(input_func).nonlocals
        queues = getattr(known.get("self"), "_input_responses", None)
        queue = queues.get(known.get("run_id")) if isinstance(queues, dict) else None
        while isinstance(queue, asyncio.Queue) and not queue.empty():
            queue.get_nowait()
