"""AutoGen's defects A3 to A6: what others see, the saved state, nested teams, message types."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.conditions import (
    ExternalTermination,
    FunctionalTermination,
    MaxMessageTermination,
    TextMentionTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    StructuredMessage,
    TextMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from coderoom.agents import CodeExecutorAgent, ReviewerAgent
from coderoom.executors import LocalCodeExecutor
from coderoom.teams import CodeSucceeded, CodingTeam, NoProgress, ReviewApproved
from tests.teams.helpers import (
    Notice,
    Outer,
    Plan,
    PlanAgent,
    PlanMessage,
    Player,
    StructuredPlanAgent,
    calls,
    interrupt,
    listening,
    play,
    speakers,
    text_of,
)

# --- A3: whoever comes next sees the code, the exit code and the output ---


@pytest.mark.parametrize(
    ("code", "outcome", "output"),
    [
        ("print('sum:', 40 + 2)", "exit code 0", "sum: 42"),
        ("print('begun')\nraise SystemExit(3)", "exit code 3", "begun"),
    ],
    ids=["success", "failure"],
)
async def test_a3_next_agent_sees_code_exit_code_and_output(
    tmp_path: Path, code: str, outcome: str, output: str
) -> None:
    client = ReplayChatCompletionClient([f"```python\n{code}\n```", "I am done."])
    reviewer = Player("reviewer")
    team = CodingTeam(
        [CodeExecutorAgent("coder", LocalCodeExecutor(tmp_path), model_client=client), reviewer], max_turns=2
    )
    async with team:
        await play(team, "Write a sum.")
    assert reviewer.context[0] == "user: Write a sum."
    seen = reviewer.context[1]
    assert all(part in seen for part in ("I am done.", code, outcome, output)), seen


async def test_a3_reviewers_model_sees_code_exit_code_and_output(tmp_path: Path) -> None:
    coder_client = ReplayChatCompletionClient(["```python\nprint('sum:', 40 + 2)\n```", "I am done."])
    reviewer_client = ReplayChatCompletionClient(['{"approved": true, "issues": [], "summary": "Fine."}'])
    team = CodingTeam(
        [
            CodeExecutorAgent("coder", LocalCodeExecutor(tmp_path), model_client=coder_client),
            ReviewerAgent("reviewer", reviewer_client),
        ],
        termination_condition=ReviewApproved(),
        max_turns=2,
    )
    async with team:
        result = await play(team, "Write a sum.")
    assert result.stop_reason == "reviewer approved."
    seen = text_of(calls(reviewer_client)[0])
    assert all(part in seen for part in ("Write a sum.", "print('sum:', 40 + 2)", "exit code 0", "sum: 42")), seen


# --- A4: the saved state is the whole state ---


def as_json(state: Any) -> Any:
    """The state as a file would hold it."""
    return json.loads(json.dumps(state))


def _player(team: CodingTeam, number: int) -> Player:
    player = team.participants[number]
    assert isinstance(player, Player)
    return player


async def test_a4_state_of_a_nested_team_survives() -> None:
    y = Player("y", [listening])
    team = CodingTeam([Player("a"), CodingTeam([Player("x"), y], name="inner", max_turns=2)], max_turns=2)
    await interrupt("token", team, y)
    other = CodingTeam.load_component(team.dump_component())
    await other.load_state(as_json(await team.save_state()))
    assert speakers(await play(other)) == ["x", "y"]
    inner = other.participants[1]
    assert isinstance(inner, CodingTeam)
    assert _player(inner, 0).context == ["user: one", "a: a 1"]


# Each message of a Player costs 15 tokens. After the task, a's message and b's interruption two messages are counted.
CONDITIONS: dict[str, tuple[Callable[[], TerminationCondition], list[str]]] = {
    "MaxMessage": (lambda: MaxMessageTermination(4), ["b", "c"]),
    "TokenUsage": (lambda: TokenUsageTermination(max_total_token=45), ["b", "c"]),
    "prompt tokens": (lambda: TokenUsageTermination(max_prompt_token=30), ["b", "c"]),
    "completion tokens": (lambda: TokenUsageTermination(max_completion_token=15), ["b", "c"]),
    "or": (lambda: MaxMessageTermination(9) | TokenUsageTermination(max_total_token=45), ["b", "c"]),
    "and": (lambda: TextMentionTermination("a 1") & MaxMessageTermination(4), ["b", "c"]),
    "nested": (
        lambda: NoProgress() | (TextMentionTermination("a 1") & (MaxMessageTermination(4) | ExternalTermination())),
        ["b", "c"],
    ),
}


@pytest.mark.parametrize("name", CONDITIONS)
async def test_a4_counters_of_conditions_survive(name: str) -> None:
    make, expected = CONDITIONS[name]
    b = Player("b", [listening])
    team = CodingTeam([Player("a"), b, Player("c")], termination_condition=make())
    await interrupt("token", team, b)
    state = as_json(await team.save_state())
    other = CodingTeam([Player("a"), Player("b"), Player("c")], termination_condition=make())
    await other.load_state(state)
    result = await play(other)
    assert speakers(result) == expected
    # The first team counts the same, and its state did not change with the other's.
    assert speakers(await play(team)) == expected
    assert (await play(other)).stop_reason is not None, "what was met is reset"


async def test_a4_a_stop_that_was_asked_for_from_outside_survives() -> None:
    b = Player("b", [listening])
    condition = ExternalTermination()
    team = CodingTeam([Player("a"), b], termination_condition=MaxMessageTermination(9) | condition)
    await interrupt("token", team, b)
    condition.set()
    other = CodingTeam(
        [Player("a"), Player("b")], termination_condition=MaxMessageTermination(9) | ExternalTermination()
    )
    await other.load_state(as_json(await team.save_state()))
    assert speakers(await play(other)) == ["b"]


async def test_a4_what_an_and_has_met_already_is_told_after_loading() -> None:
    b = Player("b", [listening])
    condition = TextMentionTermination("a 1") & MaxMessageTermination(4)
    team = CodingTeam([Player("a"), b, Player("c")], termination_condition=condition)
    await interrupt("token", team, b)
    other = CodingTeam.load_component(
        CodingTeam([Player("a"), Player("b"), Player("c")], termination_condition=condition).dump_component()
    )
    await other.load_state(as_json(await team.save_state()))
    result, expected = await play(other), await play(team)
    assert result.stop_reason == expected.stop_reason
    assert result.stop_reason is not None
    assert "'a 1' mentioned" in result.stop_reason


async def test_a4_own_conditions_survive_in_a_team_from_the_config() -> None:
    """`NoProgress` has heard the sentence once before the cancel; once more is too often."""
    b = Player("b", [listening])
    condition = MaxMessageTermination(50) | (NoProgress(repeats=2) | CodeSucceeded())
    a = Player("a", ["again", "again", "again", "again"])
    team = CodingTeam([a, b], termination_condition=condition)
    await interrupt("token", team, b)
    other = CodingTeam.load_component(team.dump_component())
    await other.load_state(as_json(await team.save_state()))
    result = await play(other)
    assert speakers(result) == ["b", "a"]
    assert result.stop_reason == "No progress: a said the same thing 2 times."


async def test_a4_state_of_autogens_team_loads_and_the_other_way_round() -> None:
    theirs = RoundRobinGroupChat([Player("a"), Player("b"), Player("c")], max_turns=2)
    await play(theirs, "one")
    ours = CodingTeam([Player("a"), b := Player("b"), c := Player("c")], max_turns=2)
    await ours.load_state(as_json(await theirs.save_state()))
    assert speakers(await play(ours, "two")) == ["c", "a"]
    assert c.context == ["user: one", "a: a 1", "b: b 1", "user: two"]
    assert b.context == ["user: one", "a: a 1"]

    back = RoundRobinGroupChat([Player("a"), b := Player("b"), Player("c")], max_turns=1)
    await back.load_state(as_json(await ours.save_state()))
    assert speakers(await play(back, "three")) == ["b"]
    assert b.context == ["user: one", "a: a 1", "user: two", "c: c 1", "a: a 1", "user: three"]


# --- A5: a nested team with nothing new to read ---


@pytest.mark.parametrize("kind", [CodingTeam, RoundRobinGroupChat])
async def test_a5_nested_team_with_nothing_new_to_read(kind: type[RoundRobinGroupChat]) -> None:
    x, y = Player("x"), Player("y")
    team = CodingTeam([kind([x, y], name="inner", max_turns=1)], max_turns=3)
    assert speakers(await play(team, "one")) == ["x", "y", "x"]
    assert x.context == ["user: one", "y: y 1"]


async def test_a5_nested_team_that_says_nothing_leaves_the_others_nothing_to_read() -> None:
    """The first nested team ends whenever it has read something, so that the second has read all there is."""
    mute = CodingTeam([Player("x")], name="mute", termination_condition=FunctionalTermination(lambda _: True))
    y = Player("y")
    team = CodingTeam([mute, CodingTeam([y], name="inner", max_turns=1)], max_turns=4)
    assert speakers(await play(team, "one")) == ["y", "y"]
    assert y.context == ["user: one"]


# --- A6: message types of one's own survive in a config ---

TYPES: Sequence[type[BaseAgentEvent | BaseChatMessage]] = (PlanMessage, Notice, StructuredMessage[Plan])


async def test_a6_custom_message_types_survive_a_config() -> None:
    planner, structured, b = PlanAgent("planner"), StructuredPlanAgent("structured"), Player("b")
    team = CodingTeam([planner, structured, b], max_turns=3, custom_message_types=TYPES)
    config = json.loads(team.dump_component().model_dump_json())
    assert config["config"]["custom_message_types"] == [
        "tests.teams.helpers.PlanMessage",
        "tests.teams.helpers.Notice",
        "autogen_agentchat.messages.StructuredMessage[tests.teams.helpers.Plan]",
    ]
    other = CodingTeam.load_component(config)
    assert other.dump_component() == team.dump_component()

    result = await play(other, [PlanMessage(plan=Plan(goal="the goal"), source="user")])

    kinds = [type(message) for message in result.messages]
    assert kinds == [PlanMessage, Notice, PlanMessage, StructuredMessage[Plan], TextMessage]
    assert _player(other, 2).context[:2] == ["user: the goal", "planner: planner 1"]
    third = CodingTeam.load_component(config)
    await third.load_state(as_json(await other.save_state()))
    assert len(speakers(await play(third, "again"))) == 3


async def test_a6_a_task_of_a_structured_type_that_no_agent_makes() -> None:
    team = CodingTeam([a := Player("a")], max_turns=1, custom_message_types=[StructuredMessage[Plan]])
    other = CodingTeam.load_component(team.dump_component())
    await play(other, [StructuredMessage[Plan](content=Plan(goal="the goal"), source="user")])
    assert "the goal" in _player(other, 0).context[0]
    assert a.context == []


def test_a6_local_types_are_refused_with_a_clear_error() -> None:
    class LocalMessage(PlanMessage):
        pass

    class LocalContent(BaseModel):
        text: str

    kinds: list[type[BaseChatMessage]] = [LocalMessage, StructuredMessage[LocalContent]]
    for kind in kinds:
        team = CodingTeam([Player("a")], custom_message_types=[kind])
        with pytest.raises(TypeError, match=r"Local\w+.*local class.*config"):
            team.dump_component()


def test_a6_type_inside_a_class_survives_or_is_refused_at_the_dump() -> None:
    team = CodingTeam([Player("a")], custom_message_types=[Outer.NestedMessage])
    try:
        dumped = team.dump_component()
    except TypeError as error:
        assert "NestedMessage" in str(error)  # noqa: PT017
    else:
        assert CodingTeam.load_component(dumped).dump_component() == dumped


@pytest.mark.parametrize(
    "name",
    [
        "",
        "PlanMessage",
        "tests.teams.helpers.Nothing",
        "tests.no_such_module.Message",
        "tests.teams.helpers.Plan",
        "tests.teams.helpers.deaf",
        "autogen_agentchat.messages.StructuredMessage[tests.teams.helpers.Nothing]",
        "autogen_agentchat.messages.StructuredMessage[tests.teams.helpers.deaf]",
        "autogen_agentchat.messages.StructuredMessage[a.B[c.D]]",
        "autogen_agentchat.messages.StructuredMessage[",
        "tests.teams.helpers.PlanMessage[tests.teams.helpers.Plan]",
    ],
)
def test_a6_a_name_that_leads_nowhere_is_told(name: str) -> None:
    config = CodingTeam([Player("a")]).dump_component().model_dump()
    config["config"]["custom_message_types"] = [name]
    with pytest.raises(ValueError, match="message type"):
        CodingTeam.load_component(config)
