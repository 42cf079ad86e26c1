"""Code with calls that are surely wrong does not run, and the model reads why. The code runs in a real sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat

from coderoom.agents import CodeActAgent
from coderoom.agents import metadata as keys
from coderoom.configs import ReplayModel, dump_team
from coderoom.runs import Journal, Run, prepare_run
from tests.agents.acting import MakeActor, Shop, add, outputs, remembered
from tests.agents.helpers import TASK, Approver, Client, facts_of, python, stream, text_of, turn


async def test_nothing_of_a_wrong_call_happens_and_the_model_may_write_again(actor: MakeActor) -> None:
    shop, approver = Shop(), Approver(approved=True)
    wrong, right = "await order('apple')\nawait order('pear', amount=2)", "(await order('pear', number=2))['number']"
    agent = actor(
        Client(python(wrong), python(right), "Ordered."),
        tools=shop.functions,
        check_types=True,
        approval_func=approver,
    )
    response = await turn(agent, TASK)
    assert shop.calls == ["order(pear, 2)"]
    assert len(approver.asked) == 1
    said = (await remembered(agent))[2]
    assert "Line 2" in said
    assert "    await order('pear', amount=2)\n                        ^^^^^^^^" in said
    assert "async def order(item: str, number: int = 1) -> dict[str, Any]" in said
    [found, output] = outputs(response.inner_messages or [])
    assert (found, output) == (said, "2\n")
    assert facts_of(response)["attempts"] == "2"


async def test_an_attempt_that_was_stopped_is_marked_and_is_no_refusal(actor: MakeActor) -> None:
    agent = actor(Client(python("add(1)"), python("add(1)"), "No."), tools=[add], check_types=True)
    items = await stream(agent, TASK)
    facts = facts_of(items[-1])  # type: ignore[arg-type]
    assert (facts["outcome"], facts["ran"], facts["checked"]) == ("error", "false", "failed")
    assert facts["stop_reason"] == "same_failure"
    assert "was not run" in text_of(items[-1])  # type: ignore[arg-type]
    assert keys.CHECKED == "coderoom.checked"


async def test_what_the_session_has_is_known(actor: MakeActor) -> None:
    first = "def twice(x):\n    return 2 * x\nfrom math import sqrt"
    agent = actor(
        Client(
            python("def half(x):\n    return x / 2\n1 / 0"),
            python(first),
            python("print(twice(sqrt(9)), half(n))"),
            python("print('no')\ntwice()"),
            python("print('no')\ntwicee(1)"),
            python("twice = str"),
            python("print(twice())"),
            "Done.",
        ),
        check_types=True,
        initial_variables={"n": 4},
    )
    _, _, third, fourth, fifth, _, last = outputs(await stream(agent, TASK))
    assert third == "6.0 2.0\n"
    assert "required parameter `x` of function `twice`" in fourth
    assert "Function `twicee` is not defined" in fifth
    assert last == "\n"  # The name is no longer that of the function, whose call would be wrong.


async def test_an_own_async_function_needs_its_await_only_where_a_coroutine_is_wrong(actor: MakeActor) -> None:
    defined = "async def rows(n=1):\n    return [*range(n)]\nprint('begun')\n"
    wrong = ["print(rows()[0])", "for each in rows(2):\n    pass", "print([each for each in rows()])"]
    right = [
        "work = [rows(3)]\nprint(await work[0])",
        "print([await each for each in (rows(3),)])",
        "import asyncio\nprint((await asyncio.gather(rows(3)))[0])",
    ]
    replies = [python(defined + each) for each in wrong + right]
    found = outputs(await stream(actor(Client(*replies, "Done."), check_types=True, max_steps=10), TASK))
    assert ["write `await rows(...)`" in each and "begun" not in each for each in found] == [True] * 3 + [False] * 3
    assert found[3:] == ["begun\n[0, 1, 2]\n", "begun\n[[0, 1, 2]]\n", "begun\n[0, 1, 2]\n"]


async def test_branches_are_checked_too(actor: MakeActor) -> None:
    replies = [python("n = 1\n1 / 0"), python("n = 2\nadd(n)"), python("print(add(n, 41))"), "It is 42."]
    items = await stream(actor(Client(*replies), tools=[add], check_types=True, branches=2), TASK)
    assert outputs(items)[-1] == "42\n"


@pytest.mark.slow
async def test_a_resumed_run_does_not_check_again(tmp_path: Path) -> None:
    replies = [python("def f(x):\n    return x"), python("f()"), python("print(f(6 * 7))"), "It is 42."]
    agent = CodeActAgent("actor", ReplayModel(replies), check_types=True)
    dump_team(RoundRobinGroupChat([agent], max_turns=1), tmp_path / "team.yaml")
    journal = Journal(tmp_path / "journal")

    def stop(message: Any) -> None:
        if "required parameter `x`" in message.to_text():
            raise RuntimeError("stop here")

    stopped = await Run.begin(prepare_run(str(tmp_path / "team.yaml"), TASK), journal).go(stop)
    assert "stop here" in str(stopped.error)
    [run] = journal.runs()
    resumed = await Run.resume("last", journal).go(lambda message: None)
    assert "It is 42." in resumed.messages[-1].to_text()
    assert journal.count(run.id, "types") == 3


async def test_code_that_is_too_much_to_read_runs(actor: MakeActor) -> None:
    nested = "x = 1" + " + 1" * 5_000
    large = "y = '" + "y" * 60_000 + "'"
    client = Client(python(f"{nested}\nadd(x)"), python(f"{large}\nadd(y)"), python("if 1\n  add(1)"), "No.")
    agent = actor(client, tools=[add], check_types=True)
    for output in outputs(await stream(agent, TASK)):
        assert "Nothing was run" not in output
