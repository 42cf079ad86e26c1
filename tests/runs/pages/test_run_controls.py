"""What a person does on the page of a run that goes on, in a real browser."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from threading import Thread

import pytest

from coderoom.runs import Journal, Step
from coderoom.runs.pages.server import RunServer
from tests.support.browser import browsing, serving
from tests.support.commands import ROOT, environment, recording

from .test_server import get

SCRIPT = "<script>document.title = 'run'</script>"


def python(code: str) -> str:
    return f"```python\n{code}\n```"


@pytest.mark.browser
async def test_a_question_is_answered_and_a_run_is_stopped(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    env = environment({"CODEROOM_JOURNAL": str(journal)})
    replies = [
        python(f"open('removed', 'w')  # {SCRIPT}"),
        python("open('never', 'w')"),
    ]
    model = recording(tmp_path / "r.json", replies)
    serve = [sys.executable, "-m", "coderoom", "runs", "serve"]
    server = subprocess.Popen(serve, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    url = server.stdout.readline().split()[-1]
    command = [sys.executable, "-m", "coderoom", "run", "human-approves", "Compute it.", "--model", model]
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:  # Nobody answers at its input, which stays open.
        try:
            async with browsing() as browser:
                page = await browser.new_page()
                await page.goto(url)
                await page.get_by_role("link", name="Compute it.").click(timeout=20_000)
                question = page.get_by_role("region", name="May this code run?")
                await question.get_by_text(SCRIPT).first.wait_for(timeout=20_000)
                await page.get_by_label("Say something to the team").fill("No <b>other</b> file.")
                await page.get_by_role("button", name="Say it").click()
                await page.get_by_text("For the next step of the team: No <b>other</b> file.").wait_for(timeout=20_000)
                await question.get_by_label("Why").fill("it <b>removes</b> files")
                await question.get_by_role("button", name="No", exact=True).click()
                await page.get_by_text("it <b>removes</b> files").first.wait_for(timeout=20_000)
                await question.get_by_text("never").first.wait_for(timeout=20_000)
                await page.get_by_text("said while the team worked; coder got it first").wait_for(timeout=20_000)
                await question.get_by_text("Edit the code").click()
                field = question.get_by_label("The code")
                assert await field.input_value() == "open('never', 'w')"
                await field.fill("open('started', 'w')\nwhile True: pass")
                await page.get_by_role("button", name="Keys").focus()
                other = Journal(journal)  # What is written stays when the page changes.
                more = other.ask(other.find("last").id, "Another question?")
                await page.get_by_text("Another question?").wait_for(timeout=20_000)
                assert await field.first.input_value() == "open('started', 'w')\nwhile True: pass"
                other.withdraw(more)
                await page.get_by_text("Another question?").wait_for(state="detached", timeout=20_000)
                other.close()
                await question.get_by_role("button", name="Take this code instead").click()
                await question.get_by_text("while True").first.wait_for(timeout=20_000)
                await question.get_by_role("button", name="Yes").click()
                await question.wait_for(state="detached", timeout=20_000)
                async with asyncio.timeout(20):
                    while not list(tmp_path.rglob("started")):
                        await asyncio.sleep(0.1)
                await page.get_by_role("button", name="Stop the run").click()
                await page.get_by_text("cancelled").first.wait_for(timeout=20_000)
                assert await page.get_by_role("button", name="Stop the run").count() == 0
                assert await page.title() == "Compute it."
        finally:
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=20)
            server.send_signal(signal.SIGINT)
            assert server.wait(10) == 0
            server.stdout.close()
    entry = Journal(journal).find("last")
    assert entry.outcome == "cancelled"
    assert not list(tmp_path.rglob("removed"))
    assert not list(tmp_path.rglob("never"))
    assert list(tmp_path.rglob("started"))


@pytest.mark.slow
@pytest.mark.browser
async def test_a_question_about_a_call_is_answered_for_all_of_them(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    env = environment({"CODEROOM_JOURNAL": str(journal), "PYTHONWARNINGS": "ignore"})
    model = recording(tmp_path / "r.json", [python("for to in 'Ann', 'Bob', 'Cy': pay(to, 10)"), "Paid."])
    team = str(ROOT / "examples/approved_calls_team.yaml")
    command = [sys.executable, "-m", "coderoom", "run", team, "Pay them.", "--model", model, "--workspace", "work"]
    async with browsing() as browser:
        with (
            serving(Journal(journal)) as url,
            subprocess.Popen(
                command,
                cwd=tmp_path,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as run,
        ):
            try:
                page = await browser.new_page()
                await page.goto(url)
                await page.get_by_role("link", name="Pay them.").click(timeout=20_000)
                question = page.get_by_role("region", name="May this call be made?")
                await question.get_by_text("A call of pay() by bookkeeper").wait_for(timeout=20_000)
                await question.get_by_text("Edit the call").click()
                field = question.get_by_label("The call")
                assert await field.input_value() == "pay(to='Ann', amount=10)"
                await field.fill("pay(to='Ann', amount=5)")
                await question.get_by_role("button", name="Take this call instead").click()
                await question.get_by_text("amount=5").first.wait_for(timeout=20_000)
                await question.get_by_role("button", name="Yes, call it").click()
                await question.get_by_text("to='Bob'").first.wait_for(timeout=20_000)
                await question.get_by_role("button", name="Always in this session").click()
                # Its input stays open until it has ended.
                assert await asyncio.to_thread(run.wait, 30) == 0
            finally:
                run.kill()
    assert (tmp_path / "payments.txt").read_text() == "5 to Ann\n10 to Bob\n10 to Cy\n"


@pytest.mark.slow
@pytest.mark.browser
async def test_what_code_prints_is_seen_while_it_runs(tmp_path: Path) -> None:
    journal, go_on = tmp_path / "journal", tmp_path / "go_on"
    env = environment({"CODEROOM_JOURNAL": str(journal), "OPENAI_API_KEY": "s3cret-value-1234"})
    waits = (
        "import pathlib, time\nprint('<i>begun</i>', 's3cret-' + 'value-1234', flush=True)\n"
        "while not pathlib.Path('go_on').exists(): time.sleep(0.1)\nprint('It has', 'ended.')"
    )
    (tmp_path / "many.md").write_text(
        "\n\n".join([*(python(f"print({number})") for number in range(150)), python(waits)])
    )
    model = recording(tmp_path / "r.json", [python(waits), "So."])
    commands = (["exec", "many.md"], ["run", "code-act", "Wait.", "--model", model, "--workspace", "."])
    async with browsing() as browser:
        with serving(Journal(journal)) as url:
            page = await browser.new_page()
            for name, arguments in zip(("many.md", "Wait."), commands, strict=True):
                command = [sys.executable, "-m", "coderoom", *arguments]
                with subprocess.Popen(
                    command, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
                ) as run:
                    try:
                        await page.goto(url)
                        await page.get_by_role("link", name=name).click(timeout=20_000)
                        await page.locator(".tail").get_by_text("<i>begun</i>").wait_for(timeout=30_000)
                        assert "s3cret-value-1234" not in await page.content()
                        await page.get_by_text("runs code for").wait_for()
                        old = page.locator(".entry").first
                        await old.evaluate("each => { each.dataset.mine = 1; }")
                        go_on.touch()
                        await page.locator(".story, .entry").get_by_text("It has ended.").wait_for(timeout=20_000)
                        await page.locator(".tail").wait_for(state="detached")
                        assert await old.get_attribute("data-mine") == "1"
                        go_on.unlink()
                    finally:
                        run.send_signal(signal.SIGINT)
                        run.communicate(timeout=20)


def test_what_a_browser_has_of_a_run_is_not_sent_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    run = journal.begin("exec", "many.md", "", None, {})

    def add(number: int) -> None:
        facts = {"code": "x", "language": "python", "outcome": "ok", "number": number, "output": f"output-{number}."}
        journal.add(run, Step(number, "code", "", "", 1.0 + number, 0.5, None, facts))

    for number in range(1, 101):
        add(number)
    with serving(journal) as url:
        page, polled = f"{url}{run}", {"HX-Target": "run"}
        whole = get(page)[1]
        assert "output-1." in whole
        add(101)
        have = ",".join(re.findall(r'<(?:div|ol) [^>]*data-v="(\d+)"', whole))
        new = get(page, **polled, **{"Coderoom-Have": have})[1]
        assert "output-101." in new
        assert "output-1." not in new
        assert "<style" not in new
        assert "output-1." in get(page, **polled)[1]
    journal.close()


def test_forms_of_other_pages_and_of_runs_that_have_ended_do_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    ended = journal.begin("run", "team", "Compute it.", None, {})
    journal.end(ended, "ok", {})
    going = journal.begin("run", "team", "It goes on.", None, {})
    asked = journal.ask(going, "May it?")
    server = RunServer(journal)

    def post(place: str, data: str, **headers: str) -> int:
        request = urllib.request.Request(f"{server.url}{place}", data.encode(), headers)
        server.timeout = 5
        thread = Thread(target=server.handle_request)
        thread.start()
        try:
            opener = urllib.request.build_opener(_NoRedirect)
            with opener.open(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        finally:
            thread.join()

    answer = f"question={asked}&answer=yes&words=fine"
    assert post(f"{going}/answer", answer, **{"Sec-Fetch-Site": "cross-site"}) == 403
    assert post(f"{going}/delete", answer) == 409
    assert post(f"{ended}/stop", "") == post(f"{ended}/answer", answer) == 409
    assert post(f"{going}/answer", f"question={asked}&answer=maybe") == 409
    assert post(f"{going}/answer", answer, **{"Content-Length": "99999999"}) == 413
    assert post(f"{going}/answer", f"question={asked}&answer=edit&code=+") == 409
    assert journal.answer_to(asked) is None
    assert post(f"{going}/answer", answer) == 303
    assert post(f"{going}/answer", answer) == 409
    assert journal.answer_to(asked) == "yes because fine"
    assert post(f"{ended}/say", "words=late") == post(f"{going}/say", "words=+") == 409
    assert post(f"{going}/say", "words=one%0D%0Atwo") == post(f"{going}/say", "words=three") == 303
    assert journal.take_said(going) == ["one\ntwo", "three"]
    assert not journal.take_said(going)
    assert not journal.take_stop(going)
    assert post(f"{going}/stop", "") == 303
    assert journal.take_stop(going)
    assert not journal.take_stop(going)
    server.server_close()
    journal.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: object) -> None:
        return None
