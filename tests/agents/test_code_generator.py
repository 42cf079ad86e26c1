from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Response, TaskResult
from autogen_agentchat.messages import CodeExecutionEvent, CodeGenerationEvent, TextMessage, ThoughtEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, ComponentModel

from coderoom.agents import CodeGeneratorAgent, ReviewerAgent
from coderoom.agents import metadata as keys
from coderoom.configs import ReplayModel, check_team, dump_team, load_team
from coderoom.errors import RequestError
from coderoom.teams import CodingTeam, ReviewApproved
from tests.support.solving import GOOD, SPECS, TESTS, WRONG

APPROVED = json.dumps({"approved": True, "issues": [], "summary": "Fine."})
REFUSED = json.dumps({"approved": False, "issues": [], "summary": "Name it twice."})


opened: list[CodeGeneratorAgent] = []


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    for agent in opened:
        await agent.close()
    opened.clear()


def generator(model: ReplayModel, **arguments: Any) -> CodeGeneratorAgent:
    opened.append(CodeGeneratorAgent("generator", model, **arguments))
    return opened[-1]


def said(text: str, source: str = "user") -> TextMessage:
    return TextMessage(content=text, source=source)


async def turn(agent: CodeGeneratorAgent, *messages: TextMessage) -> tuple[list[Any], TextMessage]:
    items = [item async for item in agent.on_messages_stream(messages or [said("Double.")], CancellationToken())]
    response = items[-1]
    assert isinstance(response, Response)
    assert list(response.inner_messages or []) == items[:-1]
    assert isinstance(response.chat_message, TextMessage)
    return items[:-1], response.chat_message


async def test_a_turn_makes_tested_code_and_shows_how() -> None:
    agent = generator(ReplayModel([SPECS, TESTS, GOOD]))
    events, message = await turn(agent)
    kinds = [type(event) for event in events]
    assert [kind for kind in kinds if kind is not ThoughtEvent] == [CodeGenerationEvent, CodeExecutionEvent]
    code = next(event for event in events if isinstance(event, CodeGenerationEvent))
    assert code.code_blocks[0].code == "def double(x):\n    return 2 * x"
    assert "All 3 tests passed." in message.content
    assert "return 2 * x" in message.content
    assert message.metadata[keys.OUTCOME] == "ok"
    assert (message.metadata[keys.EXIT_CODE], message.metadata[keys.STOP_REASON]) == ("0", "passed")
    assert message.models_usage is not None


async def test_what_fails_is_no_success_whatever_the_model_says() -> None:
    repair = json.dumps({"wrong": "implementation", "reason": "all_tests_passed", "implementation": WRONG})
    agent, failure = (
        generator(ReplayModel([SPECS, TESTS, WRONG, repair, WRONG])),
        "-3 gives -6: result: expected -6, got 9",
    )
    events, message = await turn(agent)
    ran = [event.result for event in events if isinstance(event, CodeExecutionEvent)]
    assert [(each.exit_code, each.output.splitlines()) for each in ran[:1]] == [
        (1, ["double: 1 of 3 tests passed", "21 gives 42: result: expected 42, got 441", failure])
    ]
    assert message.metadata[keys.OUTCOME] == "error"
    assert message.metadata[keys.STOP_REASON] == "same_code"
    assert f"double: {failure}" in message.content


async def test_what_branches_say_has_their_names_and_then_what_came_of_them() -> None:
    agent = generator(ReplayModel([SPECS, TESTS, WRONG, "Nothing.", GOOD]), branches=2, concurrency=1)
    events, message = await turn(agent)
    said_by = {
        name: [type(event) for event in events if event.metadata.get(keys.BRANCH) == name]
        for name in ("double 1.1", "double 1.2")
    }
    assert said_by == {"double 1.1": [ThoughtEvent], "double 1.2": [CodeGenerationEvent, CodeExecutionEvent]}
    [end] = [event for event in events if event.metadata.get(keys.EVENT) == keys.BRANCHING]
    found = json.loads(end.metadata[keys.BRANCHES])
    assert (found["branching"], found["won"]) == (1, "double 1.2")
    assert [each["outcome"] for each in found["branches"]] == ["rejected", "ok"]
    assert message.metadata[keys.OUTCOME] == "ok"


async def test_what_is_said_later_is_heeded_and_a_reset_forgets_it() -> None:
    model = ReplayModel([SPECS, TESTS, GOOD] * 4)
    agent = generator(model)
    await turn(agent)
    await turn(agent, said("Mind the zero.", "reviewer"))
    await turn(agent, said("And numbers only."))
    state = await agent.save_state()
    assert "Double." in state["instruction"]
    assert state["remarks"] == ["reviewer: Mind the zero.", "user: And numbers only."]
    await agent.on_reset(CancellationToken())
    await turn(agent, said("Double again."))
    state = await agent.save_state()
    assert (state["instruction"], state["remarks"]) == ("Double again.", [])


