"""The list of runs: its queries, and its page in a real browser."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from coderoom.errors import RequestError
from coderoom.runs import Journal, Step
from coderoom.runs.listing import COLUMNS, RunQuery
from coderoom.runs.pages.runs_list import runs_list_page
from tests.support.browser import browsing, faults_of, serving, visiting
from tests.support.commands import coderoom, recording

HOSTILE = "<script>document.title = 'run'</script>\x1b[31m\u202e\" onfocus=alert(1) x='"


def add_run(journal: Journal, number: int, **changed: Any) -> str:
    """A run whose facts depend on its number."""
    task = changed.pop("task", f"Task {number} of many")
    team, outcome = changed.pop("team", f"team-{number % 3}"), changed.pop("outcome", "ok")
    code = changed.pop("code", f"value_{number} = {number}")
    run = journal.begin("run", team, task, None, {}, f"run-{number:03}")
    journal.add(run, Step(1, "task", "user", "", 1.0, 0.0, None, {"task": task}))
    journal.add(run, Step(2, "code", "coder", "", 2.0, 0.5, {"blocks": [["python", code]]}, {"outcome": "ok"}))
    facts = {
        "answer": f"Answer {number}", "approved": number % 2 == 0, "attempts": number, "cost_usd": number / 100,
        "usage": {"prompt_tokens": 2 * number, "completion_tokens": number}, "seconds": 100.0 - number,
        "models": {"coder": "model-a", "reviewer": "model-b"}, **changed,
    }  # fmt: skip
    journal.end(run, outcome, facts)
    return run


def found(journal: Journal, **wanted: Any) -> list[str]:
    return [row.run for row in journal.listed(RunQuery(**wanted)).rows]


def test_runs_are_filtered_sorted_counted_and_searched(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.listed(RunQuery()).rows == []
    runs = [add_run(journal, number) for number in range(1, 7)]
    special = add_run(
        journal, 7, task="Zähle die Wörter von CSV数据分析报告", code="frame.to_csv('x')", outcome="error"
    )
    going = journal.begin("run", "team-9", "It goes on", "model-c", {}, "run-008")
    assert found(journal) == [going, special, *reversed(runs)]
    assert found(journal, sort="tokens", most=2, skip=1) == [runs[5], runs[4]]
    for column in COLUMNS:
        assert len(found(journal, sort=column, descending=False)) == 8, column
    for column in ("verdict", "cost"):  # What is not known comes last.
        assert found(journal, sort=column)[-1] == found(journal, sort=column, descending=False)[-1] == going
    assert found(journal, team="team-1") == [special, runs[3], runs[0]]
    assert found(journal, state="running") == [going]
    assert found(journal, state="not ok") == [special]
    assert found(journal, state="error", model="model-a,model-b") == [special]
    assert found(journal, verdict="approved") == [runs[5], runs[3], runs[1]]
    assert found(journal, cost_from=0.02, cost_to=0.03) == [runs[2], runs[1]]
    began = journal.find(runs[3]).started
    assert found(journal, since=began, before=began + 0.0001) == [runs[3]]
    totals = journal.listed(RunQuery(team="team-2", most=1))
    assert (totals.count, totals.attempts, totals.tokens, totals.seconds) == (2, 7, 21, 193.0)
    assert totals.cost == pytest.approx(0.07)
    assert journal.names("team") == ["team-0", "team-1", "team-2", "team-9"]

    for text in ("zahle", "数据", "分析报告", "to_csv", '"frame.to_csv"', "wör", "answer 7"):
        assert found(journal, text=text) == [special], text
    for text in ("据数", '"csv frame"', "words", "NOT zahle", "task:7"):
        assert found(journal, text=text) == [], text
    assert found(journal, text="many", team="team-1") == [runs[3], runs[0]]
    place = journal.listed(RunQuery(text="报告")).rows[0].found
    assert place[1] == "报告"
    with pytest.raises(RequestError, match="no letter"):
        journal.listed(RunQuery(text=" ** "))

    journal.claim(special)
    journal.end(special, "ok", {"answer": "Ninety"})  # What was searched before is replaced.
    assert found(journal, text="ninety") == [special]
    assert found(journal, text='"Answer 7"') == []
    journal.remove([special])
    assert found(journal, text="ninety") == []
    done = coderoom("runs", "--search", "value_3", "--journal", str(journal.path), cwd=tmp_path)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [runs[2]]
    journal.close()


def test_what_is_known_of_a_run_is_in_the_list_and_goes_along_to_another_journal(tmp_path: Path) -> None:
    one, other = Journal(tmp_path / "one"), Journal(tmp_path / "other")
    run = add_run(one, 2)
    one.add(run, Step(3, "verdict", "", "", 0.0, 0.0, None, {"passed": False, "why": "not 42"}))
    going = one.begin("run", "team", "It goes on", None, {}, "going")
    one.add(going, Step(1, "code", "coder", "", one.find(going).started + 5, 0.5, {}, {}))
    for each in (run, going):
        other.put(one.take(each))
    for journal in (one, other):
        assert journal.listed(RunQuery(text="answer")).rows[0].verdict == "not passed"
    [killed] = other.listed(RunQuery(state="killed")).rows  # No process works on it there.
    assert (killed.run, killed.attempts) == (going, 1)
    assert killed.seconds == pytest.approx(5)
    one.close()
    other.close()


def test_a_journal_of_the_version_before_gets_its_list(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    run = add_run(journal, 4)
    broken = add_run(journal, 5, seconds=float("nan"))  # Which JSON has not.
    rows = journal.listed(RunQuery()).rows
    journal.close()
    with sqlite3.connect(tmp_path / "journal") as database:
        for kind, name in database.execute("SELECT type, name FROM sqlite_master").fetchall():
            is_later = name not in ("runs", "steps", "solutions", "data", "kept", "contents")
            if kind in ("table", "view") and is_later and not name.startswith(("searched_", "sqlite_")):
                database.execute(f"DROP {kind} {name}")
        database.execute("PRAGMA user_version = 4")
    database.close()
    assert [row.run for row in rows] == [broken, run]
    assert journal.listed(RunQuery()).rows == rows
    assert found(journal, text="task 4") == [run]
    journal.close()


@pytest.mark.slow
def test_a_chat_has_the_totals_of_all_its_tasks_and_the_last_one(tmp_path: Path) -> None:
    reply = "```python\nprint(1)\n```"
    model = recording(tmp_path / "r.json", [reply, "One.", reply, "Two."])
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal")}
    done = coderoom("chat", "code-act", "--model", model, cwd=tmp_path, env=env, stdin="Begin.\nGo on <b>.\n")
    assert done.returncode == 0, done.stderr
    journal = Journal(tmp_path / "journal")
    [row] = journal.listed(RunQuery()).rows
    steps = list(journal.steps(row.run))
    used = [step.result["usage"] for step in steps if step.kind == "model"]
    assert (row.task, row.tasks, row.last, row.attempts) == ("Begin.", 2, "Go on <b>.", 2)
    assert row.tokens == sum(each["prompt_tokens"] + each["completion_tokens"] for each in used)
    assert row.seconds == pytest.approx(sum(step.seconds for step in steps), abs=0.002)  # One after the other.
    assert "2 tasks, the last one: Go on &lt;b&gt;." in runs_list_page(journal, {})
    assert journal.runs_frame()["attempts"].tolist() == [2]
    journal.claim(row.run)  # While it goes on, only its steps know.
    assert (journal.listed(RunQuery()).rows[0].tasks, journal.listed(RunQuery()).rows[0].last) == (2, "Go on <b>.")
    journal.close()


def test_the_page_says_what_is_wrong_with_an_address(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert "There are no runs yet" in runs_list_page(journal, {})
    add_run(
        journal, 1, task=HOSTILE, team=HOSTILE, outcome=HOSTILE, answer=f"Found {HOSTILE}", models={"coder": HOSTILE}
    )
    assert "<mark>Found</mark> &lt;script&gt;" in runs_list_page(journal, {"q": "found"})
    for name in (
        "q",
        "team",
        "model",
        "outcome",
        "verdict",
        "began",
        "from",
        "to",
        "cost_from",
        "cost_to",
        "sort",
        "page",
    ):
        page = runs_list_page(journal, {name: HOSTILE})
        assert "<script>document" not in page
        assert 'href="./"' in page
    assert "No run is like that" in runs_list_page(journal, {"team": "none"})
    assert "No run is like that" in runs_list_page(journal, {"began": "yesterday"})
    assert "1 run" in runs_list_page(journal, {"began": "last 7 days"})
    assert "There are no more runs" in runs_list_page(journal, {"page": "9"})
    journal.close()


@pytest.mark.browser
@pytest.mark.slow
async def test_runs_are_found_followed_and_compared(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for number in range(1, 121):
        add_run(journal, number, outcome="error" if number % 4 == 0 else "ok")
    add_run(journal, 200, task=HOSTILE, team=HOSTILE, outcome=HOSTILE, answer=HOSTILE, models={"coder": HOSTILE})
    with serving(journal) as url:
        async with browsing() as browser:
            async with visiting(browser, 1280, "light") as page:
                await page.goto(url)
                rows, totals = page.locator("tbody tr"), page.locator(".totals")
                await expect(rows).to_have_count(50)
                assert await faults_of(page) == []
                await page.locator("#run-run-119 input").check()

                going = journal.begin("run", "code-act", "It goes on", None, {}, "going")
                await expect(page.locator("#run-going")).to_contain_text("running")
                used = {"usage": {"prompt_tokens": 1000, "completion_tokens": 234}}
                journal.add(going, Step(1, "model", "coder", "", 1.0, 1.0, {}, used))
                await expect(page.locator("#run-going [data-label=tokens]")).to_have_text("1,234")
                journal.end(going, "ok", {})
                await expect(page.locator("#run-going .badge.good")).to_have_text("ok")
                await expect(page.locator("#run-run-119 input")).to_be_checked()

                await page.keyboard.press("/")
                await page.keyboard.type("task 77")
                await expect(totals).to_have_text("1 run · 77 attempts · 231 tokens · $0.7700 · 23.0 s")
                assert page.url == f"{url}?q=task%2077"
                await expect(page.locator("#q")).to_be_focused()
                await page.locator("#q").fill("")
                await page.locator("[name=outcome]").select_option("error")
                await expect(totals).to_contain_text("30 runs")
                await page.locator("#by-tokens").click()
                await expect(rows.first).to_contain_text("Task 120")
                await expect(page.locator("th[aria-sort=descending]")).to_have_text("tokens")
                await page.locator("[name=verdict]").select_option("not approved")
                await expect(page.locator(".empty")).to_contain_text("No run is like that")
                await page.go_back()
                await expect(totals).to_contain_text("30 runs")
                assert await page.locator("[name=outcome]").input_value() == "error"
                await page.get_by_role("link", name="Clear").click()
                await page.get_by_role("link", name="Next").click()
                await expect(page.locator(".pages")).to_contain_text("51 to 100 of 122")

                await rows.nth(0).locator("input").check()
                await expect(page.get_by_role("button", name="Compare")).to_be_disabled()
                await rows.nth(1).locator("input").check()
                await page.get_by_role("button", name="Compare").click()
                await expect(page.locator("h1")).to_have_text("Two runs")
                await expect(page.locator(".sides ins").first).to_have_text("Answer 71")
                assert await faults_of(page) == []
            async with visiting(browser, 400, "dark") as page:
                await page.goto(f"{url}?q=document")
                await expect(page.locator("tbody tr")).to_have_count(1)
                assert await page.title() == "Runs"
                height = await page.locator("tbody tr").evaluate("row => row.getBoundingClientRect().height")
                assert height < 600
                assert await faults_of(page) == []
                await page.locator("tbody a").click()
                assert (await page.title()).startswith("<script>")
    journal.close()
