"""The page of a batch in a real browser."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from coderoom.runs.item_run import Result, name_of
from coderoom.runs.items import BadLine
from coderoom.runs.pages.batch import write_batch_page
from tests.support.browser import browsing
from tests.support.commands import coderoom
from tests.support.hostile import HOSTILE


def batch(folder: Path, items: int, repeats: int = 1) -> Path:
    """The page of a batch; in the fourth part of its items one run has failed, and of each hundredth one errored."""
    (folder / "pages").mkdir(parents=True)
    about = {"team_name": f"team {HOSTILE}", "model": None, "models": {"coder": "gpt-4o"}, "items": "tasks.jsonl"}
    (folder / "batch.json").write_text(json.dumps(about))
    with (folder / "results.jsonl").open("w") as file:
        for number in range(items):
            for repeat in range(1, repeats + 1):
                status = "passed" if number % 4 or repeat > 1 else "errored" if number % 100 == 0 else "failed"
                why = {"passed": "", "failed": f"expected {number}, got '' {HOSTILE}", "errored": "RateLimitError: 429"}
                name, tags = (
                    f"n/{number}{f' {HOSTILE}' * (number == 1)}",
                    [f"level={'easy' if number % 2 else f'hard {HOSTILE}'}"],
                )
                facts = Result(
                    name, repeat, status, "ok", HOSTILE, why[status], 1_000 + number, 9, 0.001 * number, 1, 1,
                    name_of(name, repeat), number / 10 + 0.1, "", 1, "code", False, tags,
                )  # fmt: skip
                file.write(json.dumps(asdict(facts)) + "\n")
                if number < 100 and status != "errored":
                    (folder / "pages" / f"{facts.run}.html").write_text(f"<title>{number}</title>")
    write_batch_page(folder, [BadLine(7, HOSTILE)], [HOSTILE])
    return folder / "index.html"


async def found(page: Page) -> str:
    return await page.locator("#found").inner_text()


@pytest.mark.slow
@pytest.mark.browser
async def test_a_batch_of_10000_items_is_searched_filtered_and_sorted(tmp_path: Path) -> None:
    path = batch(tmp_path, 10_000)
    async with browsing() as browser:
        page = await browser.new_page(color_scheme="dark", viewport={"width": 1280, "height": 800}, offline=True)
        asked: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(path.as_uri())
        assert await found(page) == "1 to 100 of 10,000 runs"
        await page.locator(".cell").nth(9_999).wait_for(state="attached")
        assert await page.locator(".cell.warn").count() == 100
        await page.get_by_role("link", name="2,400 failed").click()
        assert await found(page) == "1 to 100 of 2,400 runs"
        await page.locator("[name=q]").fill("n/404 expected")
        assert await page.locator("#table td.item").all_inner_texts() == ["n/404", "n/4040", "n/4044", "n/4048"]
        for _ in range(2):
            await page.get_by_role("button", name="time").click()
        assert await page.locator("#table td.item").first.inner_text() == "n/4048"
        await page.reload()
        assert await found(page) == "4 runs"
        assert await page.locator("th.time").get_attribute("aria-sort") == "descending"
        await page.goto(f"{path.as_uri()}#")
        await page.get_by_role("button", name="next").click()
        assert await found(page) == "101 to 200 of 10,000 runs"
        reason = page.locator(".reasons details").nth(1)
        await reason.locator("summary").click()
        await reason.get_by_role("link", name="show in the table").click()
        assert await found(page) == "100 runs"
        assert (len(asked), errors) == (2, [])  # The page itself, each time that it was loaded.
        assert (await page.title()).startswith("Batch: team </pre></script>")


@pytest.mark.slow
@pytest.mark.browser
async def test_a_batch_fits_any_screen(tmp_path: Path) -> None:
    path = batch(tmp_path, 30, 3)
    async with browsing() as browser:
        for colours in ("light", "dark"):
            for width in (360, 1280, 2560):
                view: Any = {"color_scheme": colours, "viewport": {"width": width, "height": 800}}
                page = await browser.new_page(**view)
                await page.goto(path.as_uri())
                await page.locator(".cell").nth(89).wait_for(state="attached")
                wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                assert await page.evaluate(wide) == 0
                await page.close()


@pytest.mark.slow
@pytest.mark.browser
async def test_a_batch_is_read_without_scripts_and_saved_with_them(tmp_path: Path) -> None:
    path = batch(tmp_path, 400, 2)
    async with browsing() as browser:
        plain = await browser.new_page(java_script_enabled=False)
        await plain.goto(path.as_uri())
        assert await plain.locator("#table tbody tr").count() == 500
        assert await plain.locator("figure svg title").count() >= 10
        assert not await plain.locator("#filters").is_visible()
        assert "88.0% pass rate (95 %: 84.4% to 90.8%), of 796 checked runs of 400 items" in re.sub(
            r"\s+", " ", await plain.inner_text("body")
        )
        page = await browser.new_page()
        await page.goto(f"{path.as_uri()}#status=failed")
        assert await found(page) == "96 runs"
        saved = {}
        for kind in ("CSV", "JSON"):
            async with page.expect_download() as waiting:
                await page.get_by_role("button", name=f"save as {kind}").click()
            saved[kind] = Path(await (await waiting.value).path()).read_text("utf-8")
        rows = [*csv.DictReader(saved["CSV"].splitlines())]
        assert [row["id"] for row in rows] == [row["id"] for row in json.loads(saved["JSON"])]
        assert {row["status"] for row in rows} == {"failed"}
        assert await page.locator(".cell:not([href])").count() == 1 + 2 * 300  # Runs that have no pages.
        assert await page.locator(".cell.warn[href]").count() == 0
        cell = page.locator(".cell").first
        await cell.focus()
        await page.keyboard.press("ArrowRight")
        focused = await page.evaluate("[document.activeElement.title, document.activeElement.getAttribute('href')]")
        assert focused == ["n/0, 2: passed", f"pages/{name_of('n/0', 2)}.html"]


@pytest.mark.slow
@pytest.mark.browser
async def test_two_batches_are_compared_and_each_change_leads_to_its_runs(tmp_path: Path) -> None:
    batch(tmp_path / "old", 40)
    batch(tmp_path / "new", 36, 2)
    results = (tmp_path / "new" / "results.jsonl").read_text().replace('"failed"', '"passed"', 1)
    (tmp_path / "new" / "results.jsonl").write_text(
        results.replace('"n/7", "repeat": 1, "status": "passed"', '"n/7", "repeat": 1, "status": "failed"')
    )
    (tmp_path / "reports").mkdir()
    done = coderoom("batch", "diff", "old", "new", "--html", "reports/diff.html", cwd=tmp_path)
    assert (done.returncode, "n/7: passed -> failed" in done.stdout) == (1, True), done.stderr
    async with browsing() as browser:
        page = await browser.new_page(viewport={"width": 400, "height": 800})
        await page.goto((tmp_path / "reports" / "diff.html").as_uri())
        worse = page.get_by_role("region", name="Worse in the second")
        assert "n/7" in await worse.inner_text()
        better = page.get_by_role("region", name="Better in the second")
        assert (await better.locator("td.item").all_inner_texts())[:3] == ["n/4", "n/4, 2", "n/8, 2"]
        assert "n/39" in await page.get_by_role("region", name="Other changes").inner_text()
        assert await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        assert await page.title() == "Two batches"
        await better.get_by_role("link", name="passed").first.click()
        assert await page.title() == "4"
        await page.go_back()
        await better.get_by_role("link", name="n/8, 2").click()
        assert await page.title() == "8"
