"""A `CodeActAgent` among others: AutoGen's teams and CodeRoom's, a reviewer after it, and what is sent around."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import (
    CodeExecutionEvent,
    CodeGenerationEvent,
    MessageFactory,
    ModelClientStreamingChunkEvent,
    TextMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken

from coderoom.agents import CodeActAgent, CodeExecutorAgent, ReviewerAgent
from coderoom.executors import SandboxCodeExecutor
from coderoom.teams import CodingTeam, NoProgress, ReviewApproved
from tests.agents.acting import SLEEPS, MakeActor, Shop, outputs, remembered, there_is
from tests.agents.helpers import TASK, Client, python, verdict

TEAMS = [RoundRobinGroupChat, CodingTeam]


@pytest.mark.parametrize("team_class", TEAMS)
async def test_a_reviewer_reads_what_was_done(actor: MakeActor, team_class: Any) -> None:
    reviewer_client = Client(verdict(False, "Print it."), verdict(True))
    agent = actor(Client(python("x = 42"), "42, I think.", python("print(x)"), "It is 42."))
    team = team_class([agent, ReviewerAgent("reviewer", reviewer_client)], termination_condition=ReviewApproved())
    result = await team.run(task=TASK)
    said = [message for message in result.messages if isinstance(message, TextMessage)]
    assert [message.source for message in said] == ["user", "actor", "reviewer", "actor", "reviewer"]
    assert said[-1].metadata["coderoom.approved"] == "true"
    [read] = [text for text in reviewer_client.calls[1].texts if text.startswith("It is 42.")]
    for part in ("It is 42.", "print(x)", "exit code 0", "42\n"):
        assert part in read


@pytest.mark.parametrize("team_class", TEAMS)
async def test_a_reviewer_does_not_approve_what_failed(actor: MakeActor, team_class: Any) -> None:
    agent = actor(Client(python("1 / 0"), "All is well."))
    team = team_class([agent, ReviewerAgent("reviewer", Client(verdict(True)))], max_turns=2)
    result = await team.run(task=TASK)
    assert result.messages[-1].metadata["coderoom.approved"] == "false"


async def test_the_same_failure_is_no_progress(actor: MakeActor) -> None:
    agent = actor(Client(python("1 / 0"), "Again.", python("1 / 0"), "And again.", python("1 / 0"), "Never asked."))
    team = CodingTeam([agent], termination_condition=NoProgress() | MaxMessageTermination(30), max_turns=5)
    result = await team.run(task=TASK)
    assert len(outputs(result.messages)) < 3


async def test_its_report_is_not_run_again_by_an_executor(actor: MakeActor, tmp_path: Path) -> None:
    executor = CodeExecutorAgent("executor", SandboxCodeExecutor(tmp_path / "executor"))
    team = CodingTeam([actor(Client(python("print(1)"), "Printed.")), executor], max_turns=2)
    result = await team.run(task=TASK)
    await executor.close()
    assert result.messages[-1].metadata == {"coderoom.stop_reason": "no_code"}


@pytest.mark.parametrize("team_class", TEAMS)
async def test_a_saved_team_goes_on(tmp_path: Path, team_class: Any) -> None:
    shop = Shop()

    def make(*replies: str) -> tuple[CodeActAgent, Any]:
        agent = CodeActAgent("actor", Client(*replies), SandboxCodeExecutor(tmp_path / "work"), tools=shop.functions)
        return agent, team_class([agent], max_turns=1)

    agent, team = make(python("cost = price('apple')"), "Noted.")
    await team.run(task=TASK)
    state = json.dumps(await team.save_state(), allow_nan=False)
    await agent.close()
    agent, team = make(python("print(cost)"), "0.5.")
    await team.load_state(json.loads(state))
    assert outputs((await team.run(task="What does it cost?")).messages) == ["0.5\n"]
    assert shop.calls == ["price(apple)"]
    await agent.close()


@pytest.mark.parametrize("streaming", [False, True])
async def test_what_is_sent_around_is_autogens_own_and_json(actor: MakeActor, streaming: bool) -> None:
    agent = actor(Client(python("print(1)"), "One."), model_client_stream=streaming)
    factory = MessageFactory()
    items = [item async for item in RoundRobinGroupChat([agent], max_turns=1).run_stream(task=TASK)]
    for item in items:
        if not isinstance(item, TaskResult):
            data = json.loads(json.dumps(item.model_dump(mode="json")))
            assert factory.create(data).to_text() == item.to_text()
            assert all(isinstance(value, str) for value in item.metadata.values())
    kinds = {type(item) for item in items}
    assert {CodeGenerationEvent, CodeExecutionEvent, TextMessage, TaskResult} <= kinds
    assert (ModelClientStreamingChunkEvent in kinds) is streaming


@pytest.mark.parametrize(
    ("team_class", "left", "told"),
    [
        # AutoGen's team leaves the agent as it is, CodeRoom's puts it back to before the turn.
        (RoundRobinGroupChat, "0.5 True\n", "The script was stopped from outside"),
        (CodingTeam, "0.5 False\n", "An earlier turn was interrupted"),
    ],
)
async def test_a_cancelled_team_leaves_an_agent_that_works_and_knows_what_it_called(
    actor: MakeActor, tmp_path: Path, team_class: Any, left: str, told: str
) -> None:
    shop = Shop()
    ordering = python(f"x = 42\nawait order('pear')\n{SLEEPS}")
    client = Client(python("a = price('apple')"), "0.5.", ordering, python("print(a, 'x' in globals())"), "Done.")
    agent = actor(client, tools=shop.functions)
    await CodingTeam([agent], max_turns=1).run(task=TASK)
    team, token = team_class([agent], max_turns=1), CancellationToken()
    running = asyncio.create_task(team.run(task=TASK, cancellation_token=token))
    await there_is(tmp_path / "work" / "begun")
    token.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([running])
    again = CodingTeam([agent], max_turns=1)
    assert outputs((await again.run(task="Go on.")).messages) == [left]
    [text] = [text for text in await remembered(agent) if told in text]
    assert "- order(item='pear'): ok" in text
    assert shop.calls == ["price(apple)", "order(pear, 1)"]


async def test_async_with_a_team_starts_and_closes_it(tmp_path: Path) -> None:
    agent = CodeActAgent("actor", Client(python("print(1)"), "One."), SandboxCodeExecutor())
    async with CodingTeam([agent], max_turns=1) as team:
        assert agent.code_executor.wall != "auto"
        assert outputs((await team.run(task=TASK)).messages) == ["1\n"]
    assert agent.code_executor.wall == "auto"
