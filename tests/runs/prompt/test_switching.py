"""Another model, another team and another approval in the middle of a chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from coderoom.runs import Journal
from tests.runs.prompt.test_commands import SETS, SHOWS, Chats
from tests.support.commands import ROOT, coderoom, recording

pytestmark = pytest.mark.slow

TWICE = [*SHOWS, *SHOWS]


@pytest.fixture
def chats(tmp_path: Path) -> Chats:
    return Chats(tmp_path)


def go_on(chats: Chats, *lines: str) -> str:
    done = coderoom("chat", "--continue", cwd=chats.path, env=chats.env, stdin="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_another_model_has_conversation_and_variables_also_after_undo_and_in_a_chat_that_goes_on(chats: Chats) -> None:
    other = recording(chats.path / "other.json", TWICE)
    shown = chats.say("Set x.", f"/model {other}", "/run x += 1", "Show x.", "/undo", "/model", "/vars", replies=SETS)
    assert "x is now 42" in shown
    assert shown.count("other.json") >= 2
    assert "x  int  42" in shown  # What the person ran before the task stays.
    assert "Set x." in str(chats.requests())
    shown = go_on(chats, "/model", "Show x.")
    assert "other.json" in shown
    assert "x is now 42" in shown


def test_another_team_works_in_the_folder_with_the_variables_and_knows_what_was_asked(chats: Chats) -> None:
    model = recording(chats.path / "other.json", SHOWS)
    shown = chats.say(
        "Set x.", f"/model {model}", "/team coder-executor", "/team", "Show x.", "/undo", "/undo", replies=SETS
    )
    assert "x is now 41" in shown
    assert "coder-executor  coder, executor" in shown
    assert shown.count("As before the task") == 1
    newer, older = Journal(chats.path / "journal").runs()
    assert (newer.name, older.name) == ("coder-executor", "code-act")
    assert "It is set." in newer.task
    assert newer.request["workspace"] == older.request["workspace"]


def test_a_team_whose_code_runs_otherwise_begins_a_new_session_and_the_chat_says_so(chats: Chats) -> None:
    file = chats.path / "other.yaml"
    assert coderoom("init", "other.yaml", "--team", "code-act", "--yes", cwd=chats.path).returncode == 0
    file.write_text(file.read_text().replace("timeout: 60", "timeout: 50"))
    shown = chats.say("Set x.", "/team other.yaml", "/vars", "/team missing", "/model nope:x", replies=SETS)
    assert "The session begins anew" in shown
    assert "There are no variables." in shown
    assert "there is no shipped team 'missing'" in shown
    assert "there is no model 'nope:x'" in shown


def test_a_person_who_wants_to_be_asked_is_asked_also_with_another_model_and_team(chats: Chats) -> None:
    other = recording(chats.path / "other.json", TWICE)
    lines = ["/approve ask", "Set x.", "y", f"/model {other}", "Show x.", "n", "/team coder-executor", "/approve"]
    shown = chats.say(*lines, replies=SETS, code=1)
    assert "coder  asks a person" in shown
    assert "executor  asks a person" in shown
    assert "x is now 41" not in shown
    assert "rejected" in shown
    assert "coder  asks a person" in go_on(chats, "/approve")
    assert "coder  runs its code without asking" in go_on(chats, "/approve team")
    assert "coder  runs its code without asking" in go_on(chats, "/approve")


def test_a_team_that_cannot_ask_is_no_way_around_being_asked(chats: Chats) -> None:
    shown = chats.say("/approve ask", "/team test-driven", "/team")
    assert "cannot ask before its code runs" in shown
    assert "code-act  coder" in shown
    assert Journal(chats.path / "journal").runs() == []


def test_a_yes_to_all_later_code_is_one_answer_of_the_question(chats: Chats) -> None:
    model = recording(chats.path / "replies.json", [*SETS, *SHOWS, *SHOWS])
    lines = ["/approve ask", "Set x.", "a", "Show x.", "/approve", "/approve ask", "Show it.", "n"]
    options = ["code-act", "--model", model, "--workspace", "work"]
    done = coderoom("chat", *options, cwd=chats.path, env=chats.env, stdin="\n".join([*lines, ""]))
    shown, asked = done.stdout, done.stderr
    assert asked.count("a for this and all later code of this chat, until /approve ask") == 2
    assert "x is now 41" in shown.partition("Show x.")[2]
    assert "x is now 41" not in shown.partition("Show it.")[2]
    assert "Questions to you are answered with yes" in shown
    assert (shown + asked).count("x = 41") == 1, "what the question shows is not shown as the reply, too"
    assert "rejected" in shown


def test_a_yes_to_all_code_lasts_until_it_is_taken_back(chats: Chats) -> None:
    replies = [*SETS, *SHOWS, *SHOWS]
    lines = ["/approve always", "Set x.", "Show x.", "/approve team", "Show it.", "n"]
    shown = chats.say(*lines, replies=replies, team="human-approves", code=1)
    assert shown.count("x is now 41") >= 1
    assert "Questions to you are answered with yes" in shown
    assert "rejected" in shown
    assert "answered with yes" not in go_on(chats, "/approve")


@pytest.mark.filterwarnings("ignore::UserWarning")  # Of each function in a config.
def test_a_yes_to_all_code_is_none_to_calls_of_functions_until_always_is_said_of_one(chats: Chats) -> None:
    replies = [
        "```python\nprint(pay('Ann', 1), pay('Bob', 2))\n```",
        "Paid.",
        "```python\nprint(pay('Cy', 3))\n```",
        "Paid.",
    ]
    shown = chats.say(
        *["/approve", "/approve always", "Pay them.", "a", "Pay Cy."],
        replies=replies,
        team=str(ROOT / "examples/approved_calls_team.yaml"),
    )
    assert "bookkeeper  runs its code without asking; about calls that write it asks a person" in shown
    assert "You are still asked about calls of functions." in shown
    assert (chats.path / "payments.txt").read_text() == "1 to Ann\n2 to Bob\n3 to Cy\n"


def test_an_approval_of_the_team_still_decides_after_a_yes_to_all(chats: Chats) -> None:
    assert coderoom("init", "team.yaml", "--team", "code-act", "--yes", cwd=chats.path).returncode == 0
    file = chats.path / "team.yaml"
    never = "approval: {provider: coderoom.approval.NeverApprove, component_type: approval, config: {}}"
    file.write_text(file.read_text().replace("        max_steps: 10\n", f"        max_steps: 10\n        {never}\n"))
    shown = chats.say("/approve always", "Set x.", replies=SETS, team="team.yaml", code=1)
    assert "coder  asks NeverApprove" in shown
    assert "x is 41" not in shown
