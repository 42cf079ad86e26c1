"""A run of thousands of entries in a real browser, which has few of them as elements, and finds and shows all."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from coderoom.runs import Journal
from coderoom.runs.pages.run import run_page
from tests.support.browser import browsing, faults_of, serving, visiting

from .test_questions import add_run

CELLS = 1_010
"""Each has two entries."""
HOSTILE = '<b id="step-2399">&lt;</b></noscript><script>document.title = "hacked"</script>'


async def here(page: Page) -> int:
    """The number of the step that has the focus."""
    return int((await page.evaluate("document.activeElement.id")).removeprefix("step-"))


@pytest.mark.slow
@pytest.mark.browser
async def test_a_very_long_run_is_read_searched_and_printed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    codes = [(f"x = {at}  # {HOSTILE}", f"\n\nOutput {at} {HOSTILE}\n", "ok") for at in range(CELLS)]
    add_run(journal, "long", codes)
    file = tmp_path / "run.html"
    file.write_text(run_page(journal, journal.find("long")), encoding="utf-8")
    async with browsing() as browser:
        plain = await (await browser.new_context(java_script_enabled=False)).new_page()
        await plain.goto(file.as_uri())
        assert await plain.locator(".entry").count() == 2 * CELLS

        async with visiting(browser, 1280, "light") as page:
            await page.goto(file.as_uri())
            entries = page.locator(".entry")
            await expect(entries.first).to_be_visible()
            assert await entries.count() < 300
            assert await faults_of(page) == []

            # A link to what is not there yet, and keys from there, without a gap.
            await page.get_by_role("navigation").get_by_role("link", name="attempt 600 ok").click()
            await expect(page.locator(".entry:target")).to_be_in_viewport()
            assert await here(page) == 4 * 599 + 3
            for key, by in (("k", -1), ("j", 1)):
                before = await here(page)
                for _ in range(50):
                    await page.keyboard.press(key)
                assert await here(page) == before + by * 4 * 25
            assert await entries.count() < 600

            # It is found, as it was written, wherever it is.
            await page.keyboard.press("/")
            await page.keyboard.type('output 3 <b id="step-2399">&lt;</b></noscript>')
            await expect(page.locator(".find output")).to_have_text("1 of 1")
            output = page.locator("#step-17 pre")
            await expect(output).to_be_in_viewport()
            text = await output.inner_text()
            await page.keyboard.press("Escape")
            for name, is_there in (("attempt 1010 ok", False), ("attempt 4 ok", True)):
                await page.get_by_role("navigation").get_by_role("link", name=name).click()
                await expect(output).to_be_attached(attached=is_there)
            assert await output.inner_text() == text

            # The time line draws what it has left out, where it is zoomed.
            bars = page.locator("#time-line a")
            assert await bars.count() == 1_000
            for _ in range(6):
                await page.get_by_role("button", name="Zoom in").click()
            assert await bars.count() > 1_000
            await page.evaluate("document.querySelector('#time-window').scrollLeft = 0")
            first = page.get_by_label("coder: code, 0.50 s, after 3.0 s")
            await expect(first).to_be_attached()
            assert await first.get_attribute("href") == "#step-5"

            await page.evaluate("dispatchEvent(new Event('beforeprint'))")
            assert await entries.count() == 2 * CELLS
            # Links of a long run make its printing slow, and are there again behind it.
            links = page.locator('.run a[href^="#"]')
            assert await links.count() == 0
            await page.evaluate("dispatchEvent(new Event('afterprint'))")
            assert await links.count() > 2 * CELLS
            assert await page.title() == "Task of long"

        with serving(journal) as url:
            async with visiting(browser, 1280, "light") as page:
                await page.goto(f"{url}long#request-2502")
                await page.locator("#request-2502 summary").first.click()
                await page.locator("#request-2502").click()
                await expect(page.locator("#request-2502 .conversation")).to_contain_text("x = 625")
    journal.close()
