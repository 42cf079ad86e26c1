from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import (
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    SelectSpeakerEvent,
    TextMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken, SingleThreadedAgentRuntime
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import ValidationError

from coderoom.agents import CodeExecutorAgent, ReviewerAgent
from coderoom.agents import metadata as keys
from coderoom.errors import SandboxUnavailable
from coderoom.executors import LocalCodeExecutor
from coderoom.teams import CodeSucceeded, CodingTeam, ReviewApproved
from tests.teams.helpers import (
    How,
    Plan,
    PlanMessage,
    Player,
    SpecialTeam,
    calls,
    ends,
    held_by,
    interrupt,
    play,
    run_and_pause,
    speakers,
    step_for,
    text_of,
    until,
)

# --- Configs ---


def full_team() -> CodingTeam:
    inner = CodingTeam([Player("x")], name="inner", max_turns=1, custom_message_types=[PlanMessage])
    return CodingTeam(
        [Player("a", ["first"]), inner],
        name="outer",
        description="Outside.",
        termination_condition=ReviewApproved(["a"]) | MaxMessageTermination(7),
        max_turns=5,
        custom_message_types=[PlanMessage],
        emit_team_events=True,
    )


def test_every_field_survives_in_a_config() -> None:
    dumped = full_team().dump_component()
    assert dumped.provider == "coderoom.teams.CodingTeam"
    assert dumped.component_type == "team"
    config = dumped.config
    assert set(config) == {
        "name",
        "description",
        "participants",
        "termination_condition",
        "max_turns",
        "custom_message_types",
        "emit_team_events",
        "shared_session",
    }
    assert (config["name"], config["description"], config["max_turns"]) == ("outer", "Outside.", 5)
    assert config["emit_team_events"] is True
    assert [participant["config"]["name"] for participant in config["participants"]] == ["a", "inner"]

    loaded = CodingTeam.load_component(dumped)

    assert loaded.dump_component() == dumped
    assert (loaded.name, loaded.description) == ("outer", "Outside.")
    assert [type(participant) for participant in loaded.participants] == [Player, CodingTeam]


async def test_a_loaded_team_does_what_its_fields_say() -> None:
    loaded = CodingTeam.load_component(full_team().dump_component().model_dump())
    result = await play(loaded, [PlanMessage(plan=Plan(goal="go"), source="user")])
    assert speakers(result) == ["a", "x", "a", "x", "a"]
    assert result.stop_reason == "Maximum number of turns 5 reached."
    assert result.messages[2].to_text() == "first"
    announced = [message.content for message in result.messages if isinstance(message, SelectSpeakerEvent)]
    assert announced == [["a"], ["inner"], ["a"], ["inner"], ["a"]]


def test_defaults_survive_in_a_config() -> None:
    dumped = CodingTeam([Player("a")]).dump_component()
    loaded = CodingTeam.load_component(dumped)
    assert loaded.dump_component() == dumped
    assert (loaded.name, loaded.description) == (CodingTeam.DEFAULT_NAME, CodingTeam.DEFAULT_DESCRIPTION)


def test_config_of_autogens_team_loads_under_our_name() -> None:
    theirs = RoundRobinGroupChat(
        [Player("a")], name="team", max_turns=2, termination_condition=MaxMessageTermination(3)
    )
    config = theirs.dump_component().model_dump()
    config["provider"] = "coderoom.teams.CodingTeam"
    loaded = Team.load_component(config)
    assert isinstance(loaded, CodingTeam)
    assert loaded.dump_component().config == config["config"] | {"custom_message_types": [], "shared_session": False}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_turn": 3}, "max_turn"),
        ({"max_turns": "many"}, "max_turns"),
        ({"participants": None}, "participants"),
        ({"custom_message_types": "PlanMessage"}, "custom_message_types"),
    ],
)
def test_configs_are_strict(changes: dict[str, Any], named: str) -> None:
    config = CodingTeam([Player("a")]).dump_component().model_dump()
    config["config"] |= changes
    with pytest.raises(ValidationError, match=named):
        CodingTeam.load_component(config)


def test_a_coding_team_is_autogens_round_robin_and_loads_as_any_team() -> None:
    team = full_team()
    assert isinstance(team, RoundRobinGroupChat)
    loaded: Team = Team.load_component(team.dump_component())
    assert type(loaded) is CodingTeam
    assert isinstance(RoundRobinGroupChat.load_component(team.dump_component()), CodingTeam)


