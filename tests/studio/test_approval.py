"""Approval by the person at AutoGen Studio's page: a real server, driven by the websocket that the page uses."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from autogen_core.tools import FunctionTool

from coderoom.agents import CodeActAgent, CodeExecutorAgent, HumanApprovedAgent, ReviewerAgent
from coderoom.approval import AlwaysApprove, CallRule, HumanApproval
from coderoom.blocks import extract_code_blocks
from coderoom.configs import ReplayModel, make_gallery
from coderoom.executors import SandboxCodeExecutor
from coderoom.teams import CodingTeam
from tests.studio.driving import Run, Studio, texts
from tests.studio.teams import openai
from tests.support.commands import ROOT
from tests.support.openai_server import OpenAIServer, Request

pytestmark = pytest.mark.studio

TASK = "What is 6 times 7?"
WRITES = "I compute it.\n\n```python\nopen('made', 'w').write('x')\nprint(6 * 7)\n```"
AGAIN = "```python\nopen('made_again', 'w').write('x')\nprint(43)\n```"
REFUSED = '{"approved": false, "issues": [], "summary": "Again."}'


def team(
    folder: Path, *replies: str, turns: int = 1, reviewer: bool = False, retries: int = 0, **arguments: Any
) -> dict[str, Any]:
    """A team whose code a person decides on, as Studio keeps it."""
    model = ReplayModel(list(replies))
    coder = CodeExecutorAgent("coder", SandboxCodeExecutor(folder), model_client=model, max_retries_on_error=retries)
    participants: list[Any] = [HumanApprovedAgent(coder, **arguments)]
    if reviewer:
        participants.append(ReviewerAgent("reviewer", ReplayModel([REFUSED] * turns)))
    return CodingTeam(participants, max_turns=turns).dump_component().model_dump()


def test_a_shipped_team_with_a_recorded_model(driver: Studio) -> None:
    gallery = make_gallery(model=f"replay:{ROOT / 'examples' / 'primes.replay.yaml'}")
    [component] = [each for each in gallery["components"]["teams"] if each["label"] == "human-approves"]
    with driver.running(component, "How many primes are there below a million?") as run:
        for _ in range(2):
            wait_for_question(run)
            answer(run, "yes")
        run.wait()
    assert any("NameError" in text for text in texts(run.sent))
    assert "There are 78,498 primes below a million" in texts(run.sent)[-1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "work"


def wait_for_question(run: Run) -> dict[str, Any]:
    """Read on until the page would show the box for an answer, and the question, which is in `run.sent`."""

    def requests() -> list[dict[str, Any]]:
        return [event for event in run.events if event["type"] == "input_request"]

    before = len(requests())
    while len(requests()) == before or len(questions(run)) < len(requests()):
        event = run.next()
        assert event["type"] not in ("result", "completion"), event
    return requests()[-1]


def answer(run: Run, text: str) -> None:
    run.send(type="input_response", response=text)


def questions(run: Run) -> list[str]:
    return [text for text in texts(run.sent) if "yes or no" in text]


def test_a_yes_lets_it_run(driver: Studio, folder: Path) -> None:
    with driver.running(team(folder, WRITES, "It is 42."), TASK) as run:
        request = wait_for_question(run)
        [question] = questions(run)
        [block] = extract_code_blocks(question)
        assert (block.code, block.no_run) == ("open('made', 'w').write('x')\nprint(6 * 7)", True)
        assert block.code in request["prompt"]
        # Once: the page shows the question and no prompt.
        assert sum("6 * 7" in text for text in texts(run.sent)) == 1
        assert not (folder / "made").exists()
        answer(run, "yes")
        record = run.wait()
    assert record["status"] == "complete"
    assert (folder / "made").exists()
    [*_, last] = record["team_result"]["task_result"]["messages"]
    assert (last["metadata"]["coderoom.outcome"], "It is 42." in last["content"]) == ("ok", True)
    assert question in texts(run.stored())


def test_a_no_ends_it_as_rejected(driver: Studio, folder: Path) -> None:
    with driver.running(team(folder, WRITES), TASK) as run:
        wait_for_question(run)
        answer(run, "no because it writes a file")
        record = run.wait()
    [*_, last] = record["team_result"]["task_result"]["messages"]
    assert record["status"] == "complete"
    assert last["metadata"]["coderoom.outcome"] == "rejected"
    assert "it writes a file" in last["content"]
    assert "it writes a file" in texts(run.sent)[-1]
    assert not (folder / "made").exists()


def test_a_no_with_a_reason_and_then_other_code(driver: Studio, folder: Path) -> None:
    with driver.running(team(folder, WRITES, AGAIN, "It is 43.", retries=1), TASK) as run:
        wait_for_question(run)
        answer(run, "no because it writes a file")
        wait_for_question(run)
        assert "made_again" in questions(run)[-1]
        answer(run, "edit:\n```python\nprint(42 + 1)\n```")
        wait_for_question(run)
        assert "print(42 + 1)" in questions(run)[-1]
        answer(run, "yes")
        record = run.wait()
    [*_, last] = record["team_result"]["task_result"]["messages"]
    assert (last["metadata"]["coderoom.outcome"], last["metadata"]["coderoom.edited"]) == ("ok", "true")
    shown = texts(run.sent)
    assert any("Attempt 1 was not allowed to run" in text and "it writes a file" in text for text in shown)
    assert any(text.startswith("**Attempt 2**\n\nA person has edited the code") for text in shown)
    assert not folder.joinpath("made").exists()
    assert not folder.joinpath("made_again").exists()


def test_a_call_is_asked_about_until_always(driver: Studio, folder: Path, tmp_path: Path) -> None:
    def pay(to: str) -> str:
        """Pay somebody."""
        with open("PAID", "a") as paid:  # noqa: PTH123 (the function is dumped as it stands here)
            paid.write(f"{to}\n")
        return f"paid {to}"

    code = "```python\nfor to in 'Ann', 'Bob', 'Cy': print(pay(to))\n```"
    coder = CodeActAgent(
        "coder",
        ReplayModel([code, "Paid."]),
        SandboxCodeExecutor(folder),
        tools=[FunctionTool(pay, "Pay somebody.")],
        approval_func=AlwaysApprove(),
        call_approval=HumanApproval(),
        call_rules=[CallRule(function="pay", effect="write")],
    )
    dumped = CodingTeam([HumanApprovedAgent(coder)], max_turns=1).dump_component().model_dump_json()
    component = json.loads(dumped.replace("PAID", str(tmp_path / "paid")))
    with driver.running(component, "Pay them.") as run:
        wait_for_question(run)
        assert "A call of pay() by coder" in questions(run)[-1]
        answer(run, "edit: pay(to='Dan')")
        wait_for_question(run)
        answer(run, "yes")
        wait_for_question(run)
        assert "pay(to='Bob')" in questions(run)[-1]
        answer(run, "always")
        record = run.wait()
    assert "paid Cy" in record["team_result"]["task_result"]["messages"][-1]["content"]
    assert (tmp_path / "paid").read_text() == "Dan\nBob\nCy\n"


def test_an_answer_with_a_condition_is_asked_again(driver: Studio, folder: Path) -> None:
    with driver.running(team(folder, WRITES), TASK) as run:
        wait_for_question(run)
        answer(run, "yes, but without the file")
        wait_for_question(run)
        assert "neither a yes nor a no" in texts(run.sent)[-1]
        assert not (folder / "made").exists()
        answer(run, "n")
        record = run.wait()
    assert record["team_result"]["task_result"]["messages"][-1]["metadata"]["coderoom.outcome"] == "rejected"


def test_answers_before_the_question_do_not_count(driver: Studio, folder: Path) -> None:
    run = driver.start(team(folder, WRITES), TASK)
    for _ in range(3):
        answer(run, "yes")
    try:
        wait_for_question(run)
        with pytest.raises(TimeoutError):
            run.next(2)
        assert not (folder / "made").exists()
        answer(run, "no")
        run.wait()
    finally:
        run.close_tab()
    assert not (folder / "made").exists()


def test_a_yes_that_comes_too_late_is_no_answer_to_the_next_question(driver: Studio, folder: Path) -> None:
    came = threading.Event()

    def respond(request: Request) -> str:
        if len(model.requests) == 1:
            return WRITES
        return AGAIN if came.wait(60) else "The late answer did not come."

    component = team(folder, turns=3, reviewer=True, timeout=3)
    coder = component["config"]["participants"][0]["config"]["agent"]["config"]
    with OpenAIServer(respond=respond) as model:
        coder["model_client"] = openai(model.base_url)
        with driver.running(component, TASK) as run:
            wait_for_question(run)
            run.wait_for_text("No person answered within 3 seconds", 20)
            model.wait_for_requests(2)
            answer(run, "yes")
            # Studio takes messages one by one: with the answer to this one it has that one.
            run.send(type="ping")
            while run.next()["type"] != "pong":
                pass
            came.set()
            wait_for_question(run)
            assert "made_again" in questions(run)[-1]
            with pytest.raises(TimeoutError):
                run.next(1)
            record = run.wait()
    assert record["status"] == "complete"
    assert not (folder / "made").exists()
    assert not (folder / "made_again").exists()


def test_two_questions_one_after_another(driver: Studio, folder: Path) -> None:
    component = team(folder, WRITES, "It is 42.", AGAIN, turns=3, reviewer=True)
    with driver.running(component, TASK) as run:
        wait_for_question(run)
        answer(run, "y")
        wait_for_question(run)
        first, second = questions(run)
        assert ("6 * 7" in first, "print(43)" in second) == (True, True)
        answer(run, "no, once is enough")
        record = run.wait()
    assert record["status"] == "complete"
    assert (folder / "made").exists()
    assert not (folder / "made_again").exists()


def test_a_stop_ends_a_waiting_question_at_once(driver: Studio, folder: Path) -> None:
    with driver.running(team(folder, WRITES), TASK) as run:
        wait_for_question(run)
        run.stop()
        record = run.wait()
    assert record["status"] == "stopped"
    assert not (folder / "made").exists()
    with driver.running(team(folder, WRITES, "Done."), TASK) as run:
        wait_for_question(run)
        answer(run, "yes")
        assert run.wait()["status"] == "complete"


def test_a_closed_page_leaves_nothing_waiting(driver: Studio, folder: Path) -> None:
    run = driver.start(team(folder, WRITES), TASK)
    wait_for_question(run)
    run.close_tab()
    assert run.wait_for_record()["status"] == "stopped"
    assert not (folder / "made").exists()


def test_what_rules_allow_is_shown_without_a_question(driver: Studio, folder: Path) -> None:
    component = team(folder, WRITES, "It is 42.")
    coder = component["config"]["participants"][0]["config"]["agent"]["config"]
    coder["approval"] = {
        "provider": "coderoom.approval.RuleApproval",
        "component_type": "approval",
        "config": {"rules": [{"pattern": "open", "action": "allow"}]},
    }
    run = driver.run(component, TASK)
    assert [event["type"] for event in run.events].count("input_request") == 0
    assert sum("6 * 7" in text for text in texts(run.sent)[:-1]) == 1
    assert (folder / "made").exists()


def test_invisible_characters_are_seen_at_the_page(driver: Studio, folder: Path) -> None:
    hidden = "```python\nprint('safe')  # \u202e)'evil'(tnirp \x1b[2K\u200b\n```"
    with driver.running(team(folder, hidden), TASK) as run:
        request = wait_for_question(run)
        for shown in (questions(run)[0], request["prompt"]):
            assert "# <U+202E>)'evil'(tnirp ␛[2K<U+200B>" in shown
        answer(run, "")
        record = run.wait()
    assert record["team_result"]["task_result"]["messages"][-1]["metadata"]["coderoom.outcome"] == "rejected"
