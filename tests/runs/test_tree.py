"""Branches of a run as a tree: in the story, on the terminal, on the page and as data."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import (
    BaseAgentEvent,
    CodeExecutionEvent,
    CodeGenerationEvent,
)
from autogen_core.code_executor import CodeBlock, CodeResult
from rich.console import Console

from coderoom.runs import Journal, RunRecord, RunView, Step
from coderoom.runs.pages.run import run_page
from coderoom.runs.story import Branching, Code, Folding, Output, Story, tell_steps
from tests.support.commands import coderoom, recording
from tests.support.solving import GOOD, SPECS, TESTS, WRONG

FACTS: dict[str, Any] = {
    "branching": 2,
    "won": "2.2",
    "why": "passed all tests",
    "branches": [
        {"branch": "2.1", "variation": "patch", "succeeded": False, "outcome": "error", "exit_code": 1, "seconds": 1.25,
         "verdict": "passed 3 of 5 tests", "score": 0.6, "input_tokens": 1_000_000, "output_tokens": 500_000},
        {"branch": "2.2", "variation": "other approach", "outcome": "ok", "exit_code": 0, "seconds": 2.5,
         "verdict": "passed 5 of 5 tests", "score": 1.0, "input_tokens": 10, "output_tokens": 5},
        {"branch": "2.3", "outcome": None, "exit_code": None, "verdict": "wrote no code"},
    ],
}  # fmt: skip


def code(branch: str, text: str) -> CodeGenerationEvent:
    block = CodeBlock(code=text, language="python")
    content = f"```python\n{text}\n```"
    given: dict[str, Any] = {
        "content": content,
        "code_blocks": [block],
        "retry_attempt": 1,
        "metadata": {"coderoom.branch": branch},
    }
    return CodeGenerationEvent(source="coder", **given)


def ran(branch: str, output: str, exit_code: int = 0) -> CodeExecutionEvent:
    outcome = "error" if exit_code else "ok"
    facts = {"coderoom.branch": branch, "coderoom.outcome": outcome, "coderoom.exit_code": str(exit_code)}
    result = CodeResult(exit_code=exit_code, output=output)
    return CodeExecutionEvent(source="coder", retry_attempt=1, result=result, metadata=facts)


def judged() -> CodeGenerationEvent:
    facts = {"coderoom.event": "branching", "coderoom.branches": json.dumps(FACTS)}
    given: dict[str, Any] = {
        "content": "2 branches: 2.2 goes on",
        "code_blocks": [],
        "retry_attempt": 1,
        "metadata": facts,
    }
    return CodeGenerationEvent(source="coder", **given)


# As they come while both branches go on at the same time.
MESSAGES: list[BaseAgentEvent] = [
    code("2.1", "print('first')"),
    code("2.2", "print('second')"),
    ran("2.2", "output of the second\n"),
    ran("2.1", "output of the first\n", 1),
    judged(),
]


def journal_of(path: Path) -> tuple[Journal, str]:
    """A journal of a run with both branches, each of which made a file and asked a model."""
    journal = Journal(path)
    run = journal.begin("run", "team", "Compute it.", None, {})
    steps: list[tuple[str, Any, Any]] = [("task", None, {"task": "Compute it."})]
    used = {"usage": {"prompt_tokens": 1_000_000, "completion_tokens": 0}}
    for branch in ("2.1", "2.2"):
        request = {"branch": branch, "priced_as": "gpt-4o", "messages": {"base": 0, "slices": [], "more": []}}
        steps.append(("model", request, used))
    for branch in ("2.1", "2.2"):
        made = [{"name": f"of-{branch}.txt", "media_type": "text/plain", "size": 3}]
        steps.append(("code", {"branch": branch}, {"output": "", "outcome": "ok", "artifacts": made}))
    steps += [("message", None, each.model_dump(mode="json")) for each in MESSAGES]
    for number, (kind, request, result) in enumerate(steps, 1):
        journal.add(run, Step(number, kind, "coder", "", float(number), 0.0, request, result))
    journal.end(run, "ok", {"seconds": 1.0})
    return journal, run


def shown(*messages: BaseAgentEvent, encoding: str = "utf-8", **options: Any) -> str:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, errors="replace", write_through=True)
    view, record = RunView(Console(file=out, width=120), **options), RunRecord(team="t", task="x", isolation="x")
    view.begin(record)
    for message in messages:
        view.show(record.add(message))
    view.end(record)
    return raw.getvalue().decode()


def test_what_branches_tell_at_the_same_time_is_told_under_each() -> None:
    story, folding = Story(), Folding()
    folded = [folding.fold(story.tell(message)) for message in MESSAGES]
    assert folded[:-1] == [None] * 4
    end = folded[-1]
    assert isinstance(end, Branching)
    assert [[type(each) for each in told] for told in end.told.values()] == [[Code, Output], [Code, Output], []]
    assert [told[1].text for told in end.told.values() if told] == ["output of the first\n", "output of the second\n"]
    assert (end.facts.won, [each.score for each in end.facts.branches]) == ("2.2", [0.6, 1.0, None])


def test_the_tree_marks_the_winner_and_shows_its_code_only() -> None:
    text = shown(*MESSAGES)
    [first, second, third] = [line for line in text.splitlines() if re.search(r"[├└]── ", line)]
    assert first == "├──   2.1  error    passed 3 of 5 tests  1,500,000 tokens, 1.2 s  patch"
    assert second == "├── > 2.2  ok       passed 5 of 5 tests  15 tokens, 2.5 s  other approach"
    assert third.rstrip() == "└──   2.3  no code  wrote no code        0 tokens, 0.0 s"
    assert "output of the second" in text
    assert "output of the first" not in text
    assert "output of the first" in shown(*MESSAGES, all_branches=True)


def test_the_output_of_a_run_is_that_of_the_branch_that_goes_on() -> None:
    record = RunRecord(team="t", task="x")
    for message in MESSAGES:
        record.add(message)
    assert record.output == "output of the second\n"


def test_where_there_are_no_box_characters_it_is_ascii() -> None:
    text = shown(judged(), encoding="ascii")
    assert "+--   2.1  error" in text
    assert "+-- > 2.2  ok" in text


def test_branches_that_did_not_end_are_shown_with_all_that_they_told() -> None:
    text = shown(*MESSAGES[:-1])
    assert "output of the first" in text
    assert "output of the second" in text


def test_files_and_costs_belong_to_their_branches(tmp_path: Path) -> None:
    journal, run = journal_of(tmp_path / "journal")
    told = [*tell_steps(journal.steps(run))]
    files = {each.branch: [file["name"] for file in each.files] for each in told if isinstance(each, Output)}
    assert files == {"2.1": ["of-2.1.txt"], "2.2": ["of-2.2.txt"]}
    [end] = [each for each in told if isinstance(each, Branching)]
    assert [each.cost_usd for each in end.facts.branches] == [2.5, 2.5, None]
    journal.close()


def test_the_page_has_the_winner_open_and_the_others_closed(tmp_path: Path) -> None:
    journal, run = journal_of(tmp_path / "journal")
    page = run_page(journal, journal.find(run))
    _, first, second, third = page.split('<ul class="branches">')[1].split("</ul>")[0].split("<li>")
    assert first.startswith("<details><summary><b>2.1</b>")
    assert second.startswith("<details open><summary><b>2.2</b>")
    assert third.startswith("<b>2.3</b>")
    assert "output of the first" in first
    assert "output of the second" in second
    assert "$2.50" in first
    journal.close()


def test_a_run_of_the_journal_is_shown_with_costs_and_as_data(tmp_path: Path) -> None:
    journal, run = journal_of(tmp_path / "journal")
    journal.close()
    options = ["--journal", str(tmp_path / "journal")]
    text = coderoom("runs", "show", run, *options, cwd=tmp_path).stdout
    assert "passed 5 of 5 tests  15 tokens, $2.50, 2.5 s" in text
    data = json.loads(coderoom("runs", "show", run, "--json", *options, cwd=tmp_path).stdout)
    assert data["branchings"][0]["won"] == "2.2"
    assert data["branchings"][0]["branches"][0]["succeeded"] is False
    assert [each["cost_usd"] for each in data["branchings"][0]["branches"]] == [2.5, 2.5, None]
    same = coderoom("runs", "diff", run, run, *options, cwd=tmp_path)
    assert (same.returncode, same.stdout) == (0, "The runs are equal.\n")


@pytest.mark.slow
def test_the_branches_of_solve_are_in_its_run(tmp_path: Path) -> None:
    repair = {"wrong": "implementation", "reason": "so", "implementation": "def double(x):\n    return x + 1"}
    model = recording(tmp_path / "r.json", [SPECS, TESTS, WRONG, json.dumps(repair), GOOD])
    options = ["--journal", "journal", "--model", model, "--no-strength", "--branches", "2"]
    done = coderoom("solve", "Double.", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "└── > 1.2  ok     passed 3 of 3 tests" in done.stdout
    again = coderoom("runs", "show", "--journal", "journal", cwd=tmp_path)
    assert "└── > 1.2  ok     passed 3 of 3 tests" in again.stdout
    page = coderoom("runs", "show", "--journal", "journal", "--html", "-", cwd=tmp_path).stdout
    assert "double: branching 1: 1.2 goes on (passed 3 of 3 tests)" in page