def test_a_subclass_dumps_as_itself() -> None:
    dumped = SpecialTeam([Player("a")]).dump_component()
    assert dumped.provider == "tests.teams.helpers.SpecialTeam"
    assert type(CodingTeam.load_component(dumped)) is SpecialTeam


def test_participants_are_there_to_see_and_not_to_change() -> None:
    a, b = Player("a"), Player("b")
    given = [a, b]
    team = CodingTeam(given)
    given.clear()
    assert tuple(team.participants) == (a, b)
    assert not hasattr(team.participants, "append")


# --- Starting and stopping what the agents own ---


def runner(name: str, executor: LocalCodeExecutor) -> CodeExecutorAgent:
    return CodeExecutorAgent(name, executor)


def folder_of(executor: LocalCodeExecutor) -> Path:
    """The temporary folder of an executor, which is there as long as the executor is started."""
    assert executor.work_dir is not None, "not started"
    return executor.work_dir


async def test_async_with_starts_executors_and_stops_them() -> None:
    one, two = LocalCodeExecutor(), LocalCodeExecutor()
    inner = CodingTeam([runner("two", two)], name="inner")
    team = CodingTeam([runner("one", one), inner, Player("a")])
    assert one.work_dir is None
    assert two.work_dir is None
    async with team as entered:
        assert entered is team
        folders = folder_of(one), folder_of(two)
        assert all(folder.is_dir() for folder in folders)
    assert not any(folder.exists() for folder in folders)
    assert one.work_dir is None
    assert two.work_dir is None


async def test_async_with_stops_executors_when_the_body_raises() -> None:
    one, two = LocalCodeExecutor(), LocalCodeExecutor()
    folders: list[Path] = []

    async def program() -> None:
        async with CodingTeam([runner("one", one), CodingTeam([runner("two", two)], name="inner")]):
            folders.extend([folder_of(one), folder_of(two)])
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        await program()
    assert len(folders) == 2
    assert not any(folder.exists() for folder in folders)


async def test_async_with_stops_executors_when_the_run_is_cancelled() -> None:
    executor = LocalCodeExecutor()
    team = CodingTeam([runner("one", executor)], max_turns=1)
    folders: list[Path] = []

    async def program() -> None:
        async with team:
            folders.append(folder_of(executor))
            await team.run(task="```python\nimport time\nopen('ready', 'w').close()\ntime.sleep(60)\n```")

    running = asyncio.create_task(program())
    await until(lambda: bool(folders) and (folders[0] / "ready").exists())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not folders[0].exists()


@pytest.mark.parametrize("nested", [False, True])
async def test_if_one_start_fails_the_others_are_stopped(tmp_path: Path, nested: bool) -> None:
    one, two, three = LocalCodeExecutor(), LocalCodeExecutor(), LocalCodeExecutor()
    (tmp_path / "file").touch()
    bad = runner("bad", LocalCodeExecutor(tmp_path / "file" / "folder"))
    second: Any = CodingTeam([runner("two", two), bad], name="inner") if nested else bad
    team = CodingTeam([runner("one", one), second, runner("three", three)])
    with pytest.raises(SandboxUnavailable, match="file"):
        async with team:
            raise AssertionError("the body must not be reached")
    assert [executor.work_dir for executor in (one, two, three)] == [None, None, None]


class Sticky(Player):
    """An agent that cannot be closed."""

    async def close(self) -> None:
        raise OSError("stuck")


async def test_if_one_close_fails_the_others_are_closed() -> None:
    one, two = LocalCodeExecutor(), LocalCodeExecutor()
    team = CodingTeam([runner("one", one), Sticky("a"), CodingTeam([Sticky("b"), runner("two", two)], name="inner")])
    await team.__aenter__()
    folders = folder_of(one), folder_of(two)
    with pytest.raises(OSError, match="stuck"):
        await team.close()
    assert not any(folder.exists() for folder in folders)


PRINT = "```python\nprint(6 * 7)\n```"


async def test_a_team_can_be_used_again_after_close() -> None:
    executor = LocalCodeExecutor()
    team = CodingTeam([runner("one", executor)], max_turns=1)
    for _ in range(2):
        async with team:
            assert "42" in (await play(team, PRINT)).messages[-1].to_text()
        assert executor.work_dir is None
    assert "42" in (await play(team, PRINT)).messages[-1].to_text(), "it starts on first use"
    folder = folder_of(executor)
    await team.close()
    await team.close()
    assert not folder.exists()


