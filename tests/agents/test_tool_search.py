"""What a `CodeActAgent`'s model is shown of many functions, how its code finds the others, and what stays known."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

from coderoom.agents import CodeActAgent
from coderoom.configs import ReplayModel, dump_team
from coderoom.errors import RequestError
from coderoom.models.budgets import Budget
from coderoom.runs import Journal, Run, prepare_run
from coderoom.teams import CodingTeam
from tests.agents.acting import MakeActor, Shop, add, outputs
from tests.agents.helpers import TASK, Client, python, stream, turn
from tests.support.commands import ROOT

PRICE = "def price(item: str) -> float:"
ORDER = "async def order(item: str, number: int = 1)"
KNOWN = "found before"


def many(count: int) -> list[Callable[..., Any]]:
    """Functions with a line of documentation each."""
    names = [f"measure_{number}" for number in range(count)]
    scope: dict[str, Any] = {}
    for name in names:
        exec(f"def {name}(place: str) -> float:\n    'Measure what the sensor at a place says.'", scope)
    return [scope[name] for name in names]


def instructions(client: Client) -> list[str]:
    """What the model was told before the conversation, request by request."""
    return [call.system[0] for call in client.calls]


# --- What is shown ---


@pytest.mark.parametrize(
    ("count", "shown", "hidden"),
    [
        (0, [PRICE, ORDER], ["search_tools", "describe_tool"]),
        (10, ["- price: What an item costs, in euros.", "def describe_tool("], [PRICE, "cannot be taken back"]),
        (40, ["43 functions", "def search_tools(query: str) -> str:"], [PRICE, "measure_1", "- price"]),
    ],
)
async def test_auto_shows_as_much_as_fits(actor: MakeActor, count: int, shown: list[str], hidden: list[str]) -> None:
    client = Client(python(f"print(price('apple'), {'measure_1' if count else 'order'}.__name__)"), "Done.")
    agent = actor(client, tools=[*Shop().functions, *many(count)], max_tool_tokens=280)
    [output] = outputs(await stream(agent, TASK))
    assert output.startswith("0.5 ")
    told = instructions(client)[0]
    assert [text for text in shown if text not in told] == []
    assert [text for text in hidden if text in told] == []


async def test_what_is_asked_for_is_shown_whatever_it_takes(actor: MakeActor) -> None:
    for mode, part in (("all", "def measure_39("), ("names", "- measure_39: Measure"), ("search", "40 functions")):
        client = Client("Hello.")
        await turn(actor(client, tools=many(40), tools_in_prompt=mode, max_tool_tokens=200), TASK)
        assert part in instructions(client)[0]


def test_wrong_settings_say_what_is_right() -> None:
    with pytest.raises(ValueError, match="tools_in_prompt must be one of 'auto', 'all', 'names', 'search', not 'none'"):
        CodeActAgent("actor", Client(), tools_in_prompt="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_tool_tokens must be 200 or more, not 10"):
        CodeActAgent("actor", Client(), max_tool_tokens=10)


async def test_the_name_of_the_search_is_refused_only_where_there_is_one(actor: MakeActor) -> None:
    def search_tools(query: str) -> str:
        """A search of the user's own."""
        return f"my {query}"

    client = Client(python("print(search_tools('x'))"), "Done.")
    assert outputs(await stream(actor(client, tools=[search_tools]), TASK)) == ["my x\n"]
    with pytest.raises(RequestError, match=r"A tool is named 'search_tools'.*Rename it, or set tools_in_prompt='all'"):
        await turn(actor(client, tools=[search_tools], tools_in_prompt="search"), TASK)


# --- The search ---


async def found_for(actor: MakeActor, code: str, *tools: Callable[..., Any]) -> str:
    client = Client(python(code), "Done.")
    [output] = outputs(await stream(actor(client, tools=[*tools, *many(30)], tools_in_prompt="search"), TASK))
    return output


async def test_code_finds_a_function_and_looks_at_it(actor: MakeActor) -> None:
    code = (
        "print(search_tools('what does it cost'))\n"
        "print('---', describe_tool('order'), sep='\\n')\n"
        "try:\n    describe_tool('orders')\nexcept ValueError as error:\n    print(error)"
    )
    searched, _, described = (await found_for(actor, code, *Shop().functions)).partition("---\n")
    assert searched.startswith(f'{PRICE}\n    """What an item costs, in euros."""')
    assert described.startswith(ORDER)
    assert "The order cannot be taken back." in described
    assert "There is no function 'orders'. Did you mean order?" in described


async def test_a_search_has_a_bound(actor: MakeActor) -> None:
    def endless(item: str) -> None: ...

    endless.__doc__ = "Count apples.\n" + "And more of it.\n" * 3_000
    code = "print(len(search_tools('sensor')), len(search_tools('apples')), 'rest' in search_tools('apples'))"
    sensors, apples, cut = (await found_for(actor, code, endless)).split()
    assert int(sensors) < 3_000
    assert (int(apples) < 200, cut) == (True, "True")


# --- What was found stays known ---


