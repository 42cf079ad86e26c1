"""AutoGen Studio's page in a real browser, used as a newcomer uses it.

With CODEROOM_SCREENSHOTS=1 the pictures of docs/studio.md are taken on the way.
"""

from __future__ import annotations

import http.server
import io
import json
import os
import re
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.async_api import Browser, Page, async_playwright, expect
from ruamel.yaml import YAML

from coderoom.configs import shipped_teams
from tests.studio.driving import Studio
from tests.studio.processes import below, wait_until_gone
from tests.studio.teams import CODING, EXECUTOR, agent, sandbox
from tests.studio.teams import team as team_of
from tests.support.commands import ROOT, coderoom
from tests.support.studio import Studio as Server

pytestmark = [pytest.mark.studio, pytest.mark.browser]

PICTURES = ROOT / "docs" / "studio"
SHIPPED = ROOT / "coderoom" / "configs" / "shipped"

SIEVE = "print(sum(all(n % d for d in range(2, n)) for n in range(2, 100))"
PRIMES = [
    [
        f"I count them.\n\n```python\n{SIEVE}\n```",
        '{"retry": true, "reason": "A bracket is missing."}',
        f"```python\n{SIEVE})\n```",
        "There are 25 primes below 100.",
    ],
    ['{"approved": true, "issues": [], "summary": "The number was computed."}'],
]
ENDLESS = [["```python\nimport time\n\nopen('begun', 'w').close()\nwhile True:\n    time.sleep(0.1)\n```"], []]
WIDE = [[f"```python\nprint(6 * 7){' ' * 150}; print('far out')\n```"]]
ASKS = [["```python\nopen('made_by_asks', 'w').write('x')\nprint(6 * 7)\n```", "It is 42."]]


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium (Debian: apt-get install chromium)")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        await browser.close()


@pytest.fixture
async def page(browser: Browser, studio_server: Server) -> AsyncIterator[Page]:
    """A page that knows nothing of the others."""
    page = await browser.new_page(viewport={"width": 1280, "height": 800}, base_url=studio_server.url)
    page.set_default_timeout(30_000)
    expect.set_options(timeout=30_000)
    yield page
    await page.close()


def replayed(team: str, label: str, replies: Sequence[Sequence[str]]) -> dict[str, Any]:
    """A shipped team's file, whose models play recordings, one after the other."""
    data: dict[str, Any] = json.loads(json.dumps(YAML(typ="safe").load(SHIPPED / f"{team}.yaml")))
    left = iter(replies)

    def put(part: Any) -> None:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            if key == "model_client":
                config = {"replies": list(next(left))}
                part[key] = {"provider": "coderoom.configs.ReplayModel", "component_type": "model", "config": config}
            elif isinstance(value, dict | list):
                put(value)

    put(data)
    return {**data, "label": label}


