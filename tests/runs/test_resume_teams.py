"""Runs that end in the middle and go on, in teams of AutoGen's around our agents."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.teams import BaseGroupChat, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_ext.tools.code_execution import PythonCodeExecutionTool

from coderoom._util.text import MASK
from coderoom.agents import CodeActAgent, CodeExecutorAgent
from coderoom.configs import ReplayModel, dump_team
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.models.budgets import Budget
from coderoom.runs import Journal, Run, RunRecord, RunRequest, prepare_run
from tests.support.openai_server import Failure, OpenAIServer

CALLS = {"function_calling": True}
FAILS = "```python\nx = 6\nprint(1 / 0)\n```"
WORKS = "```python\nprint(6 * 7)\n```"


def call(name: str) -> dict[str, Any]:
    return {"content": [{"id": "1", "name": name, "arguments": "{}"}]}


def swarm() -> BaseGroupChat:
    coder = CodeExecutorAgent(
        "coder",
        SandboxCodeExecutor(),
        model_client=ReplayModel([FAILS, '{"retry": true, "reason": "zero"}', call("transfer_to_actor")], CALLS),
        max_retries_on_error=1,
        handoffs=["actor"],
    )
    actor = CodeActAgent("actor", ReplayModel([WORKS, call("transfer_to_boss")], CALLS), handoffs=["boss"])
    boss = AssistantAgent("boss", ReplayModel(["It is 42. END"], CALLS), handoffs=["coder"])
    return Swarm([coder, actor, boss], termination_condition=TextMentionTermination("END"))


def selector() -> BaseGroupChat:
    return SelectorGroupChat(
        [
            CodeActAgent("actor", ReplayModel([WORKS, "It is 42.", WORKS, "Again 42."])),
            AssistantAgent("writer", ReplayModel(["Do it again.", "Said. END"]), description="Writes"),
        ],
        model_client=ReplayModel(["actor", "writer", "actor", "writer"]),
        allow_repeated_speaker=True,
        termination_condition=TextMentionTermination("END"),
    )


def transcript(record: RunRecord) -> list[tuple[str, str]]:
    return [(message.source, message.to_text()) for message in record.messages]


@pytest.mark.slow
@pytest.mark.parametrize("team", [swarm, selector])
async def test_a_run_goes_on_with_the_same_words(team: Any, tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    dump_team(team(), file)
    whole = await Run.begin(prepare_run(str(file), "Compute it."), None).go(lambda message: None)
    assert "END" in whole.messages[-1].to_text(), whole.error
    for stop in range(1, len(whole.messages), 2):
        journal = Journal(tmp_path / f"journal-{stop}")
        seen: list[Any] = []

        def watch(message: Any, seen: list[Any] = seen, stop: int = stop) -> None:
            seen.append(message)
            if len(seen) > stop:
                raise RuntimeError("stop here")

        stopped = await Run.begin(prepare_run(str(file), "Compute it."), journal).go(watch)
        assert "stop here" in str(stopped.error)
        shown: list[Any] = []
        resumed = await Run.resume("last", journal).go(shown.append)
        assert transcript(resumed) == transcript(whole)
        assert len(shown) < len(whole.messages)  # What was shown before is not shown again.


async def test_tools_of_autogens_agents_are_called_once(tmp_path: Path) -> None:
    code = {"id": "1", "name": "CodeExecutor", "arguments": json.dumps({"code": "open('ran', 'a').write('x')"})}
    tool = PythonCodeExecutionTool(SandboxCodeExecutor(work_dir=tmp_path))
    assistant = AssistantAgent(
        "one", ReplayModel([{"content": [code]}, "Written."], CALLS), tools=[tool], reflect_on_tool_use=True
    )
    inner = AssistantAgent(
        "inner", ReplayModel([{"content": [code]}, "Written too."], CALLS), tools=[tool], reflect_on_tool_use=True
    )
    ask = {"id": "2", "name": "inner", "arguments": '{"task": "Write."}'}
    asker = AssistantAgent(
        "two", ReplayModel([{"content": [ask]}, "END"], CALLS), tools=[AgentTool(inner)], reflect_on_tool_use=True
    )
    condition = TextMentionTermination("END", sources=["two"])
    dump_team(RoundRobinGroupChat([assistant, asker], termination_condition=condition), tmp_path / "team.yaml")

    def stop(message: Any) -> None:
        if "END" in message.to_text():
            raise RuntimeError("stop here")

    journal = Journal(tmp_path / "journal")
    stopped = await Run.begin(prepare_run(str(tmp_path / "team.yaml"), "Go."), journal).go(stop)
    assert "stop here" in str(stopped.error)
    assert (tmp_path / "ran").read_text() == "xx"
    resumed = await Run.resume("last", journal, budget={"model_calls": 6}).go(lambda message: None)
    assert (resumed.outcome, (tmp_path / "ran").read_text()) == ("ok", "xx")
    kinds = [step.kind for step in journal.steps(str(resumed.run))]
    assert (kinds.count("model"), kinds.count("call")) == (6, 2)


async def test_a_task_that_was_cancelled_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEROOM_API_KEY", "test")
    work, journal = tmp_path / "work", Journal(tmp_path / "journal.sqlite3")
    endless = "```python\nopen('ran', 'a').write('x')\nwhile True: pass\n```"
    with OpenAIServer([endless, Failure(401, message="No."), "Two."]) as server:
        request = RunRequest("code-act", "One.", model=f"{server.base_url}#m", workspace=work, more_tasks=True)
        run = Run.begin(request.prepare(), journal, command="chat")
        token = CancellationToken()
        going = asyncio.create_task(run.go_on(run.record_of("One."), print, close=False, token=token))
        while not (work / "ran").exists():
            await asyncio.sleep(0.02)
        token.cancel()
        assert (await going).cancelled
        assert (await run.go_on(run.record_of("Two?"), print, close=False)).error
        await run.close()
        resumed = await Run.resume("last", journal).go(print)
    assert (resumed.task, resumed.answer, (work / "ran").read_text()) == ("Two?", "Two.", "x")
    assert len(server.requests) == 3


SETS = "```python\ntotal = 10\nprint(1 / 0)\n```"
NEEDS = "```python\nprint(total + 5)\n```"


def retrying() -> BaseGroupChat:
    model = ReplayModel([SETS, '{"retry": true, "reason": "zero"}', NEEDS, "It is 15."])
    coder = CodeExecutorAgent("coder", SandboxCodeExecutor(), model_client=model, max_retries_on_error=1)
    return RoundRobinGroupChat([coder], max_turns=1)


def acting() -> BaseGroupChat:
    coder = CodeActAgent("coder", ReplayModel([SETS, NEEDS, "It is 15."]), initial_variables={"start": 1})
    return RoundRobinGroupChat([coder], max_turns=1)


@pytest.mark.slow
@pytest.mark.parametrize("team", [retrying, acting])
async def test_what_failed_code_has_set_is_there_after_a_resumption(team: Any, tmp_path: Path) -> None:
    dump_team(team(), tmp_path / "team.yaml")
    for limit in ({"model_calls": 1}, {"model_calls": 2}, {"cells": 1}):
        journal = Journal(tmp_path / f"journal-{limit}")
        request = prepare_run(str(tmp_path / "team.yaml"), "Compute it.")
        stopped = await Run.begin(request, journal, budget=Budget(**limit)).go(lambda message: None)
        assert not stopped.succeeded
        more = dict.fromkeys(limit, 9)
        resumed = await Run.resume("last", journal, budget=more).go(lambda message: None)
        assert (resumed.outcome, resumed.answer) == ("ok", "It is 15."), limit


async def test_what_was_undone_stays_so_after_a_resumption(tmp_path: Path) -> None:
    (work := tmp_path / "work").mkdir()
    replies = ["```python\nx = 1\n```", "```python\nx = 2\n1 / 0\n```", "```python\nprint('x is', x)\n```", "Done."]
    coder = CodeActAgent("coder", ReplayModel(replies), SandboxCodeExecutor(work_dir=work), on_error="rollback")
    dump_team(RoundRobinGroupChat([coder], max_turns=1), tmp_path / "team.yaml")
    journal = Journal(tmp_path / "journal")
    begun = Run.begin(prepare_run(str(tmp_path / "team.yaml"), "Go."), journal, budget=Budget(cells=2))
    assert not (await begun.go(lambda message: None)).succeeded
    resumed = await Run.resume("last", journal, budget={"cells": 9}).go(lambda message: None)
    assert (resumed.outcome, resumed.output.strip()) == ("ok", "x is 1")


async def test_a_resumed_run_may_have_other_turns(tmp_path: Path) -> None:
    agents = [AssistantAgent(name, ReplayModel([f"{name} 1", f"{name} 2"])) for name in ("a", "b")]
    dump_team(RoundRobinGroupChat([*agents], max_turns=4), tmp_path / "team.yaml")

    def stop(message: Any) -> None:
        raise RuntimeError("stop here")

    journal = Journal(tmp_path / "journal")
    await Run.begin(prepare_run(str(tmp_path / "team.yaml"), "Go."), journal).go(stop)
    resumed = await Run.resume("last", journal, max_turns=3).go(lambda message: None)
    assert [source for source, _ in transcript(resumed)] == ["user", "a", "b", "a"]


def test_what_is_told_of_a_task_is_not_told_of_the_next_one(tmp_path: Path) -> None:
    dump_team(RoundRobinGroupChat([AssistantAgent("a", ReplayModel(["a 1"]))], max_turns=1), tmp_path / "team.yaml")
    with pytest.raises(RequestError, match="there is none"):
        Run.begin(prepare_run(str(tmp_path / "team.yaml"), "One."), None, cached=True)
    run = Run.begin(prepare_run(str(tmp_path / "team.yaml"), "One."), None)
    one = run.record_of("One.")
    one.notices.append("It took a while.")
    one.without_messages["a"] = []
    two = run.record_of("Two.")
    assert (two.task, two.team, two.notices, two.without_messages) == ("Two.", one.team, [], {})


def test_what_cannot_go_on_says_why(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    file = tmp_path / "team.yaml"
    file.write_text("x: 1")
    request = {"source": f"key: {MASK}", "digest": "of the file before", "budget": None, "budgets": None}
    said = {
        ("exec", "ok"): "it ran code without a team",
        ("solve", "failed"): "`coderoom resume` goes on with it",
        ("run", "ok"): "nothing is left to do",
        ("run", "failed"): "has changed, and the journal does not have the keys",
    }
    for (command, outcome), words in said.items():
        run = journal.begin(command, str(file), "x", None, request)
        journal.end(run, outcome, {})
        with pytest.raises(RequestError, match=words):
            Run.resume(run, journal)
        assert journal.find(run).state == outcome
