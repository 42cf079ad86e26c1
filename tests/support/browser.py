"""Chromium for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, async_playwright


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
