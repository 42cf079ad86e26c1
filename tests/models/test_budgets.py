"""Budgets: checked before each request and each run of code, of runs, agents, teams and contexts."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse, AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core.models import CreateResult, UserMessage
from pydantic import ValidationError

from coderoom.agents import CodeActAgent, CodeExecutorAgent, ReviewerAgent
from coderoom.approval import ModelApproval
from coderoom.configs import ReplayModel, load_team, make_model
from coderoom.errors import AgentError, BudgetExceeded, RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.generation import AICodeGenerator
from coderoom.models import RateLimitedClient
from coderoom.models.budgets import Budget, Spending, limiting
from coderoom.models.prices import cost_of, priced_as
from coderoom.runs import prepare_run
from coderoom.teams import BudgetTermination, CodingTeam
from tests.support.commands import coderoom, recording
from tests.support.openai_server import OpenAIServer
from tests.support.solving import GOOD, SPECS, TESTS

CALLS = {"function_calling": True}
CODE = "```python\nopen('ran', 'a').write('x')\nprint(42)\n```"


def replies(*texts: str) -> list[dict[str, Any]]:
    usage = {"prompt_tokens": 60, "completion_tokens": 40}
    return [{"content": text, "usage": usage} for text in texts]


@pytest.mark.slow
def test_a_run_stops_before_what_is_not_covered_and_goes_on_with_more(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("gpt-4o: [2.5, 10]\n")
    server_env = {"OPENAI_API_KEY": "test-key-1234", "CODEROOM_JOURNAL": str(tmp_path / "journal")}
    server_env["CODEROOM_PRICES"] = str(tmp_path / "prices.yaml")
    with OpenAIServer([CODE, CODE.replace("42", "43"), "It is 43."]) as server:
        env = {**server_env, "OPENAI_BASE_URL": server.base_url, "CODEROOM_MODEL": "gpt-4o-2024-08-06"}
        command = ["run", "code-act", "Compute it.", "--workspace", ".", "--json", "--budget", "cost_usd=0.5"]
        done = coderoom(*command, "--budget", "model_calls=2", "--budget", "coder.cells=1", cwd=tmp_path, env=env)
        first = json.loads(done.stdout)
        assert (done.returncode, first["outcome"]) == (1, "unfinished")
        assert first["limit"] == "the budget of agent 'coder' was reached: 1 of 1 runs of code"
        done = coderoom("resume", "--budget", "coder.cells=5", "--json", cwd=tmp_path, env=env)
        second = json.loads(done.stdout)
        assert "the budget of the run was reached: 2 of 2 model calls ($0.0" in second["limit"]
        done = coderoom("resume", "--budget", "model_calls=3", "--json", cwd=tmp_path, env=env)
        third = json.loads(done.stdout)
    assert (third["outcome"], third["answer"]) == ("ok", "It is 43.")
    assert len(server.requests) == 3
    assert (tmp_path / "ran").read_text() == "xxx"  # The first code ran again once, to have its variables.


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("tokens", "is not LIMIT=N"),
        ("token=3", "A budget has no limit 'token'; the limits are tokens, cost_usd, "),
        ("cost_usd=1", "the price of the model 'replay:r.json' is not known"),
        ("tokens=0", "tokens: Input should be greater"),
        ("nobody.tokens=3", "no agent 'nobody'; its agents are coder"),
    ],
)
def test_a_wrong_budget_is_refused(given: str, words: str, tmp_path: Path) -> None:
    model = recording(tmp_path / "r.json", [])
    done = coderoom("run", "code-act", "x", "--model", model, "--budget", given, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr


def test_an_unknown_agent_is_found_before_a_missing_key(tmp_path: Path) -> None:
    budget = ("--budget", "nobody.tokens=3")
    done = coderoom("run", "code-act", "x", "--model", "openai:x", *budget, cwd=tmp_path, env={"OPENAI_API_KEY": ""})
    assert (done.returncode, "no agent 'nobody'" in done.stderr) == (2, True)


def test_the_seconds_of_an_agent_begin_with_its_first_step() -> None:
    spending = Spending(Budget(seconds=0.01), "agent 'coder'")
    time.sleep(0.02)
    spending.check("model")
    time.sleep(0.02)
    with pytest.raises(BudgetExceeded, match=r"of 0\.01 s"):
        spending.check("model")


async def test_a_team_file_has_budgets_of_the_team_and_of_agents(tmp_path: Path) -> None:
    coder = CodeExecutorAgent(
        "coder", SandboxCodeExecutor(), model_client=ReplayModel(replies(*[CODE, "Done."] * 3)), budget=Budget(cells=2)
    )
    reviewer = ReviewerAgent("reviewer", ReplayModel(replies(*["No."] * 3)), budget=Budget(tokens=5000))
    actor = CodeActAgent("actor", ReplayModel([]), budget=Budget(seconds=600.5))
    team = CodingTeam([coder, reviewer, actor], termination_condition=BudgetTermination(tokens=250))
    file = tmp_path / "team.json"
    file.write_text(team.dump_component().model_dump_json())
    loaded = load_team(file)
    assert loaded.dump_component() == team.dump_component()
    # What is asked for goes before what the file says.
    asked = prepare_run(str(file), "Go.", budgets={"coder": {"cells": 5, "tokens": 7}}).team
    assert isinstance(asked, CodingTeam)
    assert isinstance(first := asked.participants[0], CodeExecutorAgent)
    assert first.budget == Budget(cells=5, tokens=7)
    # Without CodeRoom's runs, the messages show what was used: at the end of a turn.
    result = await team.run(task="Go.")
    assert result.stop_reason == "the budget of the team was reached: 300 of 250 tokens"
    # In its runs, each request is checked before.
    done = coderoom("run", "team.json", "Go.", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["limit"] == "the budget of the team was reached: 300 of 250 tokens"


def test_agents_of_autogen_have_budgets_too(tmp_path: Path) -> None:
    replies = ["```python\n1 / 0\n```", "```python\nprint(42)\n```", "Done."]
    command = ("run", "coder-executor", "x", "--model", recording(tmp_path / "r.json", replies), "--json")
    done = json.loads(coderoom(*command, "--budget", "coder.model_calls=1", cwd=tmp_path).stdout)
    assert (done["outcome"], done["attempts"]) == ("unfinished", 1)
    assert "the budget of agent 'coder' was reached: 1 of 1 model calls" in done["limit"]
    assert json.loads(coderoom(*command, "--budget", "coder.model_calls=9", cwd=tmp_path).stdout)["attempts"] == 2


async def test_an_agents_budget_ends_any_team() -> None:
    coder = CodeExecutorAgent(
        "coder", SandboxCodeExecutor(), model_client=ReplayModel([CODE, "Done."] * 5), budget=Budget(cells=1)
    )
    with pytest.raises(AgentError, match="budget of agent 'coder' was reached: 1 of 1 runs of code"):
        await CodingTeam([coder], max_turns=3).run(task="Go.")
    await coder.on_reset(None)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="1 of 1 runs of code"):
        await RoundRobinGroupChat([coder], max_turns=3).run(task="Go.")


async def test_code_that_is_not_covered_is_not_run_without_a_model_either_and_nobody_is_asked_about_it() -> None:
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> ApprovalResponse:
        asked.append(request.code)
        return ApprovalResponse(approved=True, reason="")

    terminal = CodeExecutorAgent("terminal", SandboxCodeExecutor(), approval_func=approve, budget=Budget(cells=1))
    assert "42" in (await terminal.run(task=CODE)).messages[-1].to_text()
    with pytest.raises(BudgetExceeded, match="budget of agent 'terminal' was reached: 1 of 1 runs of code"):
        await terminal.run(task=CODE)
    assert len(asked) == 1


async def test_the_requests_of_an_approval_are_those_of_its_agent() -> None:
    approval = ModelApproval(ReplayModel(['{"reason": "", "approved": true}', "never asked"]))
    client = ReplayModel([CODE, "Done.", CODE])
    coder = CodeExecutorAgent("coder", SandboxCodeExecutor(), model_client=client, approval_func=approval)
    coder.limit(Budget(model_calls=4))
    assert (await coder.run(task="Go.")).messages[-1].metadata["coderoom.outcome"] == "ok"
    with pytest.raises(BudgetExceeded, match="4 of 4 model calls"):  # And no "no" of the approval.
        await coder.run(task="Go.")


async def test_contexts_limit_agents_and_selectors_of_autogen_too() -> None:
    class Streams(ReplayModel):
        async def create(self, *args: Any, **kwargs: Any) -> CreateResult:
            raise AssertionError("this one streams")

    selector = ReplayModel(replies(*["one", "two"] * 5))
    one = AssistantAgent("one", ReplayModel(replies(*["1"] * 5)), description="One")
    two = AssistantAgent("two", Streams(replies(*["2"] * 5)), description="Two", model_client_stream=True)
    team = SelectorGroupChat([one, two], model_client=selector, max_turns=8)
    with limiting(team, Budget(tokens=100_000)) as outer:
        with (
            limiting(team, Budget(model_calls=4)) as inner,
            pytest.raises(RuntimeError, match=r"budget of the run was reached: 4 of 4 model calls"),
        ):
            await team.run(task="Count.")
        await one.run(task="Again.")
    assert inner.used["model_calls"] == 4
    assert (outer.used["model_calls"], outer.used["tokens"]) == (5, 500)
    await one.run(task="Unlimited.")
    assert outer.used["model_calls"] == 5


async def test_money_needs_a_price() -> None:
    agent = CodeActAgent("actor", ReplayModel(["Hello."]), budget=Budget(cost_usd=1))
    with pytest.raises(RequestError, match="the price of the model 'ReplayModel:unknown' is not known"):
        await agent.run(task="Go.")


def test_a_budget_without_a_limit_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="at least one of tokens, cost_usd"):
        BudgetTermination()


async def test_requests_at_once_share_a_budget_and_those_that_fail_do_not_count() -> None:
    client = RateLimitedClient(ReplayModel(replies("1", "2", "3")), requests_per_minute=100_000)
    tool = AssistantAgent("inner", client)
    team = RoundRobinGroupChat([AssistantAgent("outer", ReplayModel([], CALLS), tools=[AgentTool(tool)])])
    message = [UserMessage(content="Go.", source="user")]
    with limiting(team, Budget(model_calls=2)) as spending:
        async with aclosing(client.create_stream(message)) as stream:
            await anext(aiter(stream))  # The reader leaves before the end.
        assert spending.used["model_calls"] == 0
        results = await asyncio.gather(*(client.create(message) for _ in range(3)), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["CreateResult", "CreateResult", "BudgetExceeded"]
    assert (spending.used["model_calls"], spending.used["tokens"]) == (2, 200)


def test_a_task_that_was_stopped_is_not_finished_without_a_budget_before_the_next_one(tmp_path: Path) -> None:
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal")}
    model = recording(tmp_path / "r.json", [CODE, "First.", CODE, "Second."])
    command = ["run", "code-act", "--workspace", ".", "--json", "--model", model]
    done = coderoom(*command, "Compute.", "--budget", "model_calls=1", cwd=tmp_path, env=env)
    assert json.loads(done.stdout)["outcome"] == "unfinished"
    again = ["run", "code-act", "Again.", "--continue", "--json"]
    done = coderoom(*again, cwd=tmp_path, env=env)
    assert json.loads(done.stdout)["answer"] == "First."  # The one request of the second task.


@pytest.mark.slow
def test_an_instruction_has_a_budget_and_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal")}
    model = recording(tmp_path / "r.json", [SPECS, TESTS, GOOD])
    command = ["solve", "Double.", "--json", "--model", model]
    for given, words in ("cells=1", "no cells"), ("coder.tokens=1", "no agents"), ("cost_usd=1", "is not known"):
        done = coderoom(*command, "--budget", given, cwd=tmp_path, env=env)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    done = coderoom(*command, "--budget", "model_calls=2", cwd=tmp_path, env=env)
    first = json.loads(done.stdout)
    assert (done.returncode, first["stop_reason"]) == (1, "budget")
    assert first["missing"][0] == "the budget of the run was reached: 2 of 2 model calls"
    for wrong in "model_cals=3", "cells=3":
        assert coderoom("resume", "--budget", wrong, cwd=tmp_path, env=env).returncode == 2
    assert json.loads(coderoom("resume", "--budget", "model_calls=3", "--json", cwd=tmp_path, env=env).stdout)[
        "succeeded"
    ]
    for option, limit in ("--max-tokens", "1"), ("--budget", "model_calls=1"):
        done = coderoom("solve", "Double.", "--no-cache", "--model", model, option, limit, cwd=tmp_path, env=env)
        assert re.search(rf"Go on by `coderoom resume \S+` with a larger\s+{option};", done.stdout)


async def test_what_has_no_budget_is_not_taken_for_something_that_has() -> None:
    client = ReplayModel([SPECS, TESTS, GOOD])
    async with AICodeGenerator(client, cache=False) as generator:
        with pytest.raises(RequestError, match="pass its model client"), limiting(generator, Budget(model_calls=1)):
            pass
        with limiting(client, Budget(model_calls=1)) as spending:
            assert (await generator.generate_solution("Double.")).stop_reason == "budget"
    assert spending.used["model_calls"] == 1


def test_shipped_prices_are_those_of_services() -> None:
    key = {"OPENAI_API_KEY": "x"}
    assert cost_of(priced_as(make_model("openai:gpt-4o", env=key)), 1_000_000, 0) == 2.5
    for own in "http://localhost:8000/v1", "http://openai.com.example/v1":
        assert cost_of(priced_as(make_model(f"{own}#gpt-4o", env=key)), 1_000_000, 0) is None
