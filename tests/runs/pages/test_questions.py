"""A dozen questions that people have about their runs (docs/runs.md): each is answered within four clicks."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from coderoom.runs import Journal, Step
from tests.support.browser import browsing, faults_of, serving, visiting
from tests.support.commands import coderoom, recording

MOST = 4
CHECKS = ("assert '1' in answer", "assert 'It' in answer")


class Clicks:
    """Counts what a person does on the pages."""

    def __init__(self, page: Page, url: str) -> None:
        self._page, self._url, self.number = page, url, 0

    async def begin(self) -> None:
        """Go to the list of runs."""
        await self._page.goto(self._url)
        self.number = 0

    async def open(self, run: str) -> None:
        """Click on a run in the list."""
        await self.click(self._page.get_by_role("link", name=f"Task of {run}"))

    async def click(self, place: Locator) -> None:
        """Click, if that was not too often."""
        self.number += 1
        assert self.number <= MOST
        await place.click()


def add_run(journal: Journal, name: str, codes: list[tuple[str, str, str]], **facts: Any) -> None:
    """A run of an agent that has written and run some codes, each with its output and outcome."""
    run = journal.begin("run", "code-act", f"Task of {name}", None, {}, name)
    number, now = 0, journal.find(run).started

    def add(
        kind: str, result: Any, *, seconds: float = 0.0, request: Any = None, actor: str = "coder", contents: Any = None
    ) -> None:
        nonlocal number, now
        number, now = number + 1, now + seconds
        journal.add(run, Step(number, kind, actor, "", now, seconds, request, result), contents or {})

    add("task", {"task": f"Task of {name}"}, actor="user")
    for at, (code, output, outcome) in enumerate(codes):
        usage = {"prompt_tokens": 1000 * (at + 1), "completion_tokens": 100}
        request = {"model": "gpt-4o", "priced_as": "gpt-4o", "messages": {"base": 0, "slices": [], "more": []}}
        add("model", {"content": code, "usage": usage, "finish_reason": "stop"}, seconds=3.0 + at, request=request)
        blocks = [{"language": "python", "code": code}]
        said = f"Attempt.\n\n```python\n{code}\n```"
        add("message", {"type": "CodeGenerationEvent", "content": said, "retry_attempt": at, "code_blocks": blocks})
        if facts.get("approved_by"):
            answer = {"approved": True, "reason": "Approved.", "by": facts["approved_by"]}
            add("approval", answer, seconds=1.0, request={"code": said})
        refused = [{"host": "evil.example", "port": 443, "why": "it is not among the hosts"}] * ("evil" in code)
        contents = {"sums": b"sum\n49\n"} if "sums.csv" in code else {}
        made = [{"name": f"{each}.csv", "size": 7, "media_type": "text/csv", "hash": each} for each in contents]
        ran = {"outcome": outcome, "output": output, "artifacts": made, "network": refused}
        add("code", ran, seconds=0.5, request={"blocks": [["python", code]]}, contents=contents)
        told = {"coderoom.outcome": outcome, "coderoom.exit_code": str(int(outcome != "ok")), "coderoom.ran": "true"}
        result = {"output": output, "exit_code": int(outcome != "ok")}
        add("message", {"type": "CodeExecutionEvent", "result": result, "retry_attempt": at, "metadata": told})
    used = {"prompt_tokens": 500 * len(codes) * (len(codes) + 1), "completion_tokens": 100 * len(codes)}
    facts |= {
        "answer": f"Answer of {name}.",
        "attempts": len(codes),
        "usage": {**used, "total_tokens": sum(used.values())},
    }
    journal.end(run, codes[-1][2], facts)


@pytest.mark.slow
@pytest.mark.browser
async def test_a_dozen_questions_take_four_clicks_at_most(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    good, bad = ("total = sum(values)", "6", "ok"), ("total = sum(valuess)", "NameError: valuess", "error")
    add_run(journal, "broke", [good, bad], cost_usd=0.02, seconds=8.0)
    add_run(journal, "fetches", [("import urllib  # evil", "refused", "error"), good], cost_usd=0.03, seconds=8.0)
    add_run(journal, "writes", [("save(49, 'sums.csv')", "", "ok")], files=["work/other-sums.csv", "work/sums.csv"])
    add_run(journal, "dear", [bad], cost_usd=0.5, seconds=4.0, approved_by="Ann")
    journal.catch_up()
    with serving(journal) as url:
        async with browsing() as browser, visiting(browser, 1280, "light") as page:
            by = Clicks(page, url)
            outline = page.get_by_role("navigation", name="Outline")

            # Which attempt broke it, and what changed?
            await by.begin()
            await by.open("broke")
            await by.click(outline.get_by_role("link", name="attempt 2 error"))
            await expect(page.locator(".changes ins")).to_have_text("+total = sum(valuess)")
            await expect(page.locator(".entry:target")).to_be_visible()

            # What did this run cost, and where?
            await by.begin()
            await by.open("broke")
            await expect(page.locator(".facts").get_by_text("$0.02")).to_be_visible()
            await by.click(outline.get_by_role("link", name="Usage"))
            await expect(page.get_by_role("row", name="coder 2 3,000 200")).to_be_in_viewport()

            # Which host was refused?
            await by.begin()
            await by.open("fetches")
            await expect(page.locator(".facts").get_by_text("not reached: evil.example:443")).to_be_in_viewport()
            await by.click(outline.get_by_role("link", name="attempt 1 error"))
            await expect(page.get_by_text("it is not among the hosts").first).to_be_visible()

            # Which run had this in its code?
            await by.begin()
            await by.click(page.locator("#q"))
            await page.keyboard.type("urllib")
            await expect(page.locator("#runs tbody tr")).to_have_count(1)
            await expect(page.locator("mark")).to_have_text("urllib")

            # Which runs that failed were the most expensive?
            await by.begin()
            await by.click(page.locator("select[name=outcome]"))
            await page.locator("select[name=outcome]").select_option("error")
            await expect(page.locator("#runs tbody tr")).to_have_count(2)
            await by.click(page.get_by_role("link", name="cost", exact=True))
            await expect(page.locator("#runs tbody tr").first).to_contain_text("Task of dear")

            # What differs between two runs?
            await by.begin()
            for name in ("broke", "fetches"):
                await by.click(page.locator(f"#run-{name} input"))
            await by.click(page.get_by_role("button", name="Compare two runs"))
            await expect(page.get_by_role("heading", name="The last code")).to_be_visible()

            # What exactly was the model asked, and what did it reply?
            await by.begin()
            await by.open("broke")
            await by.click(page.get_by_role("link", name="request 6"))
            await expect(page.locator("#request-6 .conversation")).to_contain_text("sum(valuess)")

            # The runs one after the other, as the list has them.
            await by.begin()
            await by.open("broke")
            await page.keyboard.press("h")
            await expect(page.get_by_role("navigation", name="The list of runs")).to_contain_text("3 of 4")

            # Which runs of this team failed today?
            await by.begin()
            for name, chosen in (("team", "code-act"), ("outcome", "not ok"), ("began", "today")):
                await by.click(page.locator(f"select[name={name}]"))
                await page.locator(f"select[name={name}]").select_option(chosen)
            await expect(page.locator("#runs tbody tr")).to_have_count(2)
            await by.click(page.get_by_role("link", name="Task of dear"))

            # Who approved this code, and when?
            await by.begin()
            await by.open("dear")
            await by.click(outline.get_by_role("link", name="allowed"))
            asked = page.locator(".entry:target")
            await expect(asked).to_contain_text("The code was allowed by Ann")
            [step] = [step for step in journal.steps("dear") if step.kind == "approval"]
            done = datetime.fromtimestamp(step.at).astimezone()
            await expect(asked.locator("time")).to_contain_text(f"{done:%H:%M:%S}")

            # Which file did it write, and what is in it?
            await by.begin()
            await by.open("writes")
            await by.click(page.locator(".facts").get_by_text("2 files"))
            await by.click(page.locator(".facts").get_by_role("link", name="sums.csv"))
            await expect(page.get_by_role("region", name="sums.csv")).to_contain_text("49")

            # Where did the time go?
            await by.begin()
            await by.open("broke")
            await by.click(outline.get_by_role("link", name="Time"))
            await expect(page.locator(".legend")).to_contain_text("model 7.0 s")
            await expect(page.locator(".legend")).to_be_in_viewport()
    journal.close()


@pytest.mark.slow
@pytest.mark.browser
async def test_questions_about_two_batches(tmp_path: Path) -> None:
    items = tmp_path / "items.jsonl"
    lines = [{"id": f"item-{n}", "task": "Say it.", "check": check} for n, check in enumerate(CHECKS)]
    items.write_text("".join(json.dumps(line) + "\n" for line in lines))
    env = {"CODEROOM_JOURNAL": str(tmp_path / "journal")}
    for name, reply in (("a", "It is 1."), ("b", "It is 2.")):
        model = recording(tmp_path / f"{name}.json", [reply])
        command = ("batch", "code-act", str(items), "--out", name, "--model", model)
        assert coderoom(*command, cwd=tmp_path, env=env).returncode in (0, 1)
    done = coderoom("batch", "diff", "a", "b", "--html", "diff.html", cwd=tmp_path, env=env)
    assert done.returncode in (0, 1), done.stderr
    async with browsing() as browser, visiting(browser, 1280, "light") as page:
        # Which items failed in B, and not in A? And why?
        await page.goto((tmp_path / "diff.html").as_uri())
        worse = page.get_by_role("region", name="Worse in the second")
        await expect(worse).to_contain_text("item-0")
        await worse.get_by_role("link").last.click()
        await expect(page.get_by_text("not passed").first).to_be_visible()

        # The same, from the list of runs, which knows the batches.
        journal = Journal(tmp_path / "journal")
        with serving(journal) as url:
            by = Clicks(page, url)
            await by.begin()
            await by.click(page.get_by_role("link", name="Batches"))
            for at in (0, 1):
                await by.click(page.get_by_role("checkbox").nth(at))
            await by.click(page.get_by_role("button", name="Compare two batches"))
            assert await faults_of(page) == []
            await expect(worse).to_contain_text("item-0")
            await worse.get_by_role("link").last.click()
            await expect(page.get_by_text("not passed").first).to_be_visible()
            await page.get_by_role("link", name="Batches").click()
            assert await faults_of(page) == []

            # The items one after the other, as the table has them.
            await page.get_by_role("link", name="/b").click()
            await page.locator("#table").get_by_role("link", name="item-0").click()
            listed = page.get_by_role("navigation", name="The list of runs")
            await expect(listed).to_contain_text("1 of 2")
            await page.keyboard.press("l")
            await expect(listed).to_contain_text("2 of 2")
            await listed.get_by_role("link", name="previous run").click()
            await expect(listed).to_contain_text("1 of 2")
            await expect(listed.get_by_role("link", name="previous run")).to_be_disabled()
            assert await faults_of(page) == []

            # Why have items not passed?
            await by.begin()
            await by.click(page.get_by_role("link", name="Batches"))
            await by.click(page.get_by_role("link", name="/b"))
            await by.click(page.locator(".reasons summary").first)
            await by.click(page.locator(".reasons").get_by_role("link", name="item-0"))
            await expect(page.get_by_text("not passed").first).to_be_visible()
        journal.close()

        # Its scripts are beside it.
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