async def test_its_state_comes_back() -> None:
    agent = generator(ReplayModel([SPECS, TESTS, GOOD]))
    await turn(agent)
    state = json.loads(json.dumps(await agent.save_state()))
    other = generator(ReplayModel([SPECS, TESTS, GOOD]))
    await other.load_state(state)
    await turn(other, said("Mind the zero.", "reviewer"))
    assert "Double." in (await other.save_state())["instruction"]
    await other.on_reset(CancellationToken())
    with pytest.raises(RequestError, match="nothing to do"):
        await turn(other, said(" "))


async def test_files_are_written_where_it_is_told_to(tmp_path: Path) -> None:
    agent = generator(ReplayModel([SPECS, TESTS, GOOD]), work_dir=tmp_path / "work")
    _, message = await turn(agent)
    assert (tmp_path / "work" / "report.md").exists()
    assert "report.md" in message.content


async def test_a_cancel_ends_the_turn() -> None:
    agent = generator(ReplayModel([SPECS, TESTS, GOOD]))
    token = CancellationToken()
    stream = agent.on_messages_stream([said("Double.")], token)
    await anext(stream)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await anext(stream)
    _, message = await turn(generator(ReplayModel([SPECS, TESTS, GOOD])))
    assert message.metadata[keys.OUTCOME] == "ok"


def test_every_argument_comes_back(tmp_path: Path) -> None:
    everything: dict[str, Any] = {
        "description": "Makes things.",
        "language": "python",
        "work_dir": str(tmp_path),
        "wall": "bubblewrap",
        "max_attempts": 3,
        "max_test_changes": 1,
        "max_tokens": 1000,
        "max_seconds": 10.5,
        "max_answer_tokens": 2000,
        "request_timeout": 60.0,
        "concurrency": 2,
        "retries": 0,
        "test_timeout": 1.5,
        "allowed_imports": ["math", "re"],
        "block_severity": None,
        "accept_changed_tests": True,
        "cache": True,
        "cache_dir": str(tmp_path / "cache"),
    }
    agent = generator(ReplayModel(["x"]), **everything)
    dumped = json.loads(agent.dump_component().model_dump_json())
    assert dumped["provider"] == "coderoom.agents.CodeGeneratorAgent"
    told = {**everything, "block_severity": "none"}  # What is `None` is not dumped.
    assert {name: dumped["config"][name] for name in told} == told
    loaded = CodeGeneratorAgent.load_component(ComponentModel(**dumped))
    assert json.loads(loaded.dump_component().model_dump_json()) == dumped


@pytest.mark.parametrize(
    ("name", "value"), [("language", "cobol"), ("block_severity", "some"), ("allowed_imports", "math"), ("retries", -1)]
)
def test_a_wrong_argument_is_told_of_at_once(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=name):
        generator(ReplayModel(["x"]), **{name: value})


async def test_it_imports_only_what_it_may() -> None:
    repair = json.dumps({"wrong": "implementation", "reason": "no\nos", "implementation": GOOD})
    bad = GOOD.replace("def double", "import os\n\n\ndef double")
    events, message = await turn(generator(ReplayModel([SPECS, TESTS, bad, repair]), allowed_imports=["math"]))
    assert message.metadata[keys.OUTCOME] == "ok"
    assert sum(isinstance(event, CodeExecutionEvent) for event in events) == 1
    [code] = [event for event in events if isinstance(event, CodeGenerationEvent)]
    assert code.content.startswith("double, attempt 2 (patch): no os\n\n```python")
    assert "Repairs:\n- double, attempt 2 (patch): no os\n\n" in message.content


async def test_a_reviewer_sends_it_back_and_then_approves(tmp_path: Path) -> None:
    words = [SPECS, TESTS, GOOD, REFUSED, SPECS, TESTS, GOOD, APPROVED]
    model = ReplayModel(words)
    participants = [generator(model), ReviewerAgent("reviewer", model)]
    team = CodingTeam(participants, termination_condition=ReviewApproved(), max_turns=6)
    result = await team.run(task="Double.")
    assert [message.source for message in result.messages if isinstance(message, TextMessage)] == [
        "user",
        *["generator", "reviewer"] * 2,
    ]
    assert result.messages[-1].metadata[keys.APPROVED] == "true"


async def test_it_plays_in_autogens_team() -> None:
    team = RoundRobinGroupChat([generator(ReplayModel([SPECS, TESTS, GOOD]))], max_turns=1)
    items = [item async for item in team.run_stream(task="Double.")]
    assert isinstance(items[-1], TaskResult)
    assert any(isinstance(item, CodeExecutionEvent) for item in items)


def test_the_shipped_team_is_valid_and_comes_back(tmp_path: Path) -> None:
    assert check_team("test-driven") == []
    file = tmp_path / "r.json"
    file.write_text(json.dumps({"replies": ["x"]}))
    team = load_team("test-driven", model=f"replay:{file}")
    assert "coderoom.agents.CodeGeneratorAgent" in dump_team(team)
