"""Every component of AutoGen is dumped without loss, and AutoGen's own loader reads the dump."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from autogen_agentchat.agents import (
    AssistantAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.base import Handoff, Team
from autogen_agentchat.conditions import (
    ExternalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import StructuredMessage, TextMessage
from autogen_agentchat.teams import (
    DiGraphBuilder,
    GraphFlow,
    MagenticOneGroupChat,
    RoundRobinGroupChat,
    SelectorGroupChat,
    Swarm,
)
from autogen_agentchat.tools import AgentTool, TeamTool
from autogen_core import ComponentLoader
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import ModelInfo, UserMessage
from autogen_core.tools import FunctionTool, StaticStreamWorkbench, StaticWorkbench, ToolOverride
from autogen_ext.agents.openai import OpenAIAgent
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from autogen_ext.code_executors.jupyter import JupyterCodeExecutor
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from autogen_ext.models.cache import ChatCompletionCache
from autogen_ext.models.openai import AzureOpenAIChatCompletionClient, OpenAIChatCompletionClient
from autogen_ext.models.replay import ReplayChatCompletionClient
from autogen_ext.tools.code_execution import PythonCodeExecutionTool
from autogen_ext.tools.mcp import McpWorkbench, SseServerParams
from openai import AsyncOpenAI
from pydantic import BaseModel

from coderoom.configs import check_team, dump_team, load_team, team_warnings
from coderoom.configs.components import catalog
from coderoom.teams import TextMentionTermination as TextMentionOfSources

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning", "error:a team file cannot contain:UserWarning"
)
INFO = ModelInfo(vision=False, function_calling=True, json_output=True, family="unknown", structured_output=True)
HELLO: list[Any] = [UserMessage(content="hello", source="user")]
ONLY_IN_PYTHON: dict[str, Any] = {"model": "gpt-4o", "api_key": "sk-1", "max_completion_tokens": 9}
A, B = "config.participants[0].config", "config.participants[1].config"


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keys for what was loaded, and an end of the folders that AutoGen's local executor makes for a dump."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "sk-1")
    # Azure's client imports this to dump and load itself, and what it needs is not installed.
    monkeypatch.setitem(sys.modules, "autogen_ext.auth.azure", SimpleNamespace(AzureTokenProvider=str))
    made: list[tempfile.TemporaryDirectory[str]] = []
    make = tempfile.TemporaryDirectory

    def recorded() -> tempfile.TemporaryDirectory[str]:
        made.append(make())
        return made[-1]

    monkeypatch.setattr(tempfile, "TemporaryDirectory", recorded)
    yield
    for folder in made:
        folder.cleanup()


class Answer(BaseModel):
    number: int


def double(number: int) -> int:
    return 2 * number


def model() -> ReplayChatCompletionClient:
    return ReplayChatCompletionClient(["one", "two"], INFO)


def agent(name: str = "helper", **more: Any) -> AssistantAgent:
    return AssistantAgent(name, model(), **more)


def coder(executor: Any, **more: Any) -> CodeExecutorAgent:
    return CodeExecutorAgent("coder", executor, model_client=model(), **more)


def ends(condition: Any) -> Team:
    return RoundRobinGroupChat([agent()], termination_condition=condition)


def has(part: Any) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([part])


def thinks(client: Any) -> Team:
    return has(AssistantAgent("helper", client))


def remembers(context: Any) -> Team:
    return has(agent(model_context=context))


def graph(condition: Any = "go") -> Team:
    builder, first, second = DiGraphBuilder(), agent("first"), agent("second")
    builder.add_node(first).add_node(second, activation="any").add_edge(first, second, condition)
    return GraphFlow(builder.get_participants(), builder.build(), name="flow", max_turns=4)


# A team, and texts of JSON that must be in its dump.
CASES: dict[str, tuple[Callable[[], Team], list[str]]] = {
    "TextMention": (lambda: ends(TextMentionTermination("DONE", ["helper"])), ['"sources": [', '"text": "DONE"']),
    "TextMention everywhere": (lambda: ends(TextMentionTermination("DONE")), ["autogen_agentchat.conditions.TextM"]),
    "TokenUsage": (lambda: ends(TokenUsageTermination(max_prompt_token=7)), ['"max_total_token": null']),
    "others": (
        lambda: ends(
            (StopMessageTermination() | HandoffTermination("boss") | TimeoutTermination(1.5) | ExternalTermination())
            & (MaxMessageTermination(9, include_agent_event=True) | TextMessageTermination("sender"))
            & SourceMatchTermination(["writer"])
            & FunctionCallTermination("double")
        ),
        ["boss", "1.5", "ExternalTermination", '"include_agent_event": true', "sender", "writer", "double"],
    ),
    "AssistantAgent": (
        lambda: has(
            agent(
                description="helps",
                handoffs=[Handoff(target="other", description="when", name="go_on", message="over to you")],
                memory=[ListMemory("past", [MemoryContent(content="fact", mime_type=MemoryMimeType.TEXT)])],
                model_client_stream=True,
                reflect_on_tool_use=True,
                max_tool_iterations=3,
                tool_call_summary_format="{result}!",
                metadata={"team": "red"},
            )
        ),
        ["helps", "over to you", "fact", '"max_tool_iterations": 3', "{result}!", "red", "go_on"],
    ),
    "AssistantAgent without a prompt": (lambda: has(agent(system_message=None)), []),
    "structured output": (
        lambda: has(agent(output_content_type=Answer, output_content_type_format="It is {number}.")),
        ["It is {number}.", '"number"'],
    ),
    "tools": (lambda: has(agent(tools=[FunctionTool(double, "Doubles.", name="twice")])), ["twice", "2 * number"]),
    "workbenches": (
        lambda: has(
            agent(
                workbench=[
                    StaticWorkbench(
                        [PythonCodeExecutionTool(LocalCommandLineCodeExecutor(timeout=7))],
                        tool_overrides={"CodeExecutor": ToolOverride(name="run_it")},
                    ),
                    StaticStreamWorkbench(
                        [AgentTool(agent("inner"), True), TeamTool(has(agent("deep")), "ask_team", "Asks.", True)]
                    ),
                    McpWorkbench(SseServerParams(url="http://127.0.0.1:9", headers={"X-A": "b"}, timeout=3)),
                ]
            )
        ),
        ["run_it", "deep", "ask_team", "X-A", '"timeout": 7'],
    ),
    "CodeExecutorAgent": (
        lambda: has(
            coder(
                LocalCommandLineCodeExecutor(7, functions_module="mine", cleanup_temp_files=False),
                max_retries_on_error=3,
                system_message=None,
                sources=["user"],
                supported_languages=["python"],
                model_client_stream=True,
            )
        ),
        ['"max_retries_on_error": 3', '"system_message": ""', '"user"', '"mine"', '"cleanup_temp_files": false'],
    ),
    "CodeExecutorAgent that never retries": (
        lambda: has(CodeExecutorAgent("runner", JupyterCodeExecutor("other", 9))),
        ["autogen_agentchat.agents.CodeExecutorAgent", '"kernel_name": "other"', '"timeout": 9'],
    ),
    "Docker": (
        lambda: has(
            coder(
                DockerCommandLineCodeExecutor(
                    image="python:3.12",
                    timeout=7,
                    auto_remove=False,
                    extra_volumes={"/data": {"bind": "/data", "mode": "ro"}},
                    extra_hosts={"db": "10.0.0.1"},
                    init_command="true",
                    delete_tmp_files=True,
                )
            )
        ),
        ["python:3.12", '"mode": "ro"', "10.0.0.1", '"init_command": "true"', '"delete_tmp_files": true'],
    ),
    "other agents": (
        lambda: RoundRobinGroupChat(
            [
                MessageFilterAgent(
                    "filter",
                    agent("in1"),
                    MessageFilterConfig(per_source=[PerSourceFilter(source="x", position="last", count=2)]),
                ),
                SocietyOfMindAgent(
                    "mind", ends(TextMentionTermination("DONE", ["helper"])), model(), response_prompt="Answer."
                ),
                UserProxyAgent("human", description="a person"),
                OpenAIAgent("open", "d", AsyncOpenAI(api_key="x"), "gpt-4o", "Be brief.", temperature=None),
            ]
        ),
        ['"count": 2', '"sources": [', "Answer.", "a person", '"temperature": null'],
    ),
    "contexts": (
        lambda: RoundRobinGroupChat(
            [
                agent("one", model_context=BufferedChatCompletionContext(3, HELLO)),
                agent("two", model_context=HeadAndTailChatCompletionContext(1, 2, HELLO)),
                agent("three", model_context=TokenLimitedChatCompletionContext(model(), token_limit=99)),
                agent("four", model_context=UnboundedChatCompletionContext(HELLO)),
            ]
        ),
        ['"buffer_size": 3', '"tail_size": 2', '"token_limit": 99', '"hello"'],
    ),
    "OpenAI": (
        lambda: thinks(
            OpenAIChatCompletionClient(
                model="gpt-4o",
                api_key="sk-secret",
                max_retries=3,
                temperature=0,
                stop=["END"],
                response_format={"type": "json_object", "json_schema": None},
                default_headers={"X-A": "b"},
                base_url="http://127.0.0.1:9",
            )
        ),
        ['"max_retries": 3', '"temperature": 0', "END", "json_object", '"json_schema": null', "X-A", "127.0.0.1:9"],
    ),
    "Azure": (
        lambda: thinks(
            AzureOpenAIChatCompletionClient(
                model="ours", model_info=INFO, azure_endpoint="http://127.0.0.1:9", api_version="1", api_key="sk-secret"
            )
        ),
        ['"family": "unknown"', '"structured_output": true', '"api_version": "1"'],
    ),
    "cache": (lambda: thinks(ChatCompletionCache(model())), ["ChatCompletionCache", '"one"']),
    "SelectorGroupChat": (
        lambda: SelectorGroupChat(
            [agent("one"), has(agent("two"))],
            model(),
            name="team",
            selector_prompt="{roles}?",
            allow_repeated_speaker=True,
            max_selector_attempts=7,
            emit_team_events=True,
            model_client_streaming=True,
            model_context=BufferedChatCompletionContext(2),
        ),
        ["{roles}?", '"allow_repeated_speaker": true', '"max_selector_attempts": 7', '"buffer_size": 2'],
    ),
    "Swarm": (lambda: Swarm([agent("one", handoffs=["two"]), agent("two")], max_turns=3), ['"max_turns": 3', '"two"']),
    "MagenticOne": (
        lambda: MagenticOneGroupChat([agent()], model(), max_turns=None, max_stalls=7, final_answer_prompt="So?"),
        ['"max_stalls": 7', "So?"],
    ),
    "GraphFlow": (graph, ['"condition": "go"', '"activation": "any"']),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_lost(tmp_path: Path, case: str) -> None:
    make, words = CASES[case]
    file = tmp_path / "team.json"
    text = dump_team(make(), file)
    data = json.loads(text)
    assert [word for word in words if word not in text] == []
    assert not any(trace in text for trace in ("sk-secret", "/tmp/tmp", "autogen-code-exec-"))
    ComponentLoader.load_component(json.loads(text), object)
    assert json.loads(dump_team(load_team(file), tmp_path / "again.json")) == data


def test_every_component_of_autogen_has_a_case() -> None:
    dumps = "".join(json.dumps(make().dump_component().model_dump(), default=str) for make, _ in CASES.values())
    known = [entry.names[0] for entry in catalog() if not entry.names[0].startswith("coderoom.")]
    # A browser; the parts of `McpWorkbench`, which need a server.
    left_out = ("MultimodalWebSurfer", "McpSessionActor", "McpToolAdapter", "HttpTool")
    assert [name for name in known if name not in dumps and not name.endswith(left_out)] == []


@pytest.mark.parametrize(
    ("make", "lost"),
    [
        (
            lambda: SelectorGroupChat([agent("one"), agent("two")], model(), selector_func=lambda _: "one"),
            "selector_func of SelectorGroupChat 'SelectorGroupChat'",
        ),
        (lambda: has(UserProxyAgent("human", input_func=lambda _: "yes")), "input_func of UserProxyAgent 'human'"),
        (lambda: has(coder(LocalCommandLineCodeExecutor(functions=[double]))), "functions of LocalCommandLineCode"),
        (lambda: has(agent(tools=[FunctionTool(double, "Doubles.", strict=True)])), "strict of FunctionTool 'double'"),
        (
            lambda: RoundRobinGroupChat([agent()], custom_message_types=[StructuredMessage[Answer]]),
            "custom_message_types of RoundRobinGroupChat",
        ),
        (
            lambda: thinks(OpenAIChatCompletionClient(**ONLY_IN_PYTHON)),
            "max_completion_tokens of OpenAIChatCompletionClient",
        ),
        (lambda: graph(condition=lambda message: "go" in message.to_text()), "edges of GraphFlow 'flow'"),
    ],
)
def test_what_no_file_can_contain_is_named(make: Callable[[], Team], lost: str) -> None:
    with pytest.warns(UserWarning, match=f"a team file cannot contain: .*{re.escape(lost)}"):
        dump_team(make())


def test_a_file_that_autogen_dumped_has_warnings(tmp_path: Path) -> None:
    """AutoGen's loader refuses or changes it."""
    team = RoundRobinGroupChat(
        [
            coder(LocalCommandLineCodeExecutor(), max_retries_on_error=2),
            agent("other", model_context=BufferedChatCompletionContext(2, HELLO)),
        ],
        termination_condition=TokenUsageTermination(5),
    )
    data = team.dump_component().model_dump(mode="json", exclude_none=True)
    file = tmp_path / "team.json"
    file.write_text(json.dumps(data))
    warned = {problem.path: problem.message for problem in team_warnings(file)}
    assert check_team(file) == []
    assert list(warned) == [
        A.removesuffix(".config"),
        f"{A}.code_executor.config.work_dir",
        f"{B}.model_context.config.initial_messages",
        "config.termination_condition",
    ]
    assert "'max_retries_on_error'" in warned[A.removesuffix(".config")]
    assert "null is assumed for 'max_prompt_token' and 'max_completion_token'" in warned["config.termination_condition"]
    data["config"]["participants"][0]["config"]["max_retries_on_error"] = 2
    file.write_text(json.dumps(data))
    [problem] = check_team(file)
    assert "use 'coderoom.agents.CodeExecutorAgent'" in problem.message


async def test_a_mention_counts_only_from_its_sources() -> None:
    condition = TextMentionOfSources("DONE", ["writer"])
    assert await condition([TextMessage(content="Say DONE.", source="user")]) is None
    assert await condition([TextMessage(content="DONE", source="writer")]) is not None