async def test_what_was_found_is_shown_once_the_conversation_no_longer_has_it(actor: MakeActor) -> None:
    shop = Shop()
    replies = [
        python("found = search_tools('price cost')"),
        python("print(describe_tool('order'))"),
        "So.",
        "Hm.",
        "Well.",
    ]
    client = Client(*replies)
    context = BufferedChatCompletionContext(4)
    agent = actor(client, tools=[*shop.functions, *many(30)], tools_in_prompt="search", model_context=context)
    await turn(agent, TASK)
    await turn(agent, "And?")
    await turn(agent, "And now?")
    first, unprinted, printed, _, later = instructions(client)
    assert KNOWN not in first
    assert PRICE in unprinted  # The model has not seen it.
    assert ORDER not in printed  # It is in the output just before.
    assert later.index(ORDER) < later.index(PRICE)  # The newest first.
    assert later.count(PRICE) == 1


async def test_the_newest_are_kept_within_the_budget(actor: MakeActor) -> None:
    code = "for number in range(30):\n    describe_tool(f'measure_{number}')"
    client = Client(python(code), "Done.")
    await turn(actor(client, tools=many(30), tools_in_prompt="search", max_tool_tokens=200), TASK)
    told = instructions(client)[1]
    assert "def measure_29(" in told
    assert "def measure_0(" not in told
    assert len(told) - len(instructions(client)[0]) < 3 * 200 + 100


async def test_what_was_found_is_saved_and_a_reset_forgets_it(actor: MakeActor) -> None:
    arguments: dict[str, Any] = {"tools": [*Shop().functions, *many(30)], "tools_in_prompt": "search"}
    first = actor(Client(python("found = search_tools('price')"), "Done."), **arguments)
    await turn(first, TASK)
    state = json.loads(json.dumps(await first.save_state()))
    await first.close()
    client = Client("Again.", "And again.")
    agent = actor(client, **arguments)
    await agent.load_state(state)
    await turn(agent, TASK)
    await agent.on_reset(CancellationToken())
    await turn(agent, TASK)
    again, reset = instructions(client)
    assert PRICE in again
    assert PRICE not in reset


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Functions of a team file")
async def test_a_resumed_run_sends_the_same_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def price(item: str) -> float:
        """What an item costs."""
        return 0.5

    asked: list[str] = []
    create = ReplayModel.create

    async def note(self: ReplayModel, messages: Any, **arguments: Any) -> Any:
        asked.append(messages[0].content)
        return await create(self, messages, **arguments)

    monkeypatch.setattr(ReplayModel, "create", note)
    replies = [python("found = search_tools('cost')"), python("print(price('apple'))"), "It is 0.5."]
    coder = CodeActAgent("coder", ReplayModel(replies), tools=[price], tools_in_prompt="search")
    dump_team(RoundRobinGroupChat([coder], max_turns=1), tmp_path / "team.yaml")
    whole = await Run.begin(prepare_run(str(tmp_path / "team.yaml"), "Go."), None).go(lambda message: None)
    assert whole.outcome == "ok"
    expected = list(asked)
    assert "def price(" in expected[-1]
    for limit in ({"model_calls": 1}, {"cells": 1}):
        asked.clear()
        journal = Journal(tmp_path / f"journal-{limit}")
        begun = Run.begin(prepare_run(str(tmp_path / "team.yaml"), "Go."), journal, budget=Budget(**limit))
        assert not (await begun.go(lambda message: None)).succeeded
        resumed = await Run.resume("last", journal, budget=dict.fromkeys(limit, 9)).go(lambda message: None)
        assert (resumed.outcome, resumed.answer) == ("ok", "It is 0.5."), limit
        assert asked == expected


async def test_a_branch_that_is_kept_has_found_what_it_has_found(actor: MakeActor) -> None:
    client = Client(
        python("1 / 0"), python("found = search_tools('price')"), python("describe_tool('order')\n1 / 0"), "Done."
    )
    tools = [*Shop().functions, *many(30)]
    await turn(actor(client, tools=tools, tools_in_prompt="search", branches=2), TASK)
    told = instructions(client)[-1]
    assert PRICE in told
    assert ORDER not in told


async def test_agents_with_one_session_find_the_functions_of_all() -> None:
    code = "print(search_tools('price'), search_tools('sum of numbers'))"
    first = CodeActAgent("first", Client("Nothing."), tools=[add, *many(30)], tools_in_prompt="search")
    second = CodeActAgent("second", Client(python(code), "So."), tools=[Shop().price], tools_in_prompt="search")
    team = CodingTeam([first, second], max_turns=2, shared_session=True)
    try:
        [output] = outputs((await team.run(task=TASK)).messages)
    finally:
        await team.close()
    assert PRICE in output
    assert "def add(a: int, b: int) -> int:" in output


# --- An MCP server ---


@pytest.mark.slow
async def test_500_tools_of_an_mcp_server_cost_no_more_than_20(actor: MakeActor) -> None:
    """A real server over stdio."""
    told: dict[int, str] = {}
    for count in (20, 500):
        params = StdioServerParams(
            command=sys.executable,
            args=["-m", "tests.support.many_tools", str(count)],
            cwd=ROOT,
            read_timeout_seconds=60,
        )
        search = "print(search_tools('read sensor in attic'))\n" if count > 20 else ""
        code = f"{search}print(read_sensor_19(place='attic'))"
        client = Client(python(code), "Done.")
        agent = actor(client, workbench=McpWorkbench(params))
        [output] = outputs(await stream(agent, TASK))
        await agent.close()
        assert output.endswith("19 at attic\n")
        told[count] = instructions(client)[0]
    assert "def read_sensor_19(place: str, unit: str = 'celsius'):" in told[20]
    assert "- sensors: 500 (names with" in told[500]
    assert len(told[500]) < len(told[20])
