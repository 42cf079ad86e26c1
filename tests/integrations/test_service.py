"""The server's own API: what it does, and what nobody may do with it."""

from __future__ import annotations

import io
import json
import re
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.integrations.service import client_of, serving


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("service"), "--preload", "decimal") as found:
        yield found


def events_of(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


def made(client: httpx.Client, **request: Any) -> str:
    answer = client.post("/v1/sandboxes", json=request)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def opened(client: httpx.Client, box: str, **request: Any) -> str:
    answer = client.post(f"/v1/sandboxes/{box}/sessions", json=request)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_a_run_has_the_fields_of_a_result(url: str) -> None:
    with client_of(url) as client:
        found = client.post("/v1/run", json={"code": "print(input()); (1, {2})", "stdin": "said\n"}).json()
        assert (found["outcome"], found["stdout"]) == ("ok", "said\n")
        assert found["value"] == {"$tuple": [1, {"$set": [2]}]}
        failed = client.post("/v1/run", json={"code": "1/0"}).json()
        assert (failed["outcome"], failed["error"]["type"]) == ("error", "ZeroDivisionError")
        late = client.post("/v1/run", json={"code": "while True: pass", "timeout": 0.3}).json()
        assert (late["outcome"], late["limit"]) == ("timeout", "wall")
        shell = client.post("/v1/run", json={"code": "echo $0", "language": "bash"}).json()
        assert shell["outcome"] == "ok"
        little = {"limits": {"memory_bytes": 64 * 1024 * 1024}}
        memory = client.post("/v1/run", json={"code": "x = bytearray(1 << 30)", "options": little}).json()
        assert memory["outcome"] == "memory"


def test_a_session_keeps_its_state_and_calls_functions_of_the_client(url: str) -> None:
    offer = {"name": "add", "parameters": [{"name": each, "kind": "POSITIONAL_OR_KEYWORD"} for each in "ab"]}
    with client_of(url) as client:
        box = made(client)
        session = opened(client, box, functions=[offer])
        cell = {"code": "x = add(2, b=3)\nprint('got', x)\nx", "stream": True}
        said, result = "", {}
        with client.stream("POST", f"/v1/sessions/{session}/cells", json=cell) as response:
            for name, facts in events_of(response):
                if name == "call":
                    assert (facts["name"], facts["args"], facts["kwargs"]) == ("add", [2], {"b": 3})
                    answer = f"/v1/sessions/{session}/calls/{facts['call']}"
                    with client_of(url, "other") as other:
                        assert other.post(answer, json={"value": 6}).status_code == 404
                    assert httpx.post(url + answer, json={"value": 5}, headers=client.headers).status_code == 204
                elif name == "output":
                    said += facts["text"]
                else:
                    result = facts
        assert (said, result["value"], result["calls"][0]["outcome"]) == ("got 5\n", 5, "ok")
        kept = client.post(f"/v1/sessions/{session}/checkpoints", json={}).json()["id"]
        cells = f"/v1/sessions/{session}/cells"
        client.post(cells, json={"code": "x = 0"})
        assert client.post(f"/v1/sessions/{session}/checkpoints/{kept}/rollback").status_code == 204
        assert client.post(cells, json={"code": "x"}).json()["value"] == 5
        assert client.delete(f"/v1/sandboxes/{box}").status_code == 204
        gone = client.post(cells, json={"code": "x"})
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")


def test_code_reads_what_is_sent_while_it_runs(url: str) -> None:
    with client_of(url) as client, client_of(url, "other") as stranger:
        code = {"code": "print(2 * int(input()), flush=True)\ninput()", "stdin_follows": True}
        assert "stream=true" in client.post("/v1/run", json=code).json()["error"]["message"]
        with client.stream("POST", "/v1/run", json={**code, "stream": True}) as response:
            events = events_of(response)
            name, facts = next(events)
            assert name == "input"
            path = f"/v1/sandboxes/{facts['sandbox']}/inputs/"
            for who, id, data, status in (
                (stranger, facts["id"], "MQ==", 404),
                (client, "0" * 16, "MQ==", 404),
                (client, facts["id"], "MjE", 400),
                (client, facts["id"], "MjEK", 204),
            ):
                assert who.post(f"{path}{id}", json={"data": data}).status_code == status
            assert next(events) == ("output", {"stream": "stdout", "text": "42\n"})
            assert client.post(f"{path}{facts['id']}", json={"end": True}).status_code == 204
            assert list(events)[-1][1]["error"]["type"] == "EOFError"
        assert client.post(f"{path}{facts['id']}", json={"data": "MQ=="}).status_code == 404


def test_files_go_in_and_out_and_nowhere_else(url: str) -> None:
    with client_of(url) as client:
        box = made(client)
        files = f"/v1/sandboxes/{box}/files"
        assert client.put(f"{files}/data/in.txt", content=b"forty\n").status_code == 204
        code = "import os; os.symlink('/etc', 'out'); print(open('data/in.txt').read()); open('o.txt', 'w').write('2')"
        assert client.post(f"/v1/sandboxes/{box}/run", json={"code": code}).json()["stdout"] == "forty\n\n"
        listed = {each["name"]: each["size"] for each in client.get(files).json()["files"]}
        assert listed == {"data/in.txt": 6, "o.txt": 1}
        assert client.get(f"{files}/o.txt").content == b"2"
        for path in ("out/passwd", "%2e%2e/x", "..%2f..%2fetc/passwd", "%2fetc/passwd", "data/../../x", "a%00b"):
            assert client.get(f"{files}/{path}").status_code in (400, 404), path
            assert client.put(f"{files}/{path}", content=b"x").status_code in (400, 404), path
        for name, kind in (("../evil", tarfile.REGTYPE), ("link", tarfile.SYMTYPE), ("out/x", tarfile.REGTYPE)):
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                member = tarfile.TarInfo(name)
                member.type, member.linkname = kind, "/etc/passwd"
                archive.addfile(member, io.BytesIO())
            assert client.put(f"/v1/sandboxes/{box}/archive", content=packed.getvalue()).status_code == 400, name
        with tarfile.open(fileobj=io.BytesIO(client.get(f"/v1/sandboxes/{box}/archive").content)) as archive:
            assert sorted(archive.getnames()) == ["data/in.txt", "o.txt"]
        assert client.delete(f"{files}/data").status_code == 204
        assert [each["name"] for each in client.get(files).json()["files"]] == ["o.txt"]


def test_the_judge_answers_with_verdicts(url: str) -> None:
    tests = {"test": "from answer import add\nassert add(1, 2) == 3\nassert add(1, 2) != 4", "module": "answer"}
    liar = "class E:\n    __eq__ = __ne__ = lambda *_: True\ndef add(a, b): return E()"
    with client_of(url) as client:
        for code, passes in (("def add(a, b): return a + b", True), (liar, False)):
            request = {"code": {"answer.py": code}, "kind": "code", "tests": tests}
            (verdict,) = client.post("/v1/judge", json=request).json()["verdicts"]
            assert verdict["passed"] is passes, verdict
    with client_of(url, "small") as client:  # It has the memory for one run.
        assert client.post("/v1/judge", json=request).status_code == 200


def test_tenants_see_nothing_of_each_other(url: str) -> None:
    with client_of(url) as one, client_of(url, "other") as other:
        box = made(one)
        session = opened(one, box)
        one.put(f"/v1/sandboxes/{box}/files/secret.txt", content=b"x")
        assert other.get("/v1/sandboxes").json() == {"sandboxes": []}
        for method, path in (
            ("GET", f"/v1/sandboxes/{box}"),
            ("DELETE", f"/v1/sandboxes/{box}"),
            ("GET", f"/v1/sandboxes/{box}/files/secret.txt"),
            ("GET", f"/v1/sandboxes/{box}/archive"),
            ("POST", f"/v1/sessions/{session}/cancel"),
            ("DELETE", f"/v1/sessions/{session}"),
        ):
            assert other.request(method, path).status_code == 404, path
        assert other.post(f"/v1/sessions/{session}/cells", json={"code": "1"}).status_code == 404
        assert other.get("/metrics").status_code == 403
        assert 'tenant="other"' in one.get("/metrics").text
        one.delete(f"/v1/sandboxes/{box}")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer token-of-on"}, {"X-API-Key": ""}])
def test_nobody_comes_in_without_a_token(url: str, headers: dict[str, str]) -> None:
    assert httpx.post(f"{url}/v1/run", json={"code": "1"}, headers=headers).status_code == 401
    assert httpx.get(f"{url}/healthz").text == "ok"


def test_a_token_comes_in_any_usual_way_and_from_no_other_page(url: str) -> None:
    bare = urlsplit(url).netloc
    for place, headers in (
        (f"{url}/v1/", {"X-API-Key": "token-of-one"}),
        (f"http://token-of-one@{bare}/v1/", {}),
        (f"http://user:token-of-one@{bare}/v1/", {}),
        (f"{url}/t/token-of-one/v1/", {}),
    ):
        assert httpx.get(place, headers=headers).json()["server"] == "coderoom"
    own = {"Authorization": "Bearer token-of-one"}
    foreign = httpx.post(f"{url}/v1/run", json={"code": "1"}, headers={**own, "Origin": "https://evil.example"})
    assert foreign.status_code == 403


@pytest.mark.slow
def test_without_tokens_only_programs_of_this_machine_come_in(tmp_path: Any) -> None:
    with serving(tmp_path, "--no-token") as url:
        assert httpx.post(f"{url}/v1/run", json={"code": "1"}).json()["value"] == 1
        assert httpx.get(f"{url}/v1/", headers={"Host": "evil.example"}).status_code == 401


def test_options_that_would_reach_the_server_are_refused(url: str) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"network": True}, "network"),
        ({"network": ["*"]}, "allows only"),
        ({"network": ["127.0.0.1"]}, "allows only"),
        ({"network": ["api.example.org"]}, "allows only"),
        ({"credentials": {"api.example.org:443": {"value": "Bearer ${PATH}"}}}, "variables are those of its sender"),
        ({"preload": [["evil", "import os"]]}, "preload"),
        ({"preload": ["no_such_module_here"]}, "preload"),
        ({"env": {"PYTHONPATH": "/workspace"}}, "env"),
        ({"packages": ["/etc/passwd.txt"]}, "not a package"),
        ({"packages": ["allow-builds"]}, "packages"),
        ({"readable": ["/"]}, "no option 'readable'"),
        ({"wall": "none"}, "no option 'wall'"),
        ({"limits": {"wall_second": 3}}, "wall_second"),
    ]
    with client_of(url) as client:
        for options, why in refused:
            answer = client.post("/v1/sandboxes", json={"options": options})
            assert answer.status_code == 400, (options, answer.text)
            assert why in answer.json()["error"]["message"], answer.text
        box = made(client, options={"network": ["api.example.org:443"], "env": {"LEVEL": "3"}})
        assert client.post(f"/v1/sandboxes/{box}/run", json={"code": "!echo $LEVEL"}).json()["stdout"] == "3\n"


