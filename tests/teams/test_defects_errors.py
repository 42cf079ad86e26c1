"""AutoGen's defects A7 and A9: errors keep their type, and what AutoGen's types allow works."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import (
    FunctionalTermination,
    MaxMessageTermination,
)
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    TextMessage,
)
from autogen_core import CancellationToken, ComponentModel

from coderoom.errors import AgentError
from coderoom.teams import CodingTeam
from tests.teams.helpers import (
    How,
    Notice,
    Plan,
    PlanAgent,
    PlanMessage,
    Player,
    collect,
    ends,
    failing,
    held_by,
    interrupt,
    play,
    run_and_pause,
    speakers,
    step_for,
)

# --- A7: errors keep their type ---


class RefusedError(Exception):
    """An error with data of its own."""

    def __init__(self, code: int) -> None:
        super().__init__(f"refused with {code}")
        self.code = code


async def test_a7_error_keeps_its_type() -> None:
    cause = RefusedError(7)
    team = CodingTeam([Player("a"), Player("b", [cause])], max_turns=2)
    with pytest.raises(AgentError) as caught:
        await play(team, "one")
    assert caught.value.__cause__ is cause
    assert caught.value.agent == "b"
    assert isinstance(caught.value, RuntimeError), "what AutoGen's teams raise"
    assert str(caught.value) == "Agent 'b' failed: RefusedError: refused with 7"


async def test_a7_what_was_said_before_the_error_is_delivered_first() -> None:
    team = CodingTeam([Player("a"), Player("b", [RefusedError(7)])])
    seen: list[Any] = []
    with pytest.raises(AgentError):
        await collect(team.run_stream(task="one"), seen)
    assert [item.to_text() for item in seen] == ["one", "a 1"]


async def test_a7_error_in_a_nested_team_keeps_its_type() -> None:
    cause = RefusedError(7)
    team = CodingTeam([CodingTeam([Player("x", [cause])], name="inner")])
    with pytest.raises(AgentError) as caught:
        await play(team, "one")
    inner = caught.value.__cause__
    assert isinstance(inner, AgentError)
    assert (caught.value.agent, inner.agent, inner.__cause__) == ("inner", "x", cause)
    assert "Traceback" not in str(caught.value)


async def test_a7_two_errors_are_each_told_as_they_are() -> None:
    causes = [RefusedError(1), ValueError("other")]
    team = CodingTeam([Player("a", causes)])
    for cause in causes:
        with pytest.raises(AgentError) as caught:
            await play(team, "one")
        assert caught.value.__cause__ is cause


@pytest.mark.parametrize("at", [1, 2], ids=["at the start", "after a turn"])
async def test_a7_error_of_a_condition_keeps_its_type(at: int) -> None:
    team = CodingTeam([Player("a")], termination_condition=FunctionalTermination(failing(at)), max_turns=2)
    with pytest.raises(Exception, match="bad condition") as caught:
        await play(team, "one")
    assert isinstance(caught.value, ValueError) or isinstance(caught.value.__cause__, ValueError)
    assert "Traceback" not in str(caught.value)


async def test_a7_message_of_a_type_that_the_team_does_not_know() -> None:
    team = CodingTeam([PlanAgent("planner")])
    with pytest.raises(AgentError, match=r"PlanMessage|Notice") as caught:
        await play(team, "one")
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a7_message_of_a_nested_team_that_the_outer_one_does_not_know() -> None:
    inner = CodingTeam([PlanAgent("planner")], name="inner", max_turns=1, custom_message_types=[PlanMessage, Notice])
    team = CodingTeam([inner])
    for _ in range(2):
        with pytest.raises(AgentError, match=r"PlanMessage|Notice") as caught:
            await play(team, "one")
        assert isinstance(caught.value.__cause__, ValueError)


class Tidy(Player):
    """Does something, and tidies up."""

    tidied = False

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | Response, None]:
        try:
            yield Notice(about="unknown to the team", source=self.name)
            yield await self.on_messages(messages, cancellation_token)
        finally:
            self.tidied = True


async def test_a7_agents_stream_is_closed_when_its_turn_fails() -> None:
    a = Tidy("a")
    with pytest.raises(AgentError, match="Notice"):
        await play(CodingTeam([a]), "one")
    assert a.tidied


@pytest.mark.parametrize("how", ["error", "token", "deaf"])
async def test_a7_what_is_raised_is_not_logged_with_its_traceback_as_well(
    how: How, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that has set up no logging would show it on its standard error, though it handled the error."""
    caplog.set_level(logging.WARNING, logger="autogen_core")
    a = Player("a", [step_for(how)])
    await interrupt(how, CodingTeam([a, Player("b")]), a)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a7_nor_is_an_error_of_the_condition_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="autogen_core")
    team = CodingTeam([Player("a")], termination_condition=FunctionalTermination(failing(2)))
    with pytest.raises(Exception, match="bad condition"):
        await play(team, "one")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a7_nor_is_a_cancel_between_two_turns_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="autogen_core")
    gate = asyncio.Event()
    a = Player("a", [held_by(gate, "a speaks")])
    team = CodingTeam([a, Player("b")])
    running = await run_and_pause(team, a, gate)
    running.cancel()
    assert await ends(running)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a7_wrong_tasks_are_told_as_autogen_tells_them() -> None:
    team = CodingTeam([Player("a")], max_turns=1)
    wrong: list[Any] = [[], (), 5, [5], PlanMessage(plan=Plan(goal="x"), source="user")]
    for task in wrong:
        with pytest.raises(ValueError, match=r"[Tt]ask|type"):
            await play(team, task)
    assert speakers(await play(team, "one")) == ["a"]


# --- A9: what AutoGen's types allow and its code refuses ---


def without_component_types(model: ComponentModel) -> dict[str, Any]:
    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key != "component_type"}
        return [strip(item) for item in value] if isinstance(value, list) else value

    config = strip(model.model_dump())
    assert isinstance(config, dict)
    return config


async def test_a9_nested_config_without_component_types_loads() -> None:
    inner = CodingTeam([Player("x")], name="inner", max_turns=1)
    team = CodingTeam([Player("a"), inner], termination_condition=MaxMessageTermination(3))
    config = without_component_types(team.dump_component())
    assert "component_type" not in json.dumps(config)
    other = CodingTeam.load_component(config)
    assert other.dump_component() == team.dump_component()
    assert speakers(await play(other, "one")) == ["a", "x"]


def test_a9_participant_that_is_neither_an_agent_nor_a_team_is_named() -> None:
    config = CodingTeam([Player("a")]).dump_component().model_dump()
    config["config"]["participants"] = [MaxMessageTermination(3).dump_component().model_dump()]
    with pytest.raises(TypeError, match=r"MaxMessageTermination.*neither an agent nor a team"):
        CodingTeam.load_component(config)


async def test_a9_task_may_be_a_tuple() -> None:
    team = CodingTeam([a := Player("a")], max_turns=1)
    await play(team, (TextMessage(content="one", source="user"), TextMessage(content="two", source="user")))
    assert a.context == ["user: one", "user: two"]