async def test_what_a_nested_team_of_autogens_has_started_is_stopped() -> None:
    executor = LocalCodeExecutor()
    inner = RoundRobinGroupChat([runner("one", executor)], name="inner", max_turns=1)
    team = CodingTeam([inner], max_turns=1)
    try:
        async with team:
            await play(team, PRINT)
            folder = folder_of(executor)
        assert not folder.exists()
    finally:
        await executor.stop()


def test_a_name_that_is_there_twice_is_named() -> None:
    with pytest.raises(ValueError, match=r"must be unique; given more than once: 'a', 'b'\."):
        CodingTeam([Player("b"), Player("a"), Player("c"), Player("a"), CodingTeam([Player("x")], name="b")])


# --- Running ---


async def test_a_run_is_what_it_is_with_autogens_team() -> None:
    """Messages, their order, the stop reason and where the next run begins."""
    told: list[Any] = []
    for kind in (RoundRobinGroupChat, CodingTeam):
        condition = MaxMessageTermination(4) | TextMentionTermination("stop")
        team = kind([Player("a"), Player("b", ["one", "stop"]), Player("c")], termination_condition=condition)
        for task in ("first", None, "third"):
            result = await play(team, task)
            told.append(([(message.source, message.to_text()) for message in result.messages], result.stop_reason))
    assert told[:3] == told[3:]
    assert [len(messages) for messages, _ in told[:3]] == [4, 2, 4]


async def test_the_task_may_be_left_out_of_the_result() -> None:
    async with asyncio.timeout(10):
        result = await CodingTeam([Player("a")], max_turns=1).run(task="one", output_task_messages=False)
    assert [message.source for message in result.messages] == ["a"]


async def test_chunks_come_through_and_are_not_in_the_result() -> None:
    agent = AssistantAgent("a", ReplayChatCompletionClient(["three small words"]), model_client_stream=True)
    items = [item async for item in CodingTeam([agent], max_turns=1).run_stream(task="one")]
    chunks = [item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent)]
    assert "".join(chunks) == "three small words"
    result: Any = items[-1]
    assert [type(message) for message in result.messages] == [TextMessage, TextMessage]


async def test_two_teams_run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for the other's file, so that one after the other would never end."""

    def program(mine: str, other: str) -> str:
        wait = f"while not pathlib.Path({str(tmp_path / other)!r}).exists():\n    time.sleep(0.01)"
        touch = f"import pathlib, time\npathlib.Path({str(tmp_path / mine)!r}).touch()"
        return f"```python\n{touch}\n{wait}\nprint('{mine}')\n```"

    teams = [CodingTeam([runner("one", LocalCodeExecutor())], max_turns=1) for _ in range(2)]
    async with teams[0], teams[1]:
        results = await asyncio.gather(play(teams[0], program("x", "y")), play(teams[1], program("y", "x")))
    assert [result.messages[-1].to_text().strip() for result in results] == ["x", "y"]


async def test_a_second_run_is_refused_and_the_first_goes_on() -> None:
    gate = asyncio.Event()
    a, b = Player("a", [held_by(gate, "a speaks")]), Player("b")
    team = CodingTeam([a, b], max_turns=2)
    running = asyncio.create_task(team.run(task="one"))
    await until(lambda: a.turns == 1)
    with pytest.raises(ValueError, match="already running"):
        await play(team, "two")
    with pytest.raises(RuntimeError, match="running"):
        await team.reset()
    with pytest.raises(RuntimeError, match="running"):
        await team.load_state(await CodingTeam([Player("a"), Player("b")]).save_state())
    assert not running.done()
    gate.set()
    async with asyncio.timeout(10):
        assert speakers(await running) == ["a", "b"]
    assert b.context == ["user: one", "a: a speaks"]


