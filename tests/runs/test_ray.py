"""Batches on a real Ray cluster of two nodes, which are processes of this machine."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coderoom.runs import Journal
from coderoom.runs.batch import Batch, Result, read_results
from coderoom.sandbox import choose_wall
from tests.support.openai_server import Failure, OpenAIServer, Reply, Request
from tests.support.ray_cluster import NOT_WAITED_FOR, ray_cluster

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings(NOT_WAITED_FOR)]

CODE = "```python\nopen('made.txt', 'w').write(open('given.txt').read() * 2)\nprint(6 * 7)\n```"


def respond(request: Request) -> Reply | Failure:
    if "Refuse." in str(request.messages):
        return Failure(401)
    return Reply(CODE if len(request.messages) == 2 else "It is 42.", delay=0.2)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with ray_cluster(monkeypatch, num_cpus=0) as cluster:
        yield cluster


def tasks(folder: Path, count: int) -> Path:
    (folder / "given.txt").write_text("given ")
    check = "assert open('made.txt').read() == 'given given ' and answer == 'It is 42.'"
    lines = [{"id": f"n/{n}", "task": "Go.", "files": ["given.txt"], "check": check} for n in range(count)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "tasks.jsonl"


def table(folder: Path) -> list[str]:
    return sorted(repr(replace(result, seconds=0.0)) for result in read_results(folder))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    with OpenAIServer(respond=respond) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "test-key-1234")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        yield server


async def results_of(batch: Batch) -> list[Result]:
    async with batch:
        return [result async for result in batch]


@pytest.mark.timeout(400)
async def test_a_node_dies_and_all_is_as_on_one_machine_and_a_killed_batch_leaves_no_folder(
    cluster: Any, server: OpenAIServer, tmp_path: Path
) -> None:
    items, places, model = tasks(tmp_path, 10), tmp_path / "places", "openai:gpt-4o-2024-08-06"
    places.mkdir()
    nodes = [cluster.add_node(num_cpus=2, env_vars={**os.environ, "TMPDIR": str(places)}) for _ in range(2)]

    @contextmanager
    def started(out: str) -> Iterator[subprocess.Popen[str]]:
        """A batch that has some of its results."""
        options = ["--model", model, "--engine", "ray", "--address", cluster.address, "--json"]
        command = [sys.executable, "-m", "coderoom", "batch", "code-act", str(items), "--out", out, *options]
        with (tmp_path / "log").open("w") as log:
            process = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=log)
        with process:
            try:
                while len(list((tmp_path / out).glob("work/*"))) < 2 and process.poll() is None:
                    time.sleep(0.1)
                yield process
            finally:
                process.kill()

    with started("ray") as process:
        cluster.remove_node(nodes[0], allow_graceful=False)
        shown, _ = process.communicate()  # Only the JSON.
        assert (process.returncode, json.loads(shown)["passed"]) == (0, 10), (tmp_path / "log").read_text()
    with started("killed"):
        assert list(places.iterdir())
    while list(places.iterdir()):
        await asyncio.sleep(0.1)

    assert len(await results_of(Batch("code-act", items, tmp_path / "local", model=model))) == 10
    assert Counter(result.id for result in read_results(tmp_path / "ray")) == {f"n/{n}": 1 for n in range(10)}
    assert table(tmp_path / "ray") == table(tmp_path / "local")
    for folder in (tmp_path / "ray", tmp_path / "local"):
        journal = Journal(folder / "journal.sqlite3")
        assert len(journal.runs()) == 10
        for run in journal.runs():
            assert [step.kind for step in journal.steps(run.id) if step.kind != "message"] == [
                "task",
                "model",
                "code",
                "model",
                "verdict",
            ]
            assert (folder / "work" / run.id / "made.txt").read_text() == "given given "
            assert "It is 42." in (folder / "pages" / f"{run.id}.html").read_text()


async def test_what_fails_there_fails_as_here_and_what_is_logged_there_is_shown(
    cluster: Any, server: OpenAIServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "given.txt").write_text("other")
    items = tasks(tmp_path, 1)
    doubled = {"id": "double", "task": "Go.", "files": ["given.txt", "other/given.txt"]}
    refused = {"id": "refused", "task": "Refuse."}
    items.write_text(items.read_text() + json.dumps(doubled) + "\n" + json.dumps(refused) + "\n")
    cluster.add_node(num_cpus=1)
    model = "openai:gpt-4o-2024-08-06"
    batch = Batch("code-act", items, tmp_path / "ray", model=model, engine="ray", address=cluster.address)
    shown = ""
    with caplog.at_level(logging.DEBUG, "coderoom"):
        async with batch:
            assert Counter([result.status async for result in batch]) == {"passed": 1, "errored": 2}
            while "refused, run 1: errored" not in shown:  # Ray shows it a little later.
                await asyncio.sleep(0.1)
                shown += "".join(capfd.readouterr())
    assert batch.notes == []
    assert batch.isolation == (await choose_wall()).name  # As the nodes have said.
    await results_of(Batch("code-act", items, tmp_path / "local", model=model))
    assert table(tmp_path / "ray") == table(tmp_path / "local")


async def test_a_budget_holds_on_all_nodes_and_a_node_without_a_place_to_write_is_left(
    cluster: Any, server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, model = tasks(tmp_path, 6), "openai:gpt-4o-2024-08-06"
    cluster.add_node(num_cpus=1, env_vars={**os.environ, "TMPDIR": "/proc/nowhere"})
    cluster.add_node(num_cpus=1)
    from coderoom.models.budgets import Budget

    batch = Batch("code-act", items, tmp_path / "out", model=model, engine="ray", address=cluster.address)
    (tmp_path / "prices.yaml").write_text("gpt-4o: [2.5, 10]\n")
    monkeypatch.setenv("CODEROOM_PRICES", str(tmp_path / "prices.yaml"))
    batch.budget, batch.requests_per_minute = Budget(model_calls=8, cost_usd=9), 6000
    first = await results_of(batch)
    assert (len(first), len(server.requests)) == (len(first), 8)
    assert "budget of the batch" in batch.stopped
    batch = Batch("code-act", items, tmp_path / "out", model=model, engine="ray", address=cluster.address)
    second = await results_of(batch)
    assert {result.status for result in [*first, *second]} == {"passed"}
    assert len(first) + len(second) == 6


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data")  # Its own settings.
def test_a_stage_of_ray_data(cluster: Any, server: OpenAIServer, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    from coderoom.ray import map_batches

    cluster.add_node(num_cpus=3)
    ray.init(address=cluster.address, logging_level="ERROR")
    try:
        check = {"expected": "It is 42."}
        rows = [{"id": f"n/{n}", "task": "Go.", "check": json.dumps(check if n else {})} for n in range(4)]
        (tmp_path / "given.txt").write_text("given ")
        for row in rows:
            row["files"] = str(tmp_path / "given.txt")
        made = map_batches(ray.data.from_items(rows), "code-act", model="openai:gpt-4o-2024-08-06", batch_size=2)
        found = {row["id"]: row["result"] for row in made.take_all()}
    finally:
        ray.shutdown()
    assert {name: result["status"] for name, result in found.items()} == {
        "n/0": "errored",
        **{f"n/{n}": "passed" for n in range(1, 4)},
    }
    assert "a check has one of" in found["n/0"]["why"]
    assert found["n/1"]["runs_of_code"] == 1
