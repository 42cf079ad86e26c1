"""The pages of real runs for everybody: narrow and wide, light and dark, by keyboard, and with hostile texts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page

from coderoom.runs import Journal
from coderoom.runs.pages.run import run_page
from tests.support.browser import browsing, overflow_of
from tests.support.commands import ROOT, coderoom, recording

HOSTILE = "<script>hacked=1</script><img src=http://127.0.0.1:9/x onerror=hacked=1>"
TASK = f"Zeichne die Größe. 画图 ارسم {HOSTILE}"
FAILS = f"```python\nprint('\\x1b[31mred\\x1b[0m \\x07 {HOSTILE}')\nprint(sum(valuess))\n```"
DRAWS = f"""Zweiter Versuch.

```python
import csv, json, pandas, matplotlib.pyplot as plt
print("\\n".join(f"Zeile {{n}}: مرحبا 你好" for n in range(200)), "{HOSTILE}")
with open("data.csv", "w", newline="") as file:
    csv.writer(file).writerows([["name", "größe"], *[[f"n{{n}}", n * 7 % 300] for n in range(300)]])
json.dump([{{"a": 1, "b": "x"}}, {{"a": 2, "b": "{HOSTILE}"}}], open("table.json", "w"))
open("notes.md", "w").write("# Notizen\\n{HOSTILE}\\n\\n- *eins*")
open("p<b>.html", "w").write("{HOSTILE}")
display(pandas.DataFrame({{"n": [10, 9, 100], "w": ["c", "{HOSTILE}", "b"]}}))
class Framed:
    def _repr_html_(self): return "<p>framed {HOSTILE}"
display(Framed())
plt.plot([1, 2, 3])
plt.title("Größe")
plt.show()
```"""
ANSWER = f"Die Summe ist **6**. 总和是6。\n\nعدد 6\n\n{HOSTILE}\n\n| a | b |\n|---|---|\n| 1 | 2 |"


_REFUSED = ("Blocked script execution in 'about:srcdoc'", "Loading the image 'http://127.0.0.1:9/x' violates")
"""What the browser says of hostile HTML that code has displayed, in its frame."""


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    """A journal with real runs: two tasks of a team, one that failed, one cut by its budget, a notebook, a solution."""
    folder = tmp_path_factory.mktemp("runs")
    env = {"CODEROOM_JOURNAL": str(folder / "journal")}
    good = recording(folder / "good.json", [FAILS, DRAWS, ANSWER, "Noch 100."])
    bad = recording(folder / "bad.json", ["```python\n1/0\n```"] * 2)
    primes = f"replay:{ROOT / 'examples' / 'primes.replay.yaml'}"
    (folder / "notes.md").write_text("# Notes\n\n```python\nprint(1)\n```\n\n```python\n1 / 0\n```\n")
    for *command, code in (
        ("run", "code-act", TASK, "--model", good, 0),
        ("run", "code-act", "Und noch etwas.", "--continue", 1),
        ("run", "code-act", "Divide.", "--model", bad, 1),
        ("run", "coder-reviewer", "Primes?", "--model", primes, "--budget", "model_calls=2", 1),
        ("resume", "last", "--budget", "model_calls=20", 0),
        ("exec", "notes.md", 1),
        ("solve", "Roman numerals.", "--model", f"replay:{ROOT / 'examples' / 'solve.replay.yaml'}", 0),
    ):
        done = coderoom(*map(str, command), cwd=folder, env=env)
        assert done.returncode == code, (command, done.stdout, done.stderr)
    return Journal(folder / "journal")


@asynccontextmanager
async def opened(browser: Browser, address: str, *, width: int = 1280, colours: str = "light") -> AsyncIterator[Page]:
    """A page, which at the end has said nothing in the console, asked nobody else, and run no hostile code."""
    view: Any = {"color_scheme": colours, "viewport": {"width": width, "height": 800}}
    context = await browser.new_context(**view)
    start, page, said = address.rpartition("/")[0], await context.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfinished", lambda request: said.append(f"loaded {request.url.removeprefix(start)}"))
    await page.goto(address)
    yield page
    assert await page.evaluate("typeof hacked") == "undefined"
    allowed = ("loaded data:image/", "loaded /", *_REFUSED)
    assert [each for each in said if not each.startswith(allowed)] == []
    assert await overflow_of(page) == 0
    await context.close()


async def faults_of(page: Page) -> list[str]:
    """What axe finds that is serious."""
    found = (await Axe().run(page)).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [f"{each['id']}: {node['html'][:200]}" for each in serious for node in each["nodes"]]


@pytest.mark.slow
@pytest.mark.browser
async def test_axe_finds_nothing_serious_on_the_pages_of_runs(journal: Journal, tmp_path: Path) -> None:
    async with browsing() as browser:
        for entry in journal.runs():
            file = tmp_path / f"{entry.id}.html"
            file.write_text(run_page(journal, entry), encoding="utf-8")
            for width, colours in ((400, "light"), (1280, "dark")):
                async with opened(browser, file.as_uri(), width=width, colours=colours) as page:
                    await page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
                    assert await faults_of(page) == [], (entry.name, width, colours)


@pytest.mark.slow
@pytest.mark.browser
async def test_a_page_of_a_run_is_used_by_keys_and_links(journal: Journal, tmp_path: Path) -> None:
    [entry] = [each for each in journal.runs() if each.task.startswith("Zeichne")]
    file = tmp_path / "run.html"
    file.write_text(run_page(journal, entry), encoding="utf-8")
    async with browsing() as browser, opened(browser, file.as_uri()) as page:
        assert await page.locator(".outline a.bad, .outline a.good").all_inner_texts() == [
            "attempt 1 error",
            "attempt 2 ok",
        ]
        # Plots and tables are beside the answer, in the first screen.
        assert await page.evaluate("document.querySelector('.answer img').getBoundingClientRect().y < innerHeight")
        table = page.locator(".answer table.sortable").first
        await table.get_by_role("button", name="n", exact=True).click()
        assert await table.locator("tbody td:nth-child(2)").all_inner_texts() == ["9", "10", "100"]
        assert await page.locator("iframe").last.get_attribute("sandbox") == ""

        await page.keyboard.press("j")
        await page.keyboard.press("j")
        first, second = [await page.locator(".entry").nth(at).get_attribute("id") for at in (0, 1)]
        assert await page.evaluate("document.activeElement.id") == second
        await page.keyboard.press("k")
        assert await page.evaluate("document.activeElement.id") == first

        line = page.get_by_text("Zeile 100:").first
        assert not await line.is_visible()
        await page.keyboard.press("/")
        await page.keyboard.type("zeile 100:")
        assert await page.locator(".find output").inner_text() == "1 of 3"
        assert await line.is_visible()
        await page.keyboard.press("Escape")
        await page.keyboard.press("n")
        numbers = "getComputedStyle(document.querySelector('.code-box > pre'), '::before').content"
        assert await page.evaluate(numbers) == '"1\\a 2"'
        await page.keyboard.press("?")
        assert await page.get_by_role("dialog").is_visible()
        await page.keyboard.press("Escape")

        await page.get_by_role("link", name=re.compile("request")).first.click()
        request = page.locator(".request").first
        assert await request.get_attribute("open") is not None
        assert "Zeichne" in await request.inner_text()
        await page.get_by_role("button", name="Zoom in").click()
        assert await page.evaluate("document.querySelector('#time-window').scrollWidth") > 1500
        await page.locator("#time-line a").last.click()
        await page.wait_for_url(re.compile("#step-"))
        assert await page.locator(".entry:target").count() == 1