@pytest.mark.slow
def test_a_tenant_has_no_more_than_its_limits(url: str) -> None:
    with client_of(url, "small") as client:
        first = made(client, files=False)
        too_large = client.post("/v1/sandboxes", json={"options": {"limits": {"disk_bytes": 1 << 40}}})
        assert (too_large.status_code, too_large.json()["error"]["code"]) == (429, "too_much")
        second = made(client, files=False)
        assert client.post("/v1/sandboxes", json={"files": False}).status_code == 429
        client.delete(f"/v1/sandboxes/{second}")
        opened(client, first)
        opened(client, first)
        assert client.post(f"/v1/sandboxes/{first}/sessions", json={}).status_code == 429
        assert client.post("/v1/run", json={"code": "1", "timeout": 21}).status_code == 400
        statuses: list[int] = []

        def sleep() -> None:
            with client_of(url, "small") as own:
                answer = own.post(f"/v1/sandboxes/{first}/run", json={"code": "import time; time.sleep(2)"})
                statuses.append(answer.status_code)

        threads = [threading.Thread(target=sleep) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(1)  # One runs, one waits.
        refused = client.post(f"/v1/sandboxes/{first}/run", json={"code": "1"})
        assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (429, True)
        for thread in threads:
            thread.join()
        assert statuses == [200, 200]


def test_hostile_requests_have_answers(url: str) -> None:
    host, port = urlsplit(url).hostname, urlsplit(url).port
    head = f"Host: {host}\r\nAuthorization: Bearer token-of-one\r\n"

    def answer(raw: bytes) -> bytes:
        with socket.create_connection((host, port), timeout=30) as sock:
            sock.sendall(raw)
            return sock.recv(65_536)

    both = f"POST /v1/run HTTP/1.1\r\n{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    first = answer(f"{both}0\r\n\r\nGET /v1/ HTTP/1.1\r\n{head}\r\n".encode())
    assert (len(re.findall(rb"HTTP/1.1", first)), first[:12]) == (1, b"HTTP/1.1 400")
    assert answer(b"GARBAGE\r\n\r\n").startswith(b"HTTP/1.1 400")
    with client_of(url) as client:
        deep = "[" * 100_000
        for body in ("", "null", "[]", deep, '{"code": "1", "options": ' + deep, b"\xed\xa0\x80"):
            answered = client.post("/v1/run", content=body, headers={"Content-Type": "application/json"})
            assert answered.status_code in (400, 422), (body[:50], answered.text)
        large = client.post("/v1/run", content=b"x" * (17 << 20), headers={"Content-Type": "application/json"})
        assert large.status_code == 413
        assert client.post("/v1/run", json={"code": "1"}).json()["value"] == 1


@pytest.mark.slow
def test_code_ends_when_its_client_leaves(url: str) -> None:
    with client_of(url) as client:
        box = made(client)
        session = opened(client, box)
        counts = "open('new', 'w').write(str(n)); os.replace('new', 'n'); time.sleep(.05)"  # It may end anywhere.
        cell = {"code": f"import os, time\nfor n in range(600):\n    {counts}"}
        for stream in (False, True):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(
                    f"{url}/v1/sessions/{session}/cells",
                    json={**cell, "stream": stream},
                    headers=client.headers,
                    timeout=1,
                )
            later = client.post(f"/v1/sessions/{session}/cells", json={"code": "open('n').read()"}).json()
            assert int(later["value"]) < 300
