"""Agents of a `CodingTeam` whose code runs in one session: what they see of each other, and how it comes back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from autogen_agentchat.agents import ApprovalResponse
from autogen_agentchat.agents import CodeExecutorAgent as AutoGensAgent
from autogen_agentchat.base import ChatAgent, Team
from autogen_core import CancellationToken

from coderoom.agents import CodeActAgent, CodeExecutorAgent, Variation
from coderoom.approval import AlwaysApprove, CallRule, NeverApprove
from coderoom.configs import ReplayModel, dump_team, load_team
from coderoom.errors import AgentError
from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from coderoom.runs import Journal, Run
from coderoom.teams import CodingTeam, TeamAgent
from tests.agents.acting import SLEEPS, Shop, outputs, remembered, there_is
from tests.agents.helpers import TASK, Client, decide, python
from tests.support.commands import ROOT, coderoom


class MakeTeam(Protocol):
    """Makes a team with a shared session; the test's end closes it."""

    def __call__(self, *agents: Any, **arguments: Any) -> CodingTeam: ...


@pytest.fixture
async def share() -> AsyncIterator[MakeTeam]:
    made: list[CodingTeam] = []

    def make(*agents: Any, **arguments: Any) -> CodingTeam:
        made.append(CodingTeam(agents, max_turns=len(agents), shared_session=True, **arguments))
        return made[-1]

    yield make
    for team in made:
        await team.close()


def executor(**settings: Any) -> SandboxCodeExecutor:
    return SandboxCodeExecutor(timeout=30, **settings)


def actor(name: str, *replies: str, **arguments: Any) -> CodeActAgent:
    return CodeActAgent(name, Client(*replies), executor(), **arguments)


def coder(name: str, *replies: str, **arguments: Any) -> CodeExecutorAgent:
    return CodeExecutorAgent(name, executor(), model_client=Client(*replies), reflect=False, **arguments)


def autogens(name: str, code_executor: Any) -> AutoGensAgent:
    return AutoGensAgent(name, code_executor, approval_func=lambda request: ApprovalResponse(approved=True, reason=""))


async def test_all_see_the_same_variables_and_functions(share: MakeTeam) -> None:
    shop = Shop()
    team = share(
        coder("coder", python("x = price('apple')")),  # It has no functions of its own.
        actor("buyer", python("y = x * 2"), "Done.", tools=[shop.price]),
        actor("analyst", python("print(x, y, (await order('pear'))['id'])"), "Seen.", tools=[shop.order, shop.price]),
    )
    result = await team.run(task=TASK)
    assert outputs(result.messages)[-1] == "0.5 1.0 2\n"
    assert shop.calls == ["price(apple)", "order(pear, 1)"]


async def test_agents_inside_of_others_share_it_too(share: MakeTeam) -> None:
    inner = CodingTeam([actor("inner", python("x = 42"), "Set.")], name="pair", max_turns=1)
    result = await share(TeamAgent(inner), actor("outer", python("print(x)"), "Seen.")).run(task=TASK)
    assert outputs(result.messages)[-1] == "42\n"


async def test_initial_variables_of_all_are_there_from_the_beginning(share: MakeTeam) -> None:
    result = await share(
        coder("coder", python("print(rate)")), actor("actor", "Nothing.", initial_variables={"rate": 3})
    ).run(task=TASK)
    assert outputs(result.messages) == ["3\n"]


