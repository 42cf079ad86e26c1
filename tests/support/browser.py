"""A real browser, and what is asked of every page in it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Thread
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright

from coderoom.runs import Journal
from coderoom.runs.pages.server import RunServer


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """A browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium (Debian: apt-get install chromium)")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


async def overflow_of(page: Page) -> int:
    """How many pixels a page is wider than its window."""
    return int(await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@asynccontextmanager
async def visiting(browser: Browser, width: int, colours: Any) -> AsyncIterator[Page]:
    """A page that is narrow or wide, light or dark. At the end, nothing is wider than it, and nothing has failed."""
    context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=colours)
    page = await context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        yield page
        assert await overflow_of(page) == 0
        assert said == []
    finally:
        await context.close()


async def faults_of(page: Page) -> list[str]:
    """What axe finds that is serious."""
    found = (await Axe().run(page)).response["violations"]
    return [f"{each['id']}: {each['nodes']}" for each in found if each["impact"] in ("serious", "critical")]


@contextmanager
def serving(journal: Journal) -> Iterator[str]:
    """The address of the pages of a journal."""
    with RunServer(journal) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()
