from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.agents import CodeExecutorAgent as AutoGenExecutorAgent
from autogen_agentchat.base import ChatAgent, Response, Team
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    CodeExecutionEvent,
    ModelClientStreamingChunkEvent,
    TextMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core import CancellationToken
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom.agents import CodeExecutorAgent, CodeGeneratorAgent
from coderoom.configs import ReplayModel
from coderoom.errors import SandboxUnavailable
from coderoom.executors import SandboxCodeExecutor
from coderoom.runs import RunRecord, run_team
from coderoom.teams import CodingTeam


class Agent(BaseChatAgent):
    """Raises what it is given, or says something."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("agent", "An agent.")
        self.error = error
        self.closed = 0

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        if self.error is not None:
            raise self.error
        return Response(chat_message=TextMessage(source=self.name, content="done"))

    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...

    async def close(self) -> None:
        self.closed += 1


def team(kind: type[RoundRobinGroupChat], agent: Agent) -> Team:
    return kind([agent], max_turns=1)


@pytest.mark.parametrize("kind", [CodingTeam, RoundRobinGroupChat])
async def test_a_failure_is_told_in_a_line_and_everything_is_closed(kind: type[RoundRobinGroupChat]) -> None:
    agent = Agent(LookupError("no such thing"))
    record = await run_team(team(kind, agent), RunRecord("t", "x"), lambda _: None)
    assert record.outcome == "failed"
    assert record.error is not None
    assert "LookupError: no such thing" in record.error
    assert "Traceback" not in record.error
    assert agent.closed == 1


@pytest.mark.parametrize("kind", [CodingTeam, RoundRobinGroupChat])
async def test_a_team_that_runs_no_code_ends_well(kind: type[RoundRobinGroupChat]) -> None:
    agent = Agent()
    seen: list[BaseAgentEvent | BaseChatMessage] = []
    record = await run_team(team(kind, agent), RunRecord("t", "x"), seen.append)
    assert (record.outcome, record.answer, record.turns) == ("ok", "done", 1)
    assert seen == record.messages
    assert agent.closed == 1


async def test_a_broken_sandbox_is_no_failed_task() -> None:
    agent = Agent(SandboxUnavailable("no daemon"))
    nested = CodingTeam([CodingTeam([agent], name="inner", max_turns=1)], max_turns=1)
    with pytest.raises(SandboxUnavailable, match="no daemon"):
        await run_team(nested, RunRecord("t", "x"), lambda _: None)
    assert agent.closed == 1


async def test_the_sandbox_stands_before_anything_is_asked() -> None:
    said: list[str] = []
    record = RunRecord("t", "x")
    asks = Agent()
    executor = SandboxCodeExecutor()
    both = CodingTeam([asks, CodeExecutorAgent("runner", executor)], max_turns=1)
    await run_team(
        both, record, lambda message: said.append(type(message).__name__), begin=lambda: said.append(record.isolation)
    )
    assert said[1:] == ["TextMessage", "TextMessage"]
    assert said[0] not in {"auto", "none", ""}
    assert executor.work_dir is None


async def test_so_does_that_of_an_agent_which_brings_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    record = RunRecord("t", "x")
    generator = CodeGeneratorAgent("generator", ReplayModel(["nothing"]))
    both = CodingTeam([Agent(), generator], max_turns=1)
    await run_team(both, record, lambda _: None, begin=lambda: said.append(record.isolation))
    assert said == [record.isolation]
    assert said[0] not in {"auto", "none", ""}

    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    asks = Agent()
    both = CodingTeam([asks, CodeGeneratorAgent("generator", ReplayModel(["nothing"]), wall="docker")], max_turns=1)
    with pytest.raises(SandboxUnavailable, match="nowhere"):
        await run_team(both, record, lambda _: None, begin=lambda: said.append("begun"))
    assert len(said) == 1
    assert asks.closed == 1


async def test_without_a_sandbox_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    said: list[object] = []
    asks = Agent()
    both = CodingTeam([asks, CodeExecutorAgent("runner", SandboxCodeExecutor(wall="docker"))], max_turns=1)
    with pytest.raises(SandboxUnavailable, match="nowhere"):
        await run_team(both, RunRecord("t", "x"), said.append, begin=lambda: said.append("begun"))
    assert said == []
    assert asks.closed == 1


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor", "ignore:No approval function")
@pytest.mark.parametrize("own_model", [True, False])
@pytest.mark.parametrize(("code", "outcome"), [("print(6 * 7)", "ok"), ("1 / 0", "error")])
async def test_the_code_of_autogens_own_agent_counts(tmp_path: Path, code: str, outcome: str, own_model: bool) -> None:
    model = ReplayModel([f"```python\n{code}\n```", "The answer is above."])
    executor = LocalCommandLineCodeExecutor(work_dir=tmp_path)
    agents: list[BaseChatAgent] = [
        AutoGenExecutorAgent("executor", executor, model_client=model if own_model else None)
    ]
    if not own_model:
        agents.insert(0, AssistantAgent("coder", model))
    record = await run_team(RoundRobinGroupChat([*agents], max_turns=len(agents)), RunRecord("t", "x"), lambda _: None)
    assert (record.outcome, record.attempts) == (outcome, 1)
    if outcome == "ok":
        assert record.answer.strip() == ("The answer is above." if own_model else "42")


@pytest.mark.parametrize("own_model", [True, False])
async def test_output_streams_and_is_kept_after_an_interrupt(own_model: bool) -> None:
    """It streams from every agent, and after the interrupt the record has the run of the code and its output."""
    code = "import time\nprint('begun', flush=True)\ntime.sleep(60)"
    model = ReplayModel([f"```python\n{code}\n```"])
    executes = CodeExecutorAgent("executor", SandboxCodeExecutor(), model_client=model if own_model else None)
    agents: list[BaseChatAgent] = [executes] if own_model else [AssistantAgent("coder", model), executes]
    seen: list[BaseAgentEvent | BaseChatMessage] = []

    def watch(message: BaseAgentEvent | BaseChatMessage) -> None:
        seen.append(message)
        if isinstance(message, ModelClientStreamingChunkEvent):
            assert message.content == "begun\n"
            os.kill(os.getpid(), signal.SIGINT)

    record = await run_team(RoundRobinGroupChat([*agents], max_turns=2), RunRecord("t", "x"), watch)
    assert (record.outcome, record.attempts) == ("cancelled", 1)
    last = record.messages[-1]
    assert isinstance(last, CodeExecutionEvent)
    assert last.result.output.startswith("begun\n")
    assert seen[-1] == last


@pytest.mark.filterwarnings("ignore:No approval function")
@pytest.mark.parametrize("own_model", [True, False])
async def test_output_of_autogens_own_agent_streams_too(tmp_path: Path, own_model: bool) -> None:
    """The code goes on only after its first output was seen."""
    code = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('seen'):\n    time.sleep(0.01)"
    model = ReplayModel([f"```python\n{code}\n```", "Done."])
    executes = AutoGenExecutorAgent(
        "executor", SandboxCodeExecutor(work_dir=str(tmp_path), timeout=30), model_client=model if own_model else None
    )
    agents: list[BaseChatAgent] = [executes] if own_model else [AssistantAgent("coder", model), executes]
    seen: list[tuple[str, str]] = []

    def watch(message: BaseAgentEvent | BaseChatMessage) -> None:
        if isinstance(message, ModelClientStreamingChunkEvent):
            seen.append((message.source, message.content))
            (tmp_path / "seen").touch()

    record = await run_team(RoundRobinGroupChat([*agents], max_turns=len(agents)), RunRecord("t", "x"), watch)
    assert (record.outcome, seen) == ("ok", [("executor", "begun\n")])


async def test_requests_that_no_message_shows_count_once() -> None:
    """Those of a selector."""
    agents: list[ChatAgent | Team] = [AssistantAgent(name, ReplayModel([f"{name} speaks"])) for name in ("a", "b")]
    selector = ReplayModel(["b", "a"])
    record = RunRecord("t", "x", models={"a": "one", "b": "other"})
    await run_team(SelectorGroupChat(agents, selector, max_turns=2), record, lambda _: None)
    assert (record.turns, sorted(record.usage_by_agent)) == (2, ["SelectorGroupChatManager", "a", "b"])
    used = selector.total_usage()
    assert record.usage_by_agent["SelectorGroupChatManager"]["total_tokens"] == (
        used.prompt_tokens + used.completion_tokens
    )