@pytest.mark.parametrize(
    ("agents", "says"),
    [
        (
            lambda: [coder("a"), CodeActAgent("b", Client(), SandboxCodeExecutor(timeout=5))],
            "'a' and 'b' differ in 'ti",
        ),
        (lambda: [CodeExecutorAgent("a", executor(state="fresh"))], "state='session'; that of 'a' is another"),
        (lambda: [CodeExecutorAgent("a", LocalCodeExecutor())], "state='session'; that of 'a' is another"),
        (lambda: [actor("a", skills="s"), actor("b", skills="t")], "begin with different values of 'skills'"),
        (lambda: [coder("a"), autogens("b", LocalCodeExecutor())], "The code of 'b' cannot run in a shared"),
        (lambda: [autogens("b", SandboxCodeExecutor())], "The code of 'b' cannot run in a shared"),
        (
            lambda: [actor("a", initial_variables={"x": 1}), actor("b", initial_variables={"x": 2})],
            "different values of 'x'",
        ),
        (
            lambda: [
                actor("careful", call_rules=[CallRule(function="order", effect="forbidden")]),
                actor("buyer", tools=[Shop().order]),
            ],
            "The code of 'careful' can call the functions of 'buyer'",
        ),
        (
            lambda: [
                actor("one", tools=[Shop().order], call_approval=NeverApprove()),
                actor("two", tools=[Shop().order], call_approval=AlwaysApprove()),
            ],
            "the same call_approval",
        ),
    ],
)
def test_what_cannot_share_is_refused_at_once(agents: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        CodingTeam(agents(), shared_session=True)


async def test_what_is_forbidden_to_one_is_forbidden_to_the_code_of_all(share: MakeTeam) -> None:
    shop = Shop()
    rules = [CallRule(function="order", effect="forbidden")]
    team = share(
        coder("coder", python("await order('pear')")),
        actor("reader", python("await order('pear')"), "No."),
        actor("buyer", "Nothing.", tools=[shop.order], call_rules=rules),
    )
    printed = outputs((await team.run(task=TASK)).messages)
    assert [each.count("PermissionError: order() is forbidden here") for each in printed] == [1, 1]
    assert shop.calls == []


async def test_different_functions_of_one_name_are_refused(share: MakeTeam) -> None:
    def price(what: str) -> str:
        """Look up a price."""
        return "high"

    team = share(actor("one", python("1"), tools=[Shop().price]), actor("other", tools=[price]))
    with pytest.raises(AgentError, match="different functions named 'price'"):
        await team.run(task=TASK)


async def test_a_saved_team_comes_back_with_all_code_in_its_order(share: MakeTeam) -> None:
    shop = Shop()

    def team(first: str, second: str) -> CodingTeam:
        return share(coder("coder", first), actor("actor", second, "Done.", tools=shop.functions))

    before = team(python("x = price('apple')\n1 / 0"), python("x += 1\nx"))
    await before.run(task=TASK)
    state = json.loads(json.dumps(await before.save_state(), allow_nan=False))
    await before.close()
    again = team(python("print(x)"), python("x"))
    await again.load_state(state)
    assert outputs((await again.run(task="Go on.")).messages) == ["1.5\n", "1.5\n"]
    assert shop.calls == ["price(apple)"]


async def test_after_a_close_all_comes_back_and_after_a_reset_nothing(share: MakeTeam) -> None:
    look = python("print('x' in globals(), 'y' in globals(), rate)")
    team = share(
        coder("coder", python("x = 1"), look, look),
        actor("actor", python("y = 1"), "Done.", "Yes.", "No.", initial_variables={"rate": 3}),
    )
    await team.run(task=TASK)
    await team.close()
    assert outputs((await team.run(task=TASK)).messages) == ["True True 3\n"]
    await team.reset()
    assert outputs((await team.run(task=TASK)).messages) == ["False False 3\n"]


async def test_what_does_not_come_back_is_told_to_each_agent(share: MakeTeam) -> None:
    team = share(coder("coder", python("x = 1"), python("print(2)")), actor("actor", "Hello.", "Hello again."))
    await team.run(task=TASK)
    state = json.loads(json.dumps(await team.save_state()))
    for saved in state["agent_states"].values():
        for cell in saved.get("agent_state", {}).get("cells", []):
            cell["blocks"][0]["code"] = "raise ValueError('as if the time had come')"
    await team.load_state(state)
    printed = outputs((await team.run(task=TASK)).messages)
    assert "Not everything came back" in printed[-1]
    reader = team.participants[1]
    assert isinstance(reader, CodeActAgent)
    assert "Not everything came back" in " ".join(await remembered(reader))


async def test_a_rollback_undoes_only_the_failed_code(share: MakeTeam) -> None:
    clean = {"max_retries_on_error": 1, "retry_from": "clean"}
    team = share(
        actor("actor", python("x = 1"), python("x = 2\n1 / 0"), "Failed.", on_error="rollback"),
        coder("coder", python("x += 10\n1 / 0"), decide(True), python("x += 100"), **clean),
        actor("reader", python("print(x)"), "Seen."),
    )
    result = await team.run(task=TASK)
    assert outputs(result.messages)[-1] == "101\n"
    state = await team.save_state()
    await team.load_state(state)  # What was undone is not run again either.
    team.participants[2].use_model(Client(python("print(x)"), "Seen."))  # type: ignore[union-attr]
    team.participants[0].use_model(Client("Nothing."))  # type: ignore[union-attr]
    team.participants[1].use_model(Client("Nothing."))  # type: ignore[union-attr]
    assert outputs((await team.run(task=TASK)).messages) == ["101\n"]


async def test_the_others_go_on_from_the_branch_that_was_chosen(share: MakeTeam) -> None:
    team = share(
        coder(
            "coder",
            python("x = 1\n1 / 0"),
            python("x += 1\n1 / 0"),
            max_retries_on_error=1,
            branches=[Variation("a"), Variation("b", model_client=Client(python("x += 10")))],
        ),
        actor("actor", python("print(x)"), "Seen."),
    )
    assert outputs((await team.run(task=TASK)).messages)[-1] == "11\n"
    await team.close()
    for agent, replies in zip(team.participants, [("Nothing.",), (python("print(x)"), "Seen.")], strict=True):
        agent.use_model(Client(*replies))  # type: ignore[union-attr]
    assert outputs((await team.run(task=TASK)).messages)[-1] == "11\n"


async def test_a_turn_that_was_cut_short_leaves_the_session_as_before_it(share: MakeTeam, tmp_path: Path) -> None:
    agents = [
        CodeExecutorAgent("coder", SandboxCodeExecutor(tmp_path), model_client=Client(*replies), reflect=False)
        for replies in [[python("x = 1"), "Nothing."], [python(f"x = 2\n{SLEEPS}"), python("print(x)")]]
    ]
    agents[1]._name = "second"
    team, token = share(*agents), CancellationToken()
    running = asyncio.create_task(team.run(task=TASK, cancellation_token=token))
    await there_is(tmp_path / "begun")
    token.cancel()
    await asyncio.wait([running])
    assert outputs((await team.run(task="Go on.")).messages)[0] == "1\n"


def made_by_hand(tmp_path: Path) -> Path:
    """A team file of two agents; the second one's code waits until there is a file."""
    work = tmp_path / "work"
    agents: list[ChatAgent | Team] = [
        CodeExecutorAgent(
            "coder",
            SandboxCodeExecutor(work),
            model_client=ReplayModel([python("x = 41\nopen('ran', 'a').write('x')")]),
            reflect=False,
        ),
        CodeActAgent(
            "actor",
            ReplayModel(
                [
                    python("x += 1"),
                    python("import time\nwhile not __import__('os').path.exists('go'): time.sleep(.1)\nprint(x)"),
                    "42.",
                ]
            ),
            SandboxCodeExecutor(work),
        ),
    ]
    file = tmp_path / "team.yaml"
    dump_team(CodingTeam(agents, max_turns=2, shared_session=True), file)
    return file


def test_a_team_file_has_it(tmp_path: Path) -> None:
    file = made_by_hand(tmp_path)
    team = load_team(file)
    assert isinstance(team, CodingTeam)
    first, second = team.participants
    assert first.code_executor is second.code_executor  # type: ignore[union-attr]
    assert "shared_session: true" in file.read_text()


def test_the_example_runs(tmp_path: Path) -> None:
    team, model = ROOT / "examples/shared_session_team.yaml", ROOT / "examples/shared_session.replay.yaml"
    done = coderoom("run", str(team), "Which is warmest?", "--model", f"replay:{model}", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["output"] == "('Cairo', 25.0)\n"


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_variables_of_all(tmp_path: Path) -> None:
    file, journal = made_by_hand(tmp_path), tmp_path / "journal"
    environment = {**os.environ, "CODEROOM_JOURNAL": str(journal)}
    command = [sys.executable, "-m", "coderoom", "run", str(file), "Compute it.", "--json"]
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True)
    try:
        asyncio.run(waits_for_code(Journal(journal), 2))
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
    (tmp_path / "work" / "go").touch()
    record = asyncio.run(resume(journal))
    assert outputs(record.messages)[-1] == "42\n"


async def waits_for_code(journal: Journal, count: int) -> None:
    async with asyncio.timeout(60):
        while (
            not journal.path.exists()
            or not journal.runs()
            or count > sum(step.kind == "code" for step in journal.steps(journal.runs()[0].id))
        ):
            await asyncio.sleep(0.05)


async def resume(journal: Path) -> Any:
    return await Run.resume("last", Journal(journal)).go(lambda message: None)
