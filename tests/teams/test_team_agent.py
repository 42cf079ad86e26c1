"""A team in the place of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import ChatAgent, Response, Team
from autogen_agentchat.conditions import HandoffTermination, MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import (
    BaseChatMessage,
    CodeExecutionEvent,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    StructuredMessage,
    TextMessage,
)
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, Swarm
from autogen_core import CancellationToken, ComponentLoader
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import ValidationError

from coderoom.agents import CodeExecutorAgent
from coderoom.errors import AgentError
from coderoom.executors import LocalCodeExecutor
from coderoom.teams import CodingTeam, TeamAgent
from tests.teams.helpers import (
    How,
    Plan,
    PlanAgent,
    Player,
    StructuredPlanAgent,
    interrupt,
    play,
    speakers,
    step_for,
    until,
)

Form = Callable[[Team], ChatAgent | Team]

FORMS: dict[str, Form] = {"team": lambda team: team, "agent": TeamAgent}
PRINT = "```python\nprint(6 * 7)\n```"


def inner_team(*players: Player, kind: type[RoundRobinGroupChat] = CodingTeam, turns: int = 2) -> RoundRobinGroupChat:
    return kind(list(players), name="inner", max_turns=turns)


# --- In a CodingTeam: as the team itself ---


@pytest.mark.parametrize("kind", [CodingTeam, RoundRobinGroupChat])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_coding_team_gives_all_its_messages_to_the_others(form: Form, kind: type[RoundRobinGroupChat]) -> None:
    a, x, y = Player("a"), Player("x"), Player("y")
    team = CodingTeam([a, form(inner_team(x, y, kind=kind))], max_turns=3)
    result = await play(team, "one")
    assert speakers(result) == ["a", "x", "y", "a"]
    assert a.context == ["user: one", "x: x 1", "y: y 1"]
    assert y.context == ["user: one", "a: a 1", "x: x 1"]
    assert speakers(await play(team, "two")) == ["x", "y", "a", "x", "y"]


@pytest.mark.parametrize("how", ["token", "error"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_turn_of_it_happens_as_a_whole_or_not_at_all(form: Form, how: How) -> None:
    a, x, y = Player("a"), Player("x"), Player("y", [step_for(how)])
    team = CodingTeam([a, form(inner_team(x, y))], max_turns=2)
    await interrupt(how, team, y)
    assert speakers(await play(team)) == ["x", "y"]
    assert y.context == ["user: one", "a: a 1", "x: x 2"]


async def test_a_coding_team_dumps_it_as_it_is() -> None:
    team = CodingTeam([Player("a"), TeamAgent(inner_team(Player("x")), name="b", description="Inside.")], max_turns=2)
    again = CodingTeam.load_component(team.dump_component())
    assert again.dump_component() == team.dump_component()
    agent = again.participants[1]
    assert isinstance(agent, TeamAgent)
    assert (agent.name, agent.description, agent.team.name) == ("b", "Inside.", "inner")
    assert speakers(await play(again, "one")) == ["a", "x", "x"]


async def test_an_error_in_it_keeps_its_type() -> None:
    team = CodingTeam([TeamAgent(inner_team(Player("x", [ValueError("no luck")])))], max_turns=1)
    with pytest.raises(AgentError, match="no luck") as caught:
        await play(team, "one")
    assert isinstance(caught.value.__cause__, AgentError)
    assert isinstance(caught.value.__cause__.__cause__, ValueError)


async def test_a_coding_team_starts_stops_and_pauses_what_is_in_it() -> None:
    executor, gate = LocalCodeExecutor(), asyncio.Event()

    async def waits(token: CancellationToken) -> str:
        await gate.wait()
        return "x speaks"

    x, y = Player("x", [waits]), Player("y")
    team = CodingTeam([TeamAgent(CodingTeam([x, y, CodeExecutorAgent("runs", executor)], max_turns=2))], max_turns=1)
    async with team:
        assert executor.work_dir is not None
        running = asyncio.create_task(team.run(task="one"))
        await until(lambda: x.turns == 1)
        await team.pause()
        gate.set()
        await asyncio.sleep(0.05)
        assert y.turns == 0
        await team.resume()
        assert speakers(await running) == ["x", "y"]
    assert executor.work_dir is None


# --- Elsewhere: an agent whose turn is a run ---


async def test_another_team_gives_its_last_message_to_the_others() -> None:
    a, x, y = Player("a"), Player("x"), Player("y")
    team = RoundRobinGroupChat([a, TeamAgent(inner_team(x, y))], max_turns=3)
    items = [item async for item in team.run_stream(task="one")]
    said = [(item.source, item.to_text()) for item in items if isinstance(item, TextMessage)]
    assert said == [("user", "one"), ("a", "a 1"), ("x", "x 1"), ("inner", "y 1"), ("a", "a 2")]
    assert a.context == ["user: one", "inner: y 1"]


async def test_it_stands_where_only_agents_can() -> None:
    a, inner, b = Player("a"), TeamAgent(inner_team(Player("x"), Player("y"))), Player("b")
    builder = DiGraphBuilder()
    builder.add_node(a).add_node(inner).add_node(b)
    builder.add_edge(a, inner).add_edge(inner, b)
    team = GraphFlow([a, inner, b], graph=builder.build())
    assert speakers(await play(team, "one"))[:4] == ["a", "x", "inner", "b"]
    assert b.context[-1] == "inner: y 1"


async def test_its_response_holds_what_led_to_it() -> None:
    async with LocalCodeExecutor() as executor:
        runs = CodeExecutorAgent("runs", executor, model_client=ReplayChatCompletionClient([PRINT, "It is 42."]))
        agent = TeamAgent(CodingTeam([runs, Player("x")], max_turns=2))
        items = [item async for item in agent.on_messages_stream([said("Six times seven?")], CancellationToken())]
    response = items[-1]
    assert isinstance(response, Response)
    assert response.chat_message.to_text() == "x 1"
    assert response.chat_message not in items
    assert response.inner_messages == items[:-1]
    assert [type(item) for item in items].count(CodeExecutionEvent) == 1


async def test_chunks_come_through() -> None:
    assistant = AssistantAgent("a", ReplayChatCompletionClient(["three small words"]), model_client_stream=True)
    agent = TeamAgent(CodingTeam([assistant], max_turns=1))
    items = [item async for item in agent.on_messages_stream([said("one")], CancellationToken())]
    assert "".join(item.content for item in items if isinstance(item, ModelClientStreamingChunkEvent)) == (
        "three small words"
    )
    assert isinstance(items[-1], Response)
    assert not items[-1].inner_messages


async def test_what_is_said_comes_in_order() -> None:
    speakers = [
        AssistantAgent(name, ReplayChatCompletionClient([f"{name} says it"]), model_client_stream=True)
        for name in ("x", "y")
    ]
    agent = TeamAgent(CodingTeam(speakers, max_turns=2))
    told: list[str] = []
    async for item in agent.on_messages_stream([said("one")], CancellationToken()):
        if isinstance(item, Response):
            told.append(f"response of {item.chat_message.source}")
        elif isinstance(item, ModelClientStreamingChunkEvent):
            told.append(f"chunk of {item.source}")
        else:
            told.append(f"message of {item.source}")
    assert list(dict.fromkeys(told)) == ["chunk of x", "message of x", "chunk of y", "response of CodingTeam"]


async def test_what_was_said_before_an_error_is_told() -> None:
    agent = TeamAgent(CodingTeam([Player("x"), Player("y", [ValueError("no luck")])], max_turns=2))
    told: list[Any] = []

    async def take_a_turn() -> None:
        async for item in agent.on_messages_stream([said("one")], CancellationToken()):
            told.append(item)

    with pytest.raises(AgentError, match="no luck"):
        await take_a_turn()
    assert [item.to_text() for item in told] == ["x 1"]


class Handing(Player):
    """Hands over to whom its first step names, if that is still to do."""

    def __init__(self, name: str, to: str | None = None) -> None:
        super().__init__(name)
        self._to = to

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (HandoffMessage, TextMessage)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        response = await super().on_messages(messages, cancellation_token)
        if self._to is None:
            return response
        message = HandoffMessage(content=f"to {self._to}", target=self._to, source=self.name)
        self._to = None
        return Response(chat_message=message)


@pytest.mark.parametrize("kind", [CodingTeam, Swarm])
async def test_in_a_swarm_it_is_handed_over_to_as_any_agent(kind: type[CodingTeam | Swarm]) -> None:
    x, y = Handing("x", to="y"), Handing("y")
    a, inner = Handing("a", to="inner"), TeamAgent(kind([x, y], name="inner", max_turns=2))
    result = await play(Swarm([a, inner], max_turns=3), "one")
    # What it hands over inside concerns nobody else: it has the next turn, too.
    sources = [message.source for message in result.messages]
    assert (sources[:4], sources.count("inner"), sources[-1]) == (["user", "a", "x", "inner"], 2, "inner")
    assert x.context[:2] == ["user: one", "a: to inner"]
    assert y.context[:3] == ["user: one", "a: to inner", "x: to y"]


async def test_a_swarm_goes_on_where_its_team_hands_over() -> None:
    """The inner team ends with a handoff to somebody outside of it."""
    b = Handing("b")
    ends = CodingTeam([Handing("x", to="b")], name="inner", termination_condition=HandoffTermination("b"))
    team = Swarm([Handing("a", to="inner"), TeamAgent(ends), b], max_turns=3)
    result = await play(team, "one")
    assert [message.source for message in result.messages] == ["user", "a", "inner", "b"]
    assert b.context[-1] == "inner: to b"


async def test_a_subclass_takes_its_turns_as_it_wants() -> None:
    class Loud(TeamAgent):
        async def on_messages_stream(self, messages: Any, cancellation_token: Any) -> Any:
            yield Response(chat_message=TextMessage(content="Loud.", source=self.name))

    result = await play(CodingTeam([Loud(inner_team(Player("x")))], max_turns=1), "one")
    assert [message.to_text() for message in result.messages] == ["one", "Loud."]


async def test_a_run_in_which_nothing_was_said() -> None:
    team = RoundRobinGroupChat([Player("x")], termination_condition=MaxMessageTermination(1))
    response = await TeamAgent(team).on_messages([said("one")], CancellationToken())
    assert response.chat_message.source == "RoundRobinGroupChat"
    assert "said nothing" in response.chat_message.to_text()
    assert "Maximum number of messages" in response.chat_message.to_text()


async def test_its_token_ends_the_run() -> None:
    token, x = CancellationToken(), Player("x", [step_for("token")])
    running = asyncio.create_task(TeamAgent(inner_team(x)).on_messages([said("one")], token))
    await until(lambda: x.turns == 1)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5):
            await running


@pytest.mark.parametrize("kind", [CodingTeam, RoundRobinGroupChat])
async def test_closing_it_stops_what_its_agents_have_started(kind: type[RoundRobinGroupChat]) -> None:
    executor = LocalCodeExecutor()
    agent = TeamAgent(kind([CodeExecutorAgent("runs", executor)], max_turns=1))
    result = await play(RoundRobinGroupChat([agent], max_turns=1), PRINT)
    assert "42" in result.messages[-1].to_text()
    folder = executor.work_dir
    assert folder is not None
    await agent.close()
    assert not folder.exists()


async def test_its_state_is_the_teams() -> None:
    x = Player("x")
    agent = TeamAgent(inner_team(x, turns=1))
    await agent.on_messages([said("one")], CancellationToken())
    other = Player("x")
    loaded = TeamAgent(inner_team(other, turns=1))
    await loaded.load_state(await agent.save_state())
    assert other.context == ["user: one"]
    await loaded.on_reset(CancellationToken())
    assert other.context == []
    await loaded.on_pause(CancellationToken())
    await loaded.on_resume(CancellationToken())


def test_it_tells_the_message_types_of_its_agents() -> None:
    agent = TeamAgent(
        CodingTeam([Player("a"), TeamAgent(CodingTeam([PlanAgent("b"), StructuredPlanAgent("c")]), name="d")])
    )
    kinds = agent.produced_message_types
    assert len(kinds) == len(set(kinds)) == 3
    assert StructuredMessage[Plan] in kinds


# --- Configs ---


@pytest.mark.parametrize(
    ("name", "expected"), [("inner", "inner"), ("my team", "my_team"), ("2nd-team", "_2nd_team"), ("équipe", "équipe")]
)
def test_a_teams_name_becomes_an_agents(name: str, expected: str) -> None:
    assert TeamAgent(CodingTeam([Player("a")], name=name)).name == expected


async def test_a_config_comes_back_as_it_was() -> None:
    team = CodingTeam([Player("a")], name="inner", description="Inside.", termination_condition=stops(), max_turns=3)
    for agent in (TeamAgent(team), TeamAgent(team, name="other", description="Another.")):
        dumped = agent.dump_component()
        assert dumped.provider == "coderoom.teams.TeamAgent"
        again = ChatAgent.load_component(dumped)
        assert again.dump_component() == dumped
        assert (again.name, again.description) == (agent.name, agent.description)


def test_a_config_may_leave_the_name_to_the_team() -> None:
    team = CodingTeam([Player("a")], name="inner", description="Inside.").dump_component()
    config = {"provider": "coderoom.teams.TeamAgent", "config": {"team": team.model_dump()}}
    agent = ComponentLoader.load_component(config, TeamAgent)
    assert (agent.name, agent.description) == ("inner", "Inside.")


def test_what_is_no_team_is_refused() -> None:
    wrong: Any = Player("a")
    with pytest.raises(TypeError, match="must be a team, not 'Player'"):
        TeamAgent(wrong)
    config = {"provider": "coderoom.teams.TeamAgent", "config": {"team": wrong.dump_component().model_dump()}}
    with pytest.raises(TypeError, match="must be a team"):
        ComponentLoader.load_component(config, TeamAgent)
    with pytest.raises(ValueError, match="identifier"):
        TeamAgent(CodingTeam([Player("a")]), name="no name")
    with pytest.raises(ValidationError, match="extra"):
        ComponentLoader.load_component({**config, "config": {**config["config"], "turns": 1}}, TeamAgent)  # type: ignore[dict-item]


def stops() -> TextMentionTermination:
    return TextMentionTermination("stop")


def said(text: str) -> TextMessage:
    return TextMessage(content=text, source="user")
