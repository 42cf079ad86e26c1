"""A server on a real Ray cluster of two nodes, which are processes of this machine."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integrations.service import client_of, process_serving
from tests.support.processes import family, is_there
from tests.support.ray_cluster import NOT_WAITED_FOR, ray_cluster

WARNINGS = {"PYTHONWARNINGS": "error,ignore::DeprecationWarning"}  # Ray Serve uses what Pydantic will not have.

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.filterwarnings(NOT_WAITED_FOR)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster with two nodes for replicas, besides that of the front."""
    with ray_cluster(monkeypatch, num_cpus=1, resources={"front": 1}) as cluster:
        yield cluster


def eventually(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 90
    while not check():
        assert time.monotonic() < end
        time.sleep(0.2)


def owner_of(id: str) -> str:
    return id[1:].partition("-")[0]


def sessions_by_owner(url: str, owners: int) -> dict[str, str]:
    """Sessions with a state, by the replicas that have them."""
    found: dict[str, str] = {}
    with client_of(url) as client:
        while len(found) < owners:
            made = client.post("/v1/sandboxes", json={})
            assert made.status_code == 201, made.text
            box = made.json()["id"]
            if owner_of(box) not in found:
                session = client.post(f"/v1/sandboxes/{box}/sessions", json={}).json()["id"]
                assert client.post(f"/v1/sessions/{session}/cells", json={"code": "x = 41"}).status_code == 200
                found[owner_of(box)] = session
    return found


def nothing_is_left(processes: dict[int, str]) -> bool:
    return not any(is_there(*each) for each in processes.items())


def test_a_node_dies_under_load_and_its_runs_are_done_by_the_other(cluster: Any, tmp_path: Path) -> None:
    nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
    options = ["--engine", "ray", "--cluster", cluster.address, "--min-replicas", "2", "--cpus", "2"]
    with process_serving(tmp_path, *options, env=WARNINGS) as (url, process):
        sessions = sessions_by_owner(url, 2)
        answers: list[tuple[int, Any]] = []
        over = threading.Event()

        def load(number: int) -> None:
            with client_of(url) as client:
                while not over.is_set():
                    answer = client.post("/v1/run", json={"code": f"import time; time.sleep(0.3); {number}"})
                    answers.append((answer.status_code, answer.json()))
                    assert (answer.status_code, answer.json().get("value")) == (200, number), answer.text

        def stream(session: str) -> str:
            code = {"code": "import time\nfor _ in range(20): print('on', flush=True); time.sleep(0.5)", "stream": True}
            with client_of(url) as client:
                return client.post(f"/v1/sessions/{session}/cells", json=code).text

        with ThreadPoolExecutor(8) as pool:
            loads = [pool.submit(load, number) for number in range(6)]
            streams = {owner: pool.submit(stream, session) for owner, session in sessions.items()}
            eventually(lambda: len(answers) > 20)
            cluster.remove_node(nodes[0], allow_graceful=False)
            so_far = len(answers)
            eventually(lambda: len(answers) > so_far + 40)
            over.set()
            for each in loads:
                each.result()  # Each run was answered, and none with a failure.
            texts = {owner: each.result() for owner, each in streams.items()}
        ends = {owner: re.findall("^event: (error|result)$", text, re.M) for owner, text in texts.items()}
        assert sorted(ends.values()) == [["error"], ["result"]], texts  # Each stream says how it has ended.
        (dead,) = (owner for owner, end in ends.items() if end == ["error"])
        assert "sandbox_unavailable" in texts[dead]
        with client_of(url) as client:
            for owner, session in sessions.items():
                answer = client.post(f"/v1/sessions/{session}/cells", json={"code": "x + 1"})
                if owner == dead:
                    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "session_lost")
                else:
                    assert answer.json()["value"] == 42
            eventually(lambda: _gauge(client, "sessions") == 1)  # What the dead had counts no more.
        cluster.add_node(num_cpus=2)
        assert len(sessions_by_owner(url, 2).keys() - {dead}) == 2  # Another replica is in the place of the dead.
        replicas = [pid for pid in family(os.getpid()) if _name(pid).startswith("ray::ServeReplica")]
        assert len(replicas) == 2
        below = {pid: began for replica in replicas for pid, began in family(replica).items()}
        assert below  # Their sandboxes.
        process.kill()
        eventually(lambda: nothing_is_left(below) and not any(map(_name, replicas)))


def test_the_limits_of_a_tenant_hold_at_all_replicas_and_nothing_is_left_after_sigterm(tmp_path: Path) -> None:
    """On a cluster of this machine, which the command starts. The tenant may have two sandboxes."""
    options = ["--engine", "ray", "--min-replicas", "2", "--cpus", "0.5", "--drain-seconds", "20"]
    with process_serving(tmp_path, *options, env=WARNINGS) as (url, process):
        with client_of(url) as client, client_of(url, "small") as small:

            def make() -> httpx.Response:
                return small.post("/v1/sandboxes", json={"options": {"limits": {"disk_bytes": 1_000_000}}})

            made = [make() for _ in range(4)]
            assert [each.status_code for each in made] == [201, 201, 429, 429]
            ids = [each.json()["id"] for each in made[:2]]
            assert len(set(map(owner_of, ids))) == 2
            assert {each["id"] for each in small.get("/v1/sandboxes").json()["sandboxes"]} == set(ids)
            assert small.delete(f"/v1/sandboxes/{ids[0]}").status_code == 204
            assert [make().status_code for _ in range(2)] == [201, 429]  # What was given back, once.
            assert [client.post("/v1/run", json={"code": str(n)}).json()["value"] for n in range(6)] == list(range(6))
            ran = 'coderoom_run_seconds_count{tenant="one",outcome="ok"} 6'
            eventually(lambda: ran in client.get("/metrics").text)
            below = family(process.pid)
            code = {"code": "import time; print('begun', flush=True); time.sleep(4); print('done')", "stream": True}
            with client.stream("POST", "/v1/run", json=code) as answer:
                lines = answer.iter_lines()
                next(lines)
                process.terminate()
                eventually(lambda: small.post("/v1/run", json={"code": "1"}).status_code == 503)
                results = [json.loads(line[6:]) for line in lines if line.startswith('data: {"outcome"')]
            assert results[0]["stdout"] == "begun\ndone\n"
        assert process.wait(60) == 0
        eventually(lambda: nothing_is_left(below))


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return ""


def _gauge(client: httpx.Client, name: str) -> int:
    found = re.search(rf'coderoom_{name}{{tenant="one"}} (\d+)', client.get("/metrics").text)
    return 0 if found is None else int(found[1])
