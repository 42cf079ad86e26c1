"""Several processes of one server, and its end."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.integrations.service import client_of, process_serving
from tests.support.commands import coderoom
from tests.support.processes import family, is_there

pytestmark = pytest.mark.slow

WAITS = "import time; print('begun', flush=True); time.sleep({})"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with process_serving(tmp_path_factory.mktemp("workers"), "--workers", "2", "--local-network") as found:
        yield found


@pytest.fixture(scope="module")
def url(server: tuple[str, subprocess.Popen[str]]) -> str:
    return server[0]


def eventually(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not check():
        assert time.monotonic() < end
        time.sleep(0.05)


def made_in_both(url: str) -> dict[str, str]:
    """Sandboxes by their owners."""
    found: dict[str, str] = {}

    def make(_: int) -> str:
        with client_of(url) as client:
            return str(client.post("/v1/sandboxes", json={}).json()["id"])

    with ThreadPoolExecutor(8) as pool:
        for _ in range(6):
            for id in pool.map(make, range(8)):
                found.setdefault(owner_of(id), id)
            if len(found) == 2:
                return found
    raise AssertionError(found)


def owner_of(id: str) -> str:
    return id[1:].partition("-")[0]


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_every_connection_reaches_every_sandbox(url: str) -> None:
    boxes = made_in_both(url)
    clients = [client_of(url) for _ in range(4)]
    for box in boxes.values():
        for number, client in enumerate(clients):
            assert client.put(f"/v1/sandboxes/{box}/files/f{number} ä", content=b"x" * 3_000_000).status_code == 204
        for client in clients:
            names = {each["name"] for each in client.get(f"/v1/sandboxes/{box}/files").json()["files"]}
            assert names == {f"f{number} ä" for number in range(4)}
            assert client.get(f"/v1/sandboxes/{box}/files/f1 ä").content == b"x" * 3_000_000
            assert client.get(f"/v1/sandboxes/{box}/files/none").status_code == 404
        session = clients[0].post(f"/v1/sandboxes/{box}/sessions", json={}).json()["id"]
        clients[0].post(f"/v1/sessions/{session}/cells", json={"code": "x = 0"})
        for client in clients:
            found = client.post(f"/v1/sessions/{session}/cells", json={"code": "x += 1; x"}).json()
        assert found["value"] == 4
    for client in clients:
        listed = {each["id"] for each in client.get("/v1/sandboxes").json()["sandboxes"]}
        assert set(boxes.values()) <= listed
        client.close()


def test_a_snapshot_of_e2b_is_found_from_every_process_by_its_id_and_its_name(url: str) -> None:
    with client_of(url) as client:
        source = client.post("/sandboxes", json={}).json()["sandboxID"]
        taken = client.post(f"/sandboxes/{source}/snapshots", json={"name": "mine"}).json()

    def each(method: str, path: str, body: dict[str, str] | None = None) -> list[httpx.Response]:
        def ask(_: int) -> httpx.Response:
            with client_of(url) as client:
                return client.request(method, path, json=body)

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(ask, range(8)))

    for name in (taken["snapshotID"], "mine"):
        made = each("POST", "/v2/sandboxes", {"templateID": name})
        assert {owner_of(answer.json()["sandboxID"]) for answer in made} == {owner_of(source)}
        assert {answer.json()["templateID"] for answer in made} == {name}
        with client_of(url) as client:
            for answer in made:
                assert client.delete(f"/sandboxes/{answer.json()['sandboxID']}").status_code == 204
    assert {answer.text for answer in each("GET", "/snapshots")} == {f"[{json.dumps(taken, separators=(',', ':'))}]"}
    assert {answer.status_code for answer in each("POST", "/sandboxes", {"templateID": "yours"})} == {404}
    assert sorted(answer.status_code for answer in each("DELETE", "/templates/mine")) == [204, *[404] * 7]


def test_another_tenant_finds_nothing_in_any_process(url: str) -> None:
    boxes = made_in_both(url)
    for _ in range(4):
        with client_of(url, "other") as client:
            assert [client.get(f"/v1/sandboxes/{box}").status_code for box in boxes.values()] == [404, 404]
            assert client.get("/v1/sandboxes").json() == {"sandboxes": []}
            pretended = {"X-CodeRoom-Secret": "", "X-CodeRoom-Tenant": "one"}
            for box in boxes.values():
                assert client.get(f"/v1/sandboxes/{box}", headers=pretended).status_code == 404


def test_a_cell_of_another_process_is_streamed_and_ends_with_its_client(url: str) -> None:
    for box in made_in_both(url).values():
        with client_of(url) as client:
            session = client.post(f"/v1/sandboxes/{box}/sessions", json={}).json()["id"]
        for _ in range(3):
            code = {"code": WAITS.format(60), "stream": True}
            with client_of(url) as client, client.stream("POST", f"/v1/sessions/{session}/cells", json=code) as answer:
                assert next(answer.iter_lines()) == "event: output"
            with client_of(url) as client:  # The cell would be in the way.
                assert client.post(f"/v1/sessions/{session}/cells", json={"code": "1"}).json()["value"] == 1


@pytest.mark.slow
def test_the_sandboxes_of_a_worker_that_was_killed_are_lost_and_the_others_go_on(tmp_path: Path) -> None:
    with process_serving(tmp_path, "--workers", "2") as (url, process):
        boxes = made_in_both(url)
        killed, other = workers_of(process)

        def run(_: int) -> int:
            try:
                with client_of(url) as client:
                    answer = client.post("/v1/run", json={"code": WAITS.format(1)})
                    assert answer.status_code in (200, 503)
                    assert answer.status_code == 503 or answer.json()["stdout"] == "begun\n"
                    return answer.status_code
            except httpx.TransportError:
                return 0

        with ThreadPoolExecutor(8) as pool:
            running = pool.map(run, range(8))
            time.sleep(0.5)
            os.kill(killed, signal.SIGKILL)
            assert 200 in list(running)
        eventually(lambda: len(workers_of(process)) == 2)
        assert other in workers_of(process)
        answers = set()
        for _ in range(6):
            with client_of(url) as client:
                for box in boxes.values():
                    answer = client.get(f"/v1/sandboxes/{box}")
                    answers.add((box, answer.status_code, answer.json().get("error", {}).get("code")))
        assert {status for _, status, _ in answers} == {200, 410}
        assert len(answers) == 2
        assert any(code == "session_lost" for *_, code in answers)
        assert len(made_in_both(url)) == 2
        assert process.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_at_sigterm_what_runs_ends_and_what_is_new_is_refused(tmp_path: Path, workers: str) -> None:
    with process_serving(tmp_path, "--workers", workers, "--drain-seconds", "20") as (url, process):
        with client_of(url) as client, client_of(url) as another:
            code = {"code": WAITS.format(4) + "; print('done')", "stream": True}
            with client.stream("POST", "/v1/run", json=code) as answer:
                lines = answer.iter_lines()
                next(lines)
                process.terminate()
                eventually(lambda: another.get("/healthz").status_code == 503)
                assert another.post("/v1/run", json={"code": "1"}).json()["value"] == 1  # Nobody has noticed yet.
                eventually(lambda: another.post("/v1/run", json={"code": "1"}).status_code == 503)
                results = [json.loads(line[6:]) for line in lines if line.startswith('data: {"outcome"')]
            assert results[0]["stdout"] == "begun\ndone\n"
        assert process.wait(10) == 0


@pytest.mark.slow
def test_with_its_supervisor_all_ends(tmp_path: Path) -> None:
    with process_serving(tmp_path, "--workers", "2") as (url, process):
        workers = {pid: began for pid, began in family(process.pid).items() if pid in workers_of(process)}
        assert len(workers) == 2
        made_in_both(url)
        process.kill()
        process.wait()
        eventually(lambda: not any(is_there(*each) for each in workers.items()))


def test_the_limits_of_a_tenant_hold_for_all_processes(url: str) -> None:
    """The tenant may have two sandboxes, one run at a time, and one that waits."""

    def make(_: int) -> tuple[int, str]:
        with client_of(url, "small") as client:
            answer = client.post("/v1/sandboxes", json={"options": {"limits": {"disk_bytes": 1_000_000}}})
            return answer.status_code, answer.json().get("id", "")

    def run(_: int) -> tuple[int, Any]:
        with client_of(url, "small") as client:
            code = {"code": "import time; begun = time.monotonic(); time.sleep(0.5); (begun, time.monotonic())"}
            answer = client.post("/v1/run", json=code)
            return answer.status_code, answer.json().get("value", {}).get("$tuple")

    with ThreadPoolExecutor(12) as pool:
        made = list(pool.map(make, range(12)))
        assert sorted({status for status, _ in made}) == [201, 429]
        ids = [id for status, id in made if status == 201]
        assert len(ids) <= 2
        with client_of(url, "small") as client:
            assert {each["id"] for each in client.get("/v1/sandboxes").json()["sandboxes"]} == set(ids)
            for id in ids:
                assert client.delete(f"/v1/sandboxes/{id}").status_code == 204
        ran = list(pool.map(run, range(12)))
    times = sorted(times for status, times in ran if status == 200)
    assert {status for status, _ in ran} == {200, 429}
    assert all(ended <= begun for (_, ended), (begun, _) in pairwise(times))


def test_the_metrics_are_those_of_all_processes(url: str) -> None:
    def run(_: int) -> None:
        with client_of(url, "other") as client:
            assert client.post("/v1/run", json={"code": "1/0"}).status_code == 200

    def ended() -> int:
        with client_of(url) as client:
            text = client.get("/metrics").text
        found = re.search(r'coderoom_run_seconds_count\{tenant="other",outcome="error"\} (\d+)', text)
        return 0 if found is None else int(found[1])

    before = ended()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(16)))
    assert [ended() for _ in range(6)] == [before + 16] * 6
    made_in_both(url)
    with client_of(url) as client:
        held = len(client.get("/v1/sandboxes").json()["sandboxes"])
        assert f'coderoom_sandboxes{{tenant="one"}} {held}\n' in client.get("/metrics").text


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Servers at two addresses of this machine, as pods have them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    variables = {"CODEROOM_PEERS_SECRET": "a secret of all servers"}
    with ExitStack() as stack:
        urls = []
        for address in ("127.0.0.1", "127.0.0.2"):
            arguments = ["--port", port, "--host", address, "--address", address, "--peer", "127.0.0.1", "--peer"]
            folder = tmp_path_factory.mktemp("host")
            url, _ = stack.enter_context(process_serving(folder, *arguments, "127.0.0.2", env=variables))
            urls.append(url)
        yield urls


@pytest.mark.slow
def test_signed_urls_and_ports_are_those_of_every_process(url: str) -> None:
    with client_of(url) as client:
        made = client.post("/sandboxes", json={"templateID": "base"}).json()
        token, id = made["envdAccessToken"], made["sandboxID"]

        def signed(operation: str) -> str:
            digest = hashlib.sha256(f"given:{operation}:user:{token}".encode()).digest()
            signature = base64.b64encode(digest).rstrip(b"=").decode()
            return f"{url}/files?path=given&username=user&signature={quote('v1_' + signature, '')}"

        for number in range(12):  # Each has a connection of its own.
            content = str(number) * 300_000
            assert httpx.post(signed("write"), content=content).status_code == 200
            assert httpx.get(signed("read")).text == content
            assert httpx.get(signed("other")).status_code == 401
            assert httpx.get(f"{url}/e2b/signed/read?{signed('read').partition('?')[2]}").status_code == 401
            headers = {"Host": f"8000-{id}.localhost", "e2b-traffic-access-token": token}
            assert httpx.get(url, headers=headers).status_code == 502
            assert "port is not open" in httpx.get(url, headers=headers).text
            assert httpx.get(url, headers={**headers, "e2b-traffic-access-token": "x"}).status_code == 401
        client.delete(f"/sandboxes/{id}")


def test_servers_of_several_hosts_answer_for_each_other(hosts: list[str]) -> None:
    with client_of(hosts[0]) as first, client_of(hosts[1]) as second:
        boxes = [client.post("/v1/sandboxes", json={}).json()["id"] for client in (first, second)]
        for client in (first, second):
            assert {each["id"] for each in client.get("/v1/sandboxes").json()["sandboxes"]} == set(boxes)
            for box in boxes:
                assert client.get(f"/v1/sandboxes/{box}").status_code == 200
        # Of an earlier process at an address, and at an address that is none of theirs.
        earlier = f"b{owner_of(boxes[1])[:8]}00000000-{'0' * 24}"
        elsewhere = f"b7f00000300000000-{'0' * 24}"
        for box in (earlier, elsewhere):
            answer = first.get(f"/v1/sandboxes/{box}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (410, "session_lost")
    with client_of(hosts[0], "other") as client:
        assert [client.get(f"/v1/sandboxes/{box}").status_code for box in boxes] == [404, 404]


def test_servers_that_answer_for_each_other_need_a_secret(tmp_path: Path) -> None:
    failed = coderoom("sandbox", "serve", "--peer", "127.0.0.1", cwd=tmp_path)
    assert failed.returncode == 2
    assert "CODEROOM_PEERS_SECRET" in failed.stderr