async def test_of_two_runs_that_begin_together_one_is_refused() -> None:
    team = CodingTeam([a := Player("a")], max_turns=1)
    results = await asyncio.gather(play(team, "one"), play(team, "two"), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["TaskResult", "ValueError"]
    assert len(a.context) == 1


async def test_team_events_tell_who_speaks_next() -> None:
    a, b = Player("a"), Player("b", [step_for("token")])
    team = CodingTeam([a, b], max_turns=2, emit_team_events=True)
    await interrupt("token", team, b)
    result = await play(team)
    told = [
        message.content if isinstance(message, SelectSpeakerEvent) else message.source for message in result.messages
    ]
    assert told == [["b"], "b"]
    quiet = await play(CodingTeam([Player("a")], max_turns=1), "one")
    assert not any(isinstance(message, SelectSpeakerEvent) for message in quiet.messages)


async def test_a_coding_team_inside_of_autogens_team() -> None:
    x = Player("x")
    inner = CodingTeam([x, Player("y")], name="inner", max_turns=2)
    team = RoundRobinGroupChat([Player("a"), inner], max_turns=4)
    assert speakers(await play(team, "one")) == ["a", "x", "y", "a", "x", "y"]
    assert x.context == ["user: one", "a: a 1", "y: y 1", "a: a 2"]


async def test_no_more_turns_than_one_are_refused() -> None:
    with pytest.raises(ValueError, match="turns"):
        await play(CodingTeam([Player("a")], max_turns=0), "one")


# --- With a runtime of the user's ---


@pytest.fixture
async def runtime() -> AsyncGenerator[SingleThreadedAgentRuntime, None]:
    runtime = SingleThreadedAgentRuntime()
    runtime.start()
    yield runtime
    with contextlib.suppress(asyncio.CancelledError):  # `ends` may have had to tear it down.
        await runtime.stop()


async def test_external_runtime(runtime: SingleThreadedAgentRuntime) -> None:
    one = CodingTeam([Player("a"), b := Player("b")], max_turns=2, runtime=runtime)
    two = CodingTeam([Player("a"), d := Player("b")], max_turns=2, runtime=runtime)
    results = await asyncio.gather(play(one, "one"), play(two, "two"))
    assert [speakers(result) for result in results] == [["a", "b"], ["a", "b"]]
    assert speakers(await play(one, "three")) == ["a", "b"]
    assert b.context == ["user: one", "a: a 1", "user: three", "a: a 2"]
    assert d.context == ["user: two", "a: a 1"]


@pytest.mark.parametrize("how", ["token", "error"])
async def test_external_runtime_after_an_interruption(how: How, runtime: SingleThreadedAgentRuntime) -> None:
    a, b, c = Player("a"), Player("b", [step_for(how)]), Player("c")
    team = CodingTeam([a, b, c], max_turns=3, runtime=runtime)
    await interrupt(how, team, b)
    running = asyncio.create_task(team.run())
    assert await ends(running)
    assert speakers(await running) == ["b", "c"]
    assert b.context == ["user: one", "a: a 1"]
    assert c.context == ["user: one", "a: a 1", "b: b 1"]
    assert speakers(await play(team, "two")) == ["a", "b", "c"]


async def test_external_runtime_pause_and_state(runtime: SingleThreadedAgentRuntime) -> None:
    gate = asyncio.Event()
    a, b = Player("a", [held_by(gate, "a speaks")]), Player("b")
    team = CodingTeam([a, b], max_turns=2, runtime=runtime)
    async with asyncio.timeout(10):
        running = await run_and_pause(team, a, gate)
        assert b.turns == 0
        state = await team.save_state()
        await team.resume()
        assert speakers(await running) == ["a", "b"]
        await team.reset()
    assert b.context == []
    other = CodingTeam([Player("a"), d := Player("b")], max_turns=2, runtime=runtime)
    await other.load_state(state)
    assert speakers(await play(other)) == ["b"]
    assert d.context == ["user: one", "a: a speaks"]


# --- The whole thing ---

WRONG = "Let me try.\n```python\nprint(sum(range(5)) / 0)\n```"
RIGHT = "```python\nprint(sum(range(6)))\n```"
DECISION = '{"reason": "It divides by zero.", "retry": true}'
REFUSAL = (
    '{"approved": false, "issues": [{"severity": "error", "line": 1, "message": "5 is missing"}], "summary": "No."}'
)
APPROVAL = '{"approved": true, "issues": [], "summary": "As asked."}'


async def test_a_coder_and_a_reviewer_from_a_config(tmp_path: Path) -> None:
    """The coder mends its own failure; the reviewer sends it back once, then approves."""
    coder_client = ReplayChatCompletionClient(
        [WRONG, DECISION, "```python\nprint(sum(range(5)))\n```", "The sum is 10.", RIGHT, "The sum is 15."]
    )
    coder = CodeExecutorAgent("coder", LocalCodeExecutor(tmp_path), model_client=coder_client, max_retries_on_error=1)
    reviewer = ReviewerAgent("reviewer", ReplayChatCompletionClient([REFUSAL, APPROVAL]))
    made = CodingTeam([coder, reviewer], termination_condition=ReviewApproved(), max_turns=8)
    team = CodingTeam.load_component(made.dump_component())

    async with team:
        result = await play(team, "Add up 0 to 5.")

    assert result.stop_reason == "reviewer approved."
    assert speakers(result) == ["coder", "reviewer", "coder", "reviewer"]
    codes = [event.result.exit_code for event in result.messages if isinstance(event, CodeExecutionEvent)]
    assert codes == [1, 0, 0]
    assert any(isinstance(event, CodeGenerationEvent) for event in result.messages)
    said = [message for message in result.messages if isinstance(message, BaseChatMessage)]
    assert [message.metadata.get(keys.OUTCOME) for message in said] == [None, "ok", None, "ok", None]
    assert [message.metadata.get(keys.ATTEMPTS) for message in said] == [None, "2", None, "1", None]
    assert "15" in said[3].to_text()
    assert "5 is missing" in said[2].to_text()


async def test_the_coder_reads_what_the_reviewer_found(tmp_path: Path) -> None:
    client = ReplayChatCompletionClient(["```python\nprint(10)\n```", "Ten.", RIGHT, "Fifteen."])
    team = CodingTeam(
        [
            CodeExecutorAgent("coder", LocalCodeExecutor(tmp_path), model_client=client),
            ReviewerAgent("reviewer", ReplayChatCompletionClient([REFUSAL, APPROVAL])),
        ],
        termination_condition=ReviewApproved(),
    )
    async with team:
        await play(team, "Add up 0 to 5.")
    second_turn = text_of(calls(client)[2])
    assert second_turn.count("5 is missing") == 1
    assert second_turn.count("Add up 0 to 5.") == 1


async def test_a_writer_and_an_executor_until_the_code_runs(tmp_path: Path) -> None:
    """With AutoGen's assistant as the writer, whose code our agent runs."""
    client = ReplayChatCompletionClient([WRONG, RIGHT])
    team = CodingTeam(
        [
            AssistantAgent("writer", client),
            CodeExecutorAgent("runner", LocalCodeExecutor(tmp_path), sources=["writer"]),
        ],
        termination_condition=CodeSucceeded(),
        max_turns=6,
    )
    async with team:
        result = await play(team, "Add up 0 to 5.")
    assert speakers(result) == ["writer", "runner", "writer", "runner"]
    assert result.messages[-1].to_text().strip() == "15"
    assert "ZeroDivisionError" in text_of(calls(client)[1])


async def test_a_cancelled_run_of_a_loaded_team_can_be_saved_and_taken_up_elsewhere(tmp_path: Path) -> None:
    waiting = "```python\nimport time\nopen('ready', 'w').close()\ntime.sleep(60)\n```"
    client = ReplayChatCompletionClient([waiting])
    condition = CodeSucceeded() | MaxMessageTermination(20)

    def make(client: ReplayChatCompletionClient) -> CodingTeam:
        coder = CodeExecutorAgent("coder", LocalCodeExecutor(tmp_path), model_client=client)
        return CodingTeam([Player("planner", ["Add up 0 to 5."]), coder], termination_condition=condition)

    async with make(client) as team:
        token = CancellationToken()
        running = asyncio.create_task(team.run(task="one", cancellation_token=token))
        await until((tmp_path / "ready").exists)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        state = await team.save_state()
    later = ReplayChatCompletionClient([RIGHT, "Fifteen."])
    async with CodingTeam.load_component(make(later).dump_component()) as other:
        await other.load_state(state)
        result = await play(other)
    assert speakers(result) == ["coder"]
    assert "15" in result.messages[-1].to_text()


def test_one_team_in_two_event_loops() -> None:
    """As a script has them that calls `asyncio.run` twice."""
    a, b = Player("a"), Player("b")
    team = CodingTeam([a, b], max_turns=2)
    assert speakers(asyncio.run(team.run(task="one"))) == ["a", "b"]
    assert speakers(asyncio.run(team.run(task="two"))) == ["a", "b"]
    assert b.context == ["user: one", "a: a 1", "user: two", "a: a 2"]
    asyncio.run(team.reset())
    assert speakers(asyncio.run(team.run(task="three"))) == ["a", "b"]
