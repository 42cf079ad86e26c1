"""The page of a run and the server of pages, in a real browser."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from coderoom.runs import Journal, Step
from coderoom.runs.pages.run import run_page
from tests.support.browser import browsing, overflow_of
from tests.support.commands import coderoom, environment, recording

SCRIPT = "<script>document.title = 'run'</script>"


def long_run(path: Path, cells: int) -> Journal:
    """A journal with a run of many cells, each with a script as its output."""
    journal = Journal(path)
    run = journal.begin("run", "team", f"Compute it. {SCRIPT}", None, {})
    journal.add(run, Step(1, "task", "user", "", 0.0, 0.0, None, {"task": "Compute it."}))
    for number in range(cells):
        code = {"language": "python", "code": f"x = {number}\n" * 20}
        said: dict[str, Any] = {
            "type": "CodeGenerationEvent",
            "content": f"Cell {number} {SCRIPT}",
            "code_blocks": [code],
        }
        ran = {"type": "CodeExecutionEvent", "result": {"output": f"{number} {SCRIPT}\n" * 20, "exit_code": 0}}
        done = {"outcome": "ok", "output": "", "artifacts": []}
        request = {"blocks": [["python", code["code"]]]}
        journal.add(run, Step(3 * number + 2, "message", "coder", "", float(number), 0.0, None, said))
        journal.add(run, Step(3 * number + 3, "code", "coder", "", float(number), 0.5, request, done))
        journal.add(run, Step(3 * number + 4, "message", "coder", "", float(number), 0.0, None, ran))
    journal.end(run, "ok", {"answer": f"{SCRIPT} **42**", "output": f"41 {SCRIPT}", "seconds": 1.0})
    return journal


def test_a_retry_without_code_is_words_and_the_next_code_shows_what_has_changed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    run = journal.begin("run", "team", "Compute it.", None, {})
    for number, code in enumerate(("x = 1", "", "x = 2"), 1):
        blocks = [{"language": "python", "code": code}] * bool(code)
        said = {"type": "CodeGenerationEvent", "content": f"Words {number}.", "code_blocks": blocks}
        journal.add(run, Step(number, "message", "coder", "", 0.0, 0.0, None, said))
    page = run_page(journal, journal.find(run))
    assert page.count("what has changed") == 1
    assert page.count('<pre class="hl"') == 2
    assert re.search(r"Words 2\..*<del>-x = 1</del>\s*<ins>\+x = 2</ins>", page, re.DOTALL)
    journal.close()


def test_the_head_says_how_sure_the_verdict_of_solve_is(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    heads = []
    for fooled in (False, True):
        run = journal.begin("solve", "", "Double it.", None, {})
        results = [{"passed": True, "can_be_fooled": False}, {"passed": True, "can_be_fooled": fooled}]
        journal.end(run, "ok", {"test_results": results, "duration": 61.25})
        heads.append(run_page(journal, journal.find(run)).partition('id="head"')[2])
    apart, shared = "judged outside of the code&#x27;s process", "can be fooled"
    assert [(apart in head, shared in head) for head in heads] == [(True, False), (False, True)]
    assert "61.2 s" in heads[0]
    journal.close()


def test_a_failed_run_has_its_last_output_at_the_top_and_displayed_html_looks_up_no_host(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    run = journal.begin("run", "team", "Compute it.", None, {})
    html = b"<LINK rel=dns-prefetch href='//secret.example'><meta http-equiv=refresh content=0><p>shown</p>"
    made = [{"name": "v.html", "size": len(html), "media_type": "text/html", "hash": "h", "position": 0}]
    ran = {"outcome": "error", "output": "NameError", "artifacts": made}
    calls = [f"pay(to={SCRIPT!r}): ok"]
    facts = {"coderoom.outcome": "error", "coderoom.calls": json.dumps(calls)}
    told = {"type": "CodeExecutionEvent", "result": {"output": "NameError", "exit_code": 1}, "metadata": facts}
    journal.add(run, Step(1, "code", "coder", "", 0.0, 0.5, {"blocks": []}, ran), {"h": html})
    journal.add(run, Step(2, "message", "coder", "", 0.0, 0.0, None, {**told, "retry_attempt": 0}))
    journal.end(run, "error", {"outcome": "error", "output": "NameError", "agent_stop_reason": "same_failure"})
    page = run_page(journal, journal.find(run))
    head, _, story = page.partition("</header>\n<main")[2].partition('<section class="turn"')
    assert "NameError" in head
    assert "the same code failed in the same way" in head
    assert "&lt;script&gt;document.title = &#x27;run&#x27;" in story
    [frame] = re.findall('srcdoc="([^"]*)"', story)
    assert "shown" in frame
    assert not re.search("&lt;(link|meta http-equiv=refresh)", frame, re.IGNORECASE)
    journal.close()


@pytest.mark.browser
async def test_a_page_of_500_cells_is_readable_offline(tmp_path: Path) -> None:
    long_run(tmp_path / "journal", 500)
    done = coderoom("runs", "show", "--html", "run.html", "--journal", str(tmp_path / "journal"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    async with browsing() as browser:
        for colours in ("light", "dark"):
            for width in (400, 1400):
                view: Any = {"color_scheme": colours, "viewport": {"width": width, "height": 800}}
                context = await browser.new_context(offline=True, **view)
                page = await context.new_page()
                asked: list[str] = []
                page.on("request", lambda request: asked.append(request.url))  # noqa: B023 (called in this round)
                await page.goto((tmp_path / "run.html").as_uri())
                assert len(asked) == 1
                assert "Compute it." in await page.title()
                assert await page.locator("pre.output").count() == 501
                assert await overflow_of(page) == 0
                text = await page.evaluate("document.body.textContent")
                assert text.count(SCRIPT) >= 10_000
                back = await page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert back == ("rgb(255, 255, 255)" if colours == "light" else "rgb(20, 24, 31)")
                await context.close()


@pytest.mark.browser
async def test_a_page_is_live_while_its_run_goes_on(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    env = environment({"CODEROOM_JOURNAL": str(journal)})
    first = f"```python\nprint('first', {SCRIPT!r})\n```"
    model = recording(
        tmp_path / "r.json", [first, "```python\nimport time\nprint('go')\ntime.sleep(4)\n```", "All done."]
    )
    serve = [sys.executable, "-m", "coderoom", "runs", "serve"]
    server = subprocess.Popen(serve, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().split()[-1]
    run = subprocess.Popen(
        [sys.executable, "-m", "coderoom", "run", "code-act", "Compute it.", "--model", model],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.DEVNULL,
    )
    try:
        async with browsing() as browser:
            page = await browser.new_page()
            await page.goto(url)
            await page.get_by_role("link", name="Compute it.").click(timeout=20_000)
            await page.get_by_text("running").first.wait_for(timeout=10_000)
            request = page.locator(".request").first
            await request.locator("summary").first.click(timeout=20_000)
            conversation = request.locator(".conversation")
            await conversation.get_by_text("Compute it.").wait_for(timeout=10_000)
            await page.locator(".entry").first.focus()
            await page.get_by_text("All done.").first.wait_for(timeout=30_000)
            assert await page.title() == "Compute it."
            assert await conversation.is_visible()
            assert await page.evaluate("document.activeElement.className") == "entry"
            last = page.locator(".request").last  # It was not there when the page was opened.
            await last.locator("summary").first.click()
            await last.locator(".conversation").get_by_text("All done.").wait_for(timeout=10_000)
            assert SCRIPT in await page.evaluate("document.body.innerText")
    finally:
        run.wait(30)
        server.send_signal(signal.SIGINT)
        assert server.wait(10) == 0
        server.stdout.close()


def test_the_server_answers_only_who_knows_the_token(tmp_path: Path) -> None:
    from coderoom.runs.pages.server import RunServer

    long_run(tmp_path / "journal", 1).close()

    def get(url: str, **headers: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    async def main() -> None:
        with RunServer(Journal(tmp_path / "journal")) as server:
            serving = asyncio.create_task(asyncio.to_thread(server.serve_forever))
            base = f"http://127.0.0.1:{server.server_port}"
            answers = [
                await asyncio.to_thread(get, url, **headers)
                for url, headers in [
                    (server.url, {}),
                    (f"{server.url}nothing", {}),
                    (f"{server.url}../../etc/passwd", {}),
                    (f"{base}/", {}),
                    (f"{base}/?token={server.token}", {}),
                    (server.url, {"Host": "evil.example"}),
                ]
            ]
            server.shutdown()
            await serving
        assert [status for status, _ in answers] == [200, 404, 404, 404, 404, 404]
        assert server.server_address[0] == "127.0.0.1"
        assert SCRIPT not in answers[0][1]
        assert not any("Compute it." in text for _, text in answers[1:])

    asyncio.run(main())
