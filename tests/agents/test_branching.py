"""Branches of coding agents: after a failure, several repairs at the same time, of which one goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core import CancellationToken
from autogen_core.models import CreateResult, LLMMessage

from coderoom.agents import (
    ApprovalRequest,
    ApprovalResponse,
    BranchCheck,
    BranchReviewer,
    BranchTests,
    CodeActAgent,
    CodeExecutorAgent,
    Variation,
)
from coderoom.agents import metadata as keys
from coderoom.errors import BudgetExceeded, RequestError
from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from coderoom.models.budgets import Budget
from coderoom.sandbox import MOST_FORKS_IN_A_ROW, WallName
from tests.agents.acting import MakeActor, Shop, codes, outputs, remembered
from tests.agents.helpers import (
    TASK,
    Client,
    Item,
    MakeCoder,
    begin,
    context_of,
    facts_of,
    python,
    stream,
    text_of,
    total,
    turn,
    until,
)

FIRST = python("x = 1\nopen('first', 'w').close()\n1 / 0")
WORSE = python("y = 7\nopen('worse', 'w').close()\nraise KeyError(x)")
GOOD = python("x += 41\nopen('good', 'w').write(str(x))\nprint('it is', x)")
ALSO = python("x = -1\nopen('also', 'w').close()\nprint('also')")
SUM = "It is 42."


@pytest.fixture
def make(coder: MakeCoder, tmp_path: Path) -> Callable[..., CodeExecutorAgent]:
    def made(client: Client, **arguments: Any) -> CodeExecutorAgent:
        arguments.setdefault("code_executor", SandboxCodeExecutor(tmp_path))
        return coder(client, **{"max_retries_on_error": 1, "branches": 2, **arguments})

    return made


def branchings(items: Sequence[Item] | Sequence[BaseAgentEvent | BaseChatMessage]) -> list[dict[str, Any]]:
    """What the events say that end branchings."""
    return [
        json.loads(item.metadata[keys.BRANCHES])
        for item in items
        if isinstance(item, BaseAgentEvent | BaseChatMessage) and item.metadata.get(keys.EVENT) == keys.BRANCHING
    ]


def by_branch(items: Sequence[Item]) -> list[str]:
    """The branches that have said something, in order."""
    names = [item.metadata.get(keys.BRANCH, "") for item in items if isinstance(item, BaseAgentEvent)]
    return list(dict.fromkeys(filter(None, names)))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("wall", ["auto", "none"])
async def test_the_winner_becomes_the_session_and_the_conversation(
    make: Callable[..., CodeExecutorAgent], wall: WallName, tmp_path: Path
) -> None:
    client = Client(FIRST, WORSE, GOOD, ALSO, SUM, python("print(x, 'y' in globals())"), "Done.")
    agent = make(client, branches=3, code_executor=SandboxCodeExecutor(tmp_path, wall=wall))
    items = await stream(agent, TASK)
    (found,) = branchings(items)
    assert (found["branching"], found["won"]) == (1, "1.2")
    assert [each["branch"] for each in found["branches"]] == ["1.1", "1.2", "1.3"]
    assert [each["outcome"] for each in found["branches"]] == ["error", "ok", "ok"]
    assert [each["succeeded"] for each in found["branches"]] == [False, True, True]
    assert all(each["input_tokens"] and each["output_tokens"] for each in found["branches"])
    assert by_branch(items) == ["1.1", "1.3", "1.2"], "the winner's output is the last one"
    assert files(tmp_path) == ["first", "good"]
    response = items[-1]
    assert isinstance(response, Response)
    assert (facts_of(response)["attempts"], facts_of(response)["outcome"]) == ("2", "ok")
    (made,) = json.loads(facts_of(response)["artifacts"])
    assert made["path"] == str(tmp_path / "good")
    context = "\n".join(await context_of(agent))
    assert "it is 42" in context
    assert "also" not in context
    assert "KeyError" not in context
    hints = [call.texts[-1] for call in client.calls[1:4]]
    assert "ZeroDivisionError" in hints[0], "the first branch repairs as it would without others"
    assert len({*hints}) == 3
    assert not any(hint in context for hint in hints[1:]), "a hint is for one request"
    assert [call.json_output for call in client.calls] == [None] * 5, "nobody decides on a retry"
    said = [item for item in items if isinstance(item, BaseAgentEvent)]
    assert total([*said, response.chat_message]) == client.total_usage()
    assert "42 False" in text_of(await turn(agent, "And now?"))


async def test_after_failures_everywhere_the_best_one_branches_again(
    make: Callable[..., CodeExecutorAgent], tmp_path: Path
) -> None:
    again, slow = python("x = 3\n1 / 0"), python("x = 10\nraise ValueError(x)")
    client = Client(FIRST, FIRST, slow, python("x += 1\nint('a')"), python("print(x)"), SUM)
    agent = make(client, max_retries_on_error=2)
    items = await stream(agent, TASK)
    one, two = branchings(items)
    assert (one["won"], one["branches"][0]["verdict"]) == ("1.2", "failed as before")
    assert (two["branching"], two["won"]) == (2, "2.2")
    assert outputs(items)[-1] == "10\n"
    client = Client(FIRST, WORSE, again, "It cannot be done.")
    found = facts_of(await turn(make(client), TASK))
    assert (found["outcome"], found["attempts"], found["stop_reason"]) == ("error", "2", "retries_exhausted")
    assert files(tmp_path) == ["first", "worse"]


async def test_what_is_undone_stays_undone_in_branches(
    make: Callable[..., CodeExecutorAgent], actor: MakeActor, tmp_path: Path
) -> None:
    look = python("print('x' in globals(), 'y' in globals())")
    client = Client(FIRST, python("y = 1\nraise KeyError"), python("raise KeyError(1)"), look, look, SUM)
    agent = make(client, max_retries_on_error=2, retry_from="clean")
    items = await stream(agent, TASK)
    assert [each["won"] for each in branchings(items)] == ["1.1", "2.1"]
    assert outputs(items)[-1] == "False False\n"
    assert files(tmp_path) == []
    notes = [text for text in await context_of(agent) if "undone" in text]
    assert len(notes) == 2
    sets = python("z = 5")
    acting = actor(Client(sets, FIRST, WORSE, WORSE, look, look, SUM), branches=2, on_error="rollback")
    items = await stream(acting, TASK)
    assert outputs(items)[-1] == "False False\n"
    assert sum("undone" in text for text in await remembered(acting)) == 2
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.slow
async def test_after_as_many_as_a_session_can_have_there_is_one_repair_at_a_time(actor: MakeActor) -> None:
    repairs = [python(f"x = {number}\nint('{number}a')") for number in range(2 * MOST_FORKS_IN_A_ROW + 1)]
    client = Client(FIRST, *repairs, python("print(x)"), SUM)
    items = await stream(actor(client, branches=2, max_steps=99), TASK)
    assert len(branchings(items)) == MOST_FORKS_IN_A_ROW
    assert outputs(items)[-1] == f"{2 * MOST_FORKS_IN_A_ROW}\n"
    assert client.calls[-2].texts[-1].startswith("The script ran, then exited")


async def test_functions_are_called_from_branches_and_the_model_is_told(actor: MakeActor) -> None:
    shop = Shop()
    fails = python("await order('pear')\nraise KeyError")
    client = Client(
        FIRST, fails, python("(await order('apple', 2))['number']"), python("await order('apple', x)"), "Ordered."
    )
    agent = actor(client, tools=shop.functions, branches=2)
    items = await stream(agent, TASK)
    assert sorted(shop.calls) == ["order(apple, 1)", "order(apple, 2)", "order(pear, 1)"]
    assert branchings(items)[0]["won"] == "1.2"
    told = "\n".join(await remembered(agent))
    assert "order(item='pear')" in told
    assert "are not undone" in told
    state = await agent.save_state()
    assert [[call["name"] for call in cell["calls"]] for cell in state["cells"]] == [["order"], ["order"]]
    assert codes(items)[-1] == [python("await order('apple', x)").splitlines()[1]]


async def test_an_answer_of_a_branch_ends_the_turn_only_if_no_code_is_better(actor: MakeActor) -> None:
    agent = actor(Client(FIRST, "I give up.", WORSE, "I give up.", "Me too."), branches=2)
    items = await stream(agent, TASK)
    assert [each["won"] for each in branchings(items)] == ["1.2", "2.1"]
    assert text_of(items[-1]).startswith("I give up.")  # type: ignore[arg-type]
    assert any("Me too." in item.to_text() for item in items if isinstance(item, BaseAgentEvent))


# --- What branches do otherwise ---


class Warm(Client):
    """Writes down the further arguments of requests."""

    def __init__(self, *replies: str) -> None:
        super().__init__(*replies)
        self.arguments: list[Any] = []

    async def create(self, messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        self.arguments.append(arguments.pop("extra_create_args", None))
        return await super().create(messages, **arguments)


class Cold(Client):
    """Takes no temperature."""

    async def create(self, messages: Sequence[LLMMessage], **arguments: Any) -> CreateResult:
        if arguments.get("extra_create_args"):
            raise ValueError("Extra create args are invalid")
        return await super().create(messages, **arguments)


async def test_variations_have_a_hint_a_temperature_and_a_model_of_their_own(
    make: Callable[..., CodeExecutorAgent],
) -> None:
    own, other = Warm(FIRST, WORSE, WORSE, SUM), Warm(GOOD)
    variations = [Variation(), Variation("Think twice.", 0.9), Variation(model_client=other)]
    items = await stream(make(own, branches=variations), TASK)
    assert own.arguments == [None, None, {"temperature": 0.9}, None]
    assert own.calls[2].texts[-1] == "Think twice."
    assert branchings(items)[0]["won"] == "1.3"
    assert [each["variation"] for each in branchings(items)[0]["branches"]] == [
        "as it is",
        "Think twice.; temperature 0.9",
        "another model",
    ]
    with pytest.raises(RequestError, match=r"temperature 0\.5, which Cold does not take"):
        await turn(make(Cold(FIRST, GOOD), branches=[Variation(), Variation(temperature=0.5)]), TASK)


def test_branches_are_a_part_of_the_config() -> None:
    from coderoom.configs import ReplayModel

    judge = BranchTests("assert solution.x == 42", module="answer")
    variations = [Variation("Think twice.", name="twice"), Variation(temperature=0.5, model_client=ReplayModel([GOOD]))]
    agent = CodeActAgent("actor", ReplayModel([FIRST]), branches=variations, branch_judge=judge)
    dumped = agent.dump_component()
    loaded = CodeActAgent.load_component(dumped)
    assert loaded.dump_component() == dumped
    assert dumped.config["branches"][1]["model_client"]["config"]["replies"] == [GOOD]
    assert dumped.config["branch_judge"]["config"]["module"] == "answer"
    plain = CodeActAgent("actor", ReplayModel([FIRST]), branches=3).dump_component()
    assert CodeActAgent.load_component(plain).dump_component().config["branches"] == 3


def test_what_cannot_branch_says_why(tmp_path: Path) -> None:
    client = Client()
    for branches in (0, 17, True, [Variation()], ["a", "b"]):
        with pytest.raises(ValueError, match="branches must be a number from 1 to 16"):
            CodeActAgent("actor", client, branches=branches)  # type: ignore[arg-type]
    for executor in (
        LocalCodeExecutor(tmp_path),
        SandboxCodeExecutor(state="fresh"),
        SandboxCodeExecutor(engine="monty"),
    ):
        with pytest.raises(ValueError, match="fork"):
            CodeActAgent("actor", client, executor, branches=2)
    with pytest.raises(ValueError, match="set max_retries_on_error"):
        CodeExecutorAgent("coder", SandboxCodeExecutor(), model_client=client, branches=2)
    with pytest.raises(ValueError, match="set branches to 2 or more"):
        CodeActAgent("actor", client, branch_judge=BranchReviewer(client))


# --- Who chooses ---

TESTS = (
    "from solution import double\n\ndef test_two(): assert double(2) == 4\n\ndef test_three(): assert double(3) == 6\n"
)
FAKES = python("class E(int):\n    __eq__ = lambda *a: True\n    __hash__ = int.__hash__\ndouble = E")
HALF = python("def double(x): return 4")
WHOLE = python("def double(x): return 2 * x")


@pytest.mark.slow
async def test_tests_choose_and_only_what_passes_all_is_a_success(make: Callable[..., CodeExecutorAgent]) -> None:
    client = Client(FIRST, FAKES, HALF, HALF, WHOLE, SUM)
    agent = make(client, max_retries_on_error=2, branch_judge=BranchTests(TESTS))
    items = await stream(agent, TASK)
    one, two = branchings(items)
    assert (one["won"], one["why"]) == ("1.2", "none has succeeded; this one passed 1 of 2 tests")
    assert [each["outcome"] for each in one["branches"]] == ["ok", "ok"]
    assert [each["succeeded"] for each in one["branches"]] == [False, False]
    assert [each["score"] for each in two["branches"]] == [0.5, 1.0]
    assert two["why"] == "passed 2 of 2 tests"
    assert "This code ran to its end, but passed 1 of 2 tests." in "\n".join(await context_of(agent))
    assert facts_of(items[-1])["outcome"] == "ok"  # type: ignore[arg-type]
    agent = make(Client(FIRST, HALF, HALF, "No."), branch_judge=BranchTests(TESTS))
    found = facts_of(await turn(agent, TASK))
    assert (found["outcome"], found["stop_reason"]) == ("error", "retries_exhausted")


@pytest.mark.slow
async def test_a_check_chooses_by_what_was_printed_or_by_the_code(make: Callable[..., CodeExecutorAgent]) -> None:
    judge = BranchCheck({"expected": 42, "compare": "number"})
    items = await stream(make(Client(FIRST, ALSO, GOOD, SUM), branch_judge=judge), TASK)
    (found,) = branchings(items)
    assert (found["won"], found["why"]) == ("1.2", "passed the check")
    assert "did not pass the check: expected '42'" in found["branches"][0]["verdict"]
    judge = BranchCheck({"code": "assert double(4) == 8"})
    assert BranchCheck.load_component(judge.dump_component()).dump_component() == judge.dump_component()
    items = await stream(make(Client(FIRST, HALF, WHOLE, SUM), branch_judge=judge), TASK)
    assert branchings(items)[0]["won"] == "1.2"
    with pytest.raises(RequestError, match="is a BranchReviewer"):
        BranchCheck({"reviewer": "It is good."})


async def test_a_reviewer_chooses_between_branches_that_work(make: Callable[..., CodeExecutorAgent]) -> None:
    scores = [
        {"branch": 1, "reason": "It guesses.", "score": 2},
        {"branch": 2, "reason": "It computes.", "score": 9},
        {"branch": 3, "reason": "Best of all.", "score": 10},
    ]
    reviews = Client(json.dumps({"reviews": scores}), "I like them all.")
    judge = BranchReviewer(reviews, criterion="It computes.")
    items = await stream(make(Client(FIRST, ALSO, GOOD, WORSE, SUM), branches=3, branch_judge=judge), TASK)
    assert branchings(items)[0]["won"] == "1.2", "a failure never wins against code that works"
    assert branchings(items)[0]["why"] == "scored 9 of 10: It computes."
    assert "it is 42" in "\n".join(reviews.calls[0].texts)
    items = await stream(make(Client(FIRST, ALSO, GOOD, SUM), branch_judge=judge), TASK)
    assert branchings(items)[0]["won"] == "1.1", "without a readable answer, the first that works"
    await stream(make(Client(FIRST, WORSE, GOOD, SUM), branch_judge=judge), TASK)
    assert len(reviews.calls) == 2, "of one that works there is no choice"


# --- What ends branches ---


async def test_each_branch_is_approved_on_its_own_and_one_by_one(make: Callable[..., CodeExecutorAgent]) -> None:
    asked: list[str] = []
    at_once = 0

    async def approve(request: ApprovalRequest) -> bool:
        nonlocal at_once
        at_once += 1
        assert at_once == 1
        await asyncio.sleep(0.02)
        asked.append(request.code)
        at_once -= 1
        return "good" not in request.code

    items = await stream(make(Client(FIRST, GOOD, ALSO, SUM), approval_func=approve), TASK)
    assert len(asked) == 3
    assert branchings(items)[0]["won"] == "1.2"
    assert [each["outcome"] for each in branchings(items)[0]["branches"]] == ["rejected", "ok"]


async def test_after_a_no_with_a_reason_in_all_branches_one_attempt_follows(
    make: Callable[..., CodeExecutorAgent], tmp_path: Path
) -> None:
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> ApprovalResponse:
        asked.append(request.code)
        return ApprovalResponse(approved=len(asked) not in (2, 3), reason=f"number {len(asked)} is bad")

    client = Client(FIRST, WORSE, ALSO, GOOD, SUM)
    items = await stream(make(client, max_retries_on_error=2, approval_func=approve), TASK)
    assert facts_of(items[-1])["outcome"] == "ok"  # type: ignore[arg-type]
    assert (len(asked), len(branchings(items)), files(tmp_path)) == (4, 1, ["first", "good"])
    assert any("is bad" in text for text in client.calls[3].texts)


async def test_all_branches_draw_on_the_budget(make: Callable[..., CodeExecutorAgent], tmp_path: Path) -> None:
    client = Client(FIRST, GOOD, ALSO, WORSE)
    with pytest.raises(BudgetExceeded, match="3 of 3 model calls"):
        await turn(make(client, branches=3, budget=Budget(model_calls=3)), TASK)
    assert len(client.calls) == 3
    assert files(tmp_path) == ["first"], "nothing of a branch is left"


async def test_a_cancellation_ends_all_branches(
    make: Callable[..., CodeExecutorAgent], tmp_path: Path, way: str
) -> None:
    from tests.agents.helpers import cancelled

    endless = python("import time\nopen('runs', 'w').close()\ntime.sleep(60)")
    client = Client(FIRST, endless, endless, python("import os; print(x, os.listdir())"), SUM)
    agent = make(client)
    running, token = begin(agent, TASK)
    await until(lambda: len(client.calls) == 3)
    await asyncio.sleep(0.3)
    await cancelled(running, token, way)
    assert "1 ['first']" in text_of(await turn(agent, "What is there?", token=CancellationToken()))