def gallery_of(folder: Path, *teams: Mapping[str, Any]) -> Path:
    """What `coderoom gallery` makes of them."""
    arguments = []
    for team in teams:
        file = folder / f"{team['label']}.json"
        file.write_text(json.dumps(team))
        arguments += ["--team", str(file)]
    done = coderoom("gallery", *arguments, "--out", "gallery.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "gallery.json"


def team_in(gallery: Path, label: str) -> dict[str, Any]:
    teams: list[dict[str, Any]] = json.loads(gallery.read_text())["components"]["teams"]
    return next(team for team in teams if team["label"] == label)


async def picture(page: Page, name: str) -> None:
    """Take a picture for the docs, if that is asked for."""
    if os.environ.get("CODEROOM_SCREENSHOTS"):
        await page.mouse.move(0, 0)
        await expect(page.locator(".ant-message-notice")).to_have_count(0)
        await page.wait_for_timeout(700)  # Things glide to their places.
        taken = Image.open(io.BytesIO(await page.screenshot()))
        PICTURES.mkdir(exist_ok=True)
        taken.convert("RGB").quantize(64).save(PICTURES / f"{name}.png", optimize=True)


async def saved_by(page: Page, button: Any) -> dict[str, Any]:
    """Press something that saves a team, and return the record of it."""
    async with page.expect_response(lambda r: "/api/teams/" in r.url and r.request.method == "POST") as answer:
        await button.click()
    saved: dict[str, Any] = (await (await answer.value).json())["data"]
    return saved


async def saved_and_downloaded(page: Page) -> tuple[Any, Any]:
    """Save the team that stands in the builder, then download it; return what became of it."""
    saved = await saved_by(page, page.locator("button:has(svg.lucide-save)").first)
    async with page.expect_download() as download:
        await page.locator("button:has(svg.lucide-download)").first.click()
    return saved["component"], json.loads(Path(await (await download.value).path()).read_text())


async def begin(page: Page, team: str, task: str) -> None:
    """Begin a session with a team in the playground, and say what to do."""
    await page.goto("/")
    await page.locator("button.ant-dropdown-trigger").click()
    await page.get_by_role("menuitem").filter(has_text=team).first.click()
    async with page.expect_response(lambda r: re.search(r"/api/sessions/\d+/runs", r.url) is not None):
        await page.get_by_role("button", name="New Session").click()
    # Until then, the page shows the last session, and forgets what is typed there.
    await expect(page.get_by_text(re.compile(rf"^{re.escape(team)} - .* Session$")).last).to_be_visible()
    await expect(page.get_by_text("Start a new task")).to_be_visible()
    await say(page, task)


async def say(page: Page, task: str) -> None:
    await page.locator("#queryInput").fill(task)
    await expect(page.locator("#queryInput")).to_have_value(task)
    await page.locator("#queryInput").press("Enter")


async def answer(page: Page, text: str) -> None:
    await page.get_by_placeholder("Type your response...").fill(text)
    await page.get_by_placeholder("Type your response...").press("Enter")


async def test_from_a_gallery_file_to_an_approved_run(page: Page, driver: Studio, tmp_path: Path) -> None:
    gallery = gallery_of(tmp_path, replayed("coder-reviewer", "primes", PRIMES))
    await page.goto("/gallery")
    await expect(page.get_by_text("human-approves")).to_be_visible()
    await picture(page, "gallery")
    await page.get_by_role("button", name="New Gallery").click()
    await page.get_by_text("File Upload").click()
    await page.locator("input[type=file]").set_input_files(gallery)
    await expect(page.get_by_text("Gallery created successfully")).to_be_visible()

    await page.goto("/build")
    await page.get_by_role("button", name="From Gallery").click()
    row = page.locator("div.group", has=page.get_by_text("primes", exact=True))
    await row.hover()
    made = await saved_by(page, row.locator("button"))
    expected = team_in(gallery, "primes")
    given = made["component"]["label"]
    assert re.fullmatch(r"primes_\d+", given)
    assert made["component"] == expected | {"label": given}
    label = "count-primes"
    expected["label"] = label
    record = {name: made[name] for name in ("id", "user_id", "version")}
    driver.post("/teams/", record | {"component": expected})
    # There is more room for it without what stands beside it.
    for _ in range(2):
        await page.locator("button:has(svg.lucide-panel-left-close)").first.click()
    await page.goto(f"/build?teamId={made['id']}")
    for node in ("coder", "reviewer"):
        await expect(page.locator(".react-flow__node", has_text=node).first).to_be_visible()
    await picture(page, "builder")

    # Nothing is lost on the way.
    assert await saved_and_downloaded(page) == (expected, expected)

    await begin(page, label, "How many primes are there below 100?")
    await expect(page.get_by_text("Task completed").first).to_be_visible()
    steps = await page.locator("body").inner_text()
    seen = [
        "How many primes are there below 100?",
        f"{SIEVE}\n",
        "SyntaxError: '(' was never closed",
        "A bracket is missing.",
        f"{SIEVE})\n",
        "ok, exit code 0",
        "There are 25 primes below 100.",
        "Approved. The number was computed.",
    ]
    places = [steps.rfind(text) for text in seen]
    assert -1 not in places, (seen, steps)
    # A high window shows the whole run.
    await page.set_viewport_size({"width": 1280, "height": 1600})
    await expect(page.get_by_text("I count them.").last).to_be_in_viewport()
    await picture(page, "run")


async def test_the_builder_loses_nothing_of_a_team(page: Page, driver: Studio, tmp_path: Path) -> None:
    pair = replayed("coder-reviewer", "nested", PRIMES)
    inner = team_of(CODING, agent(EXECUTOR, "runner", code_executor=sandbox(Path("work"))), name="inner")
    pair["config"]["participants"].append(inner)
    gallery = gallery_of(tmp_path, pair)
    for label in (*shipped_teams(), "nested"):
        expected = team_in(gallery, label)
        await page.goto(f"/build?teamId={driver.add_team(expected)['id']}")
        for participant in expected["config"]["participants"]:
            node = page.locator(".react-flow__node-agent", has_text=participant["config"]["name"])
            await expect(node.first).to_be_visible()
        assert await saved_and_downloaded(page) == (expected, expected)


async def test_an_endless_loop_is_ended_by_the_pages_button(
    page: Page, studio_server: Server, driver: Studio, tmp_path: Path
) -> None:
    begun = studio_server.appdir.parent / "coderoom-workspace" / "begun"
    before = set(below(studio_server.pid))
    driver.add_team(team_in(gallery_of(tmp_path, replayed("coder-reviewer", "endless", ENDLESS)), "endless"))
    await begin(page, "endless", "Wait.")
    await expect(page.get_by_text("while True:").first).to_be_visible()
    end = time.monotonic() + 30
    while not begun.exists():
        assert time.monotonic() < end, "no code was started"
        await page.wait_for_timeout(100)
    running = set(below(studio_server.pid))
    assert running - before
    await page.get_by_role("button", name="Cancel Run").click()
    await expect(page.get_by_text("Task was stopped").first).to_be_visible()
    await picture(page, "stopped")
    assert wait_until_gone(running - before, 30) == {}
    assert set(below(studio_server.pid)) <= before


async def test_a_question_is_answered_at_the_page(
    page: Page, studio_server: Server, driver: Studio, tmp_path: Path
) -> None:
    made = studio_server.appdir.parent / "coderoom-workspace" / "made_by_asks"
    driver.add_team(team_in(gallery_of(tmp_path, replayed("human-approves", "asks", ASKS)), "asks"))

    await begin(page, "asks", "What is 6 times 7?")
    await expect(page.get_by_text("Waiting for your input").first).to_be_visible()
    question = page.get_by_text("Answer yes or no")
    await expect(question).to_be_visible()
    await expect(page.get_by_text("open('made_by_asks', 'w')")).to_have_count(1)
    await picture(page, "approval")
    await answer(page, "yes, but without the file")
    await expect(page.get_by_text("neither a yes nor a no")).to_be_visible()
    await answer(page, "no")
    await expect(page.get_by_text("Task completed").first).to_be_visible()
    await expect(page.get_by_text("A person said no").first).to_be_visible()
    await expect(page.get_by_text("Attempt 1 was not allowed to run").first).to_be_visible()
    await picture(page, "rejected")
    assert not made.exists()

    await say(page, "And now?")
    await expect(page.get_by_text("Waiting for your input").first).to_be_visible()
    await answer(page, "yes")
    await expect(page.get_by_text("It is 42.").first).to_be_visible()
    assert made.exists()


async def test_no_code_is_pushed_out_of_sight(page: Page, driver: Studio, tmp_path: Path) -> None:
    driver.add_team(team_in(gallery_of(tmp_path, replayed("human-approves", "wide", WIDE)), "wide"))
    await begin(page, "wide", "What is 6 times 7?")
    await expect(page.get_by_text("Waiting for your input").first).to_be_visible()
    code = page.locator("pre", has_text="far out")
    await expect(code).to_be_visible()
    box = await code.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 1280
    await answer(page, "no")
    await expect(page.get_by_text("Attempt 1 was not allowed to run").first).to_be_visible()


async def test_wide_code_does_not_push_the_buttons_out_of_sight(page: Page, driver: Studio, tmp_path: Path) -> None:
    runner = agent(EXECUTOR, "runner", code_executor=sandbox(tmp_path))
    driver.add_team({**team_of(CODING, runner), "label": "wide code"})
    line = f"print('{'x' * 300}'); print(sum([{', '.join(map(str, range(60)))}]))"
    await begin(page, "wide code", f"```python\n{line}\n```")
    await expect(page.get_by_text("Task completed").first).to_be_visible()
    await expect(page.get_by_text("1770").first).to_be_visible()
    # The last message is what was printed, as it is.
    assert (await page.get_by_text("1770").last.inner_text()).splitlines()[-1] == "1770"
    assert await page.evaluate("document.documentElement.scrollWidth") <= 1280
    for code in await page.locator("pre").all():
        assert await code.evaluate("code => code.scrollWidth <= code.clientWidth")
    await page.goto("/gallery")
    await expect(page.get_by_role("button", name="Add Team")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 1280


@contextmanager
def somebodys_server() -> Iterator[tuple[str, list[str]]]:
    """A server of somebody's, and what it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            serving.join()


async def test_what_code_prints_tells_no_other_server(page: Page, driver: Studio, tmp_path: Path) -> None:
    """A picture in a message would, and the code has no network."""
    runner = agent(EXECUTOR, "runner", code_executor=sandbox(tmp_path))
    driver.add_team({**team_of(CODING, runner), "label": "runner"})
    with somebodys_server() as (url, asked):
        await begin(page, "runner", f"```python\nprint('![a picture]({url}/told?{{}})'.format(6 * 7))\n```")
        shown = page.locator("img[alt='a picture']").first
        await expect(shown).to_be_attached()
        await expect(shown).to_have_js_property("complete", True)
        assert await shown.evaluate("picture => picture.src") == f"{url}/told?42"
    assert asked == []
