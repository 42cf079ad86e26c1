"""What hostile clients of the service try: the server goes on, nothing is lost, and nobody gets what is another's."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import struct
import tarfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx
import pytest
from starlette.responses import PlainTextResponse

from coderoom.integrations.http import CALLER, Guard, Message, Receive, Send
from tests.integrations.service import client_of, serving

_HUGE = 10**30


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("service")) as found:
        yield found


def used(client: httpx.Client, gauge: str) -> int:
    lines = client.get("/metrics").text.splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f'coderoom_{gauge}{{tenant="one"}}'))


def e2b_sandbox(client: httpx.Client) -> tuple[str, dict[str, str]]:
    """The token of a new sandbox, and the headers of requests that go inside it."""
    made = client.post("/sandboxes", json={"templateID": "base"}).json()
    return made["envdAccessToken"], {"e2b-sandbox-id": made["sandboxID"], "X-Access-Token": made["envdAccessToken"]}


@pytest.mark.slow
def test_the_server_imports_nothing_that_a_client_names(url: str) -> None:
    with client_of(url) as client:
        # This module runs all tests that it finds, and ends the process, when it is imported.
        for name in ("unittest.__main__.x", "unittest.__main__.__doc__", "a..b", ".", ""):
            answer = client.post("/v1/run", json={"code": "1", "options": {"preload": [name]}})
            assert answer.status_code == 400, name
        known = {"preload": ["json.decoder", "sys", "os.path", "xml.dom.minidom"]}
        assert client.post("/v1/run", json={"code": "1", "options": known}).json()["outcome"] == "ok"


@pytest.mark.slow
def test_a_limit_beyond_all_that_a_tenant_has_is_refused_and_not_counted(url: str) -> None:
    with client_of(url) as client:
        for _ in range(3):
            memory = {"limits": {"memory_bytes": _HUGE}}
            assert client.post("/v1/run", json={"code": "1", "options": memory}).status_code == 429
            disk = {"limits": {"disk_bytes": _HUGE}}
            assert client.post("/v1/sandboxes", json={"options": disk}).status_code == 429
        assert (used(client, "running"), used(client, "sandboxes"), used(client, "disk_bytes")) == (0, 0, 0)


def test_what_a_client_notes_about_a_sandbox_has_a_limit(url: str) -> None:
    with client_of(url) as client:
        answer = client.post("/v1/sandboxes", json={"metadata": {"x": "y" * 100_000}})
        assert (answer.status_code, used(client, "sandboxes")) == (400, 0)


def test_calls_about_files_have_the_limit_of_all_requests(url: str) -> None:
    with client_of(url) as client:
        _, inside = e2b_sandbox(client)
        large = b"{" + b" " * (17 << 20)
        for path in ("/filesystem.Filesystem/Stat", "/filesX"):
            assert httpx.post(url + path, content=large, headers=inside).status_code == 413, path
        client.delete(f"/sandboxes/{inside['e2b-sandbox-id']}")


def test_a_signed_url_is_for_one_file(url: str) -> None:
    with client_of(url) as client:
        token, inside = e2b_sandbox(client)
        for name in ("given", "secret"):
            assert httpx.post(f"{url}/files", params={"path": name}, content=name, headers=inside).is_success
        digest = hashlib.sha256(f"given:read:user:{token}".encode()).digest()
        signature = f"v1_{base64.b64encode(digest).rstrip(b'=').decode()}"
        signed = f"{url}/files?path=given&username=user&signature={quote(signature, '')}"
        assert httpx.get(signed).text == "given"
        for more in ("&path=secret", "&path=", "&username=", "&signature=x"):
            assert httpx.get(signed + more).status_code == 401, more
        assert httpx.post(signed, content=b"x").status_code == 401
        client.delete(f"/sandboxes/{inside['e2b-sandbox-id']}")


def _member(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    facts = tarfile.TarInfo(name)
    facts.type = kind
    head = bytearray(facts.tobuf(tarfile.GNU_FORMAT))
    head[124:136] = (size + (0 if size >= 0 else 256**12)).to_bytes(12, "big") if size < 0 else b"%011o\0" % size
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def _extended(**facts: str) -> bytes:
    facts_of = {name.replace("_", "."): value for name, value in facts.items()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, pax_headers=facts_of):
        pass
    head = bytearray(packed.getvalue()[:1024])
    head[156:157] = b"x"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head[:512])
    return bytes(head)


@pytest.mark.slow
def test_an_archive_has_at_most_20_000_members(url: str) -> None:
    folder = _member("a", 0, tarfile.DIRTYPE)
    with client_of(url) as client:
        box = client.post("/v1/sandboxes", json={}).json()["id"]
        for count, status in ((20_000, 2), (20_001, 4)):
            answer = client.put(f"/v1/sandboxes/{box}/archive", content=folder * count + bytes(1024))
            assert answer.status_code // 100 == status, (count, answer.text)
        client.delete(f"/v1/sandboxes/{box}")


def test_archives_that_make_their_reader_run_in_circles_are_refused(url: str) -> None:
    first = _member("a", 0)
    sparse = _extended(GNU_sparse_major="1", GNU_sparse_minor="0", GNU_sparse_realsize=str(1 << 40))
    archives = {
        "negative": first + _member("b", -512),
        "extended": first + _extended(size="-1024") + first,
        "no number": first + _extended(GNU_sparse_size="x") + first,
        "nested": _extended(a="b") * 3_000 + first,
        "sparse": sparse + _member("s", 512) + b"0\n".ljust(512, b"\0"),
    }
    with client_of(url) as client:
        box = client.post("/v1/sandboxes", json={}).json()["id"]
        for what, archive in archives.items():
            answer = client.put(f"/v1/sandboxes/{box}/archive", content=archive + bytes(1024))
            assert answer.status_code == 400, (what, answer.text)
        client.delete(f"/v1/sandboxes/{box}")


def test_files_that_arrive_at_the_same_time_share_the_disk(url: str) -> None:
    limits = {"limits": {"disk_bytes": 2 << 20}}
    with client_of(url) as client:
        box = client.post("/v1/sandboxes", json={"options": limits}).json()["id"]
        files = f"/v1/sandboxes/{box}/files"
        began = threading.Event()
        go_on = threading.Event()

        def slowly() -> Iterator[bytes]:
            yield bytes(1 << 20)
            began.set()
            go_on.wait(20)
            yield bytes(1 << 19)

        with ThreadPoolExecutor() as threads:
            first = threads.submit(client.put, f"{files}/first", content=slowly())
            assert began.wait(20)
            time.sleep(0.5)  # So that the server has read what was sent.
            for _ in range(3):
                assert client.put(f"{files}/second", content=bytes(1_200_000)).status_code == 400
            go_on.set()
            assert first.result().status_code == 204
        assert client.put(f"{files}/third", content=bytes(1 << 20)).status_code == 400
        assert client.delete(f"{files}/first").status_code == 204
        assert client.put(f"{files}/third", content=bytes(500_000)).status_code == 204
        client.delete(f"/v1/sandboxes/{box}")


async def test_bodies_of_one_caller_have_a_limit_together() -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        arrived.set()
        await go_on.wait()
        await PlainTextResponse("ok")(scope, receive, send)

    guard = Guard(app, ["one-token", "other-token"])
    guard.most_held = 1 << 20
    transport = httpx.ASGITransport(guard)

    async def send(token: str, size: int) -> int:
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            headers = {"Authorization": f"Bearer {token}"}
            return (await client.post("/", content=bytes(size), headers=headers)).status_code

    first = asyncio.ensure_future(send("one-token", 1_200_000))
    await arrived.wait()
    assert await send("one-token", 600_000) == 429
    others = [asyncio.ensure_future(send(*each)) for each in (("one-token", 1_000), ("other-token", 600_000))]
    go_on.set()
    assert await asyncio.gather(first, *others) == [200, 200, 200]
    assert await send("one-token", 1_200_000) == 200


async def test_a_thousand_requests_of_one_caller_do_not_come_before_one_of_another() -> None:
    begun: list[int] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        begun.append(scope[CALLER])
        await PlainTextResponse("ok")(scope, receive, send)

    transport = httpx.ASGITransport(Guard(app, ["one-token", "other-token"]))

    async def send(token: str) -> int:
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return (await client.get("/", headers={"Authorization": f"Bearer {token}"})).status_code

    tokens = ["one-token"] * 1_000 + ["other-token"] + ["no-token"] * 100
    assert await asyncio.gather(*map(send, tokens)) == [200] * 1_001 + [401] * 100
    assert begun.index(1) < 100


@pytest.mark.slow
def test_files_of_checkpoints_count_until_they_are_given_back(url: str) -> None:
    with client_of(url) as client:
        box = client.post("/v1/sandboxes", json={}).json()["id"]
        session = client.post(f"/v1/sandboxes/{box}/sessions", json={}).json()["id"]
        of_box, checkpoints = used(client, "disk_bytes"), f"/v1/sessions/{session}/checkpoints"
        kept = [client.post(checkpoints, json={"files": files}).json()["id"] for files in (True, True, False)]
        assert used(client, "disk_bytes") == 3 * of_box
        for _ in range(2):
            client.delete(f"{checkpoints}/{kept[0]}")
            assert used(client, "disk_bytes") == 2 * of_box
        client.post(f"/v1/sessions/{session}/restart")
        assert used(client, "disk_bytes") == of_box
        assert client.post(checkpoints, json={"files": True}).status_code == 201
        client.delete(f"/v1/sandboxes/{box}")
        assert used(client, "disk_bytes") == 0


def test_memory_of_checkpoints_counts_until_they_are_given_back(url: str) -> None:
    with client_of(url, "small") as client:
        box = client.post("/v1/sandboxes", json={"options": {"limits": {"memory_bytes": 400 << 20}}}).json()["id"]
        session = client.post(f"/v1/sandboxes/{box}/sessions", json={}).json()["id"]
        checkpoints = f"/v1/sessions/{session}/checkpoints"
        fill = {"code": "x = b'x' * (200 << 20)"}
        assert client.post(f"/v1/sessions/{session}/cells", json=fill).json()["outcome"] == "ok"
        kept = [client.post(checkpoints, json={}) for _ in range(4)]
        assert [each.status_code for each in kept] == [201, 201, 201, 429]
        client.delete(f"{checkpoints}/{kept[0].json()['id']}")
        assert client.post(checkpoints, json={}).status_code == 201
        client.delete(f"/v1/sandboxes/{box}")
        assert client.post("/v1/run", json={"code": "1"}).json()["outcome"] == "ok"


def test_text_that_is_no_unicode_gets_an_answer(url: str) -> None:
    of_json = {"Content-Type": "application/json"}
    with client_of(url) as client:
        for metadata in ({"a\ud800": "b"}, {"a": ["\ud800"]}, {"a": float("nan")}):
            wanted = json.dumps({"metadata": metadata})
            assert client.post("/v1/sandboxes", content=wanted, headers=of_json).status_code == 400
        path = f"/v1/sandboxes/{client.post('/v1/sandboxes', json={'files': True}).json()['id']}"
        assert client.post(f"{path}/run", json={"code": "open(b'\\xff', 'w').close()"}).json()["outcome"] == "ok"
        names = json.dumps({"names": ["\ud800"]})
        assert client.post(f"{path}/archive", content=names, headers=of_json).status_code == 400
        assert [each["name"] for each in client.get(f"{path}/files").json()["files"]] == ["\udcff"]
        assert len(client.get(f"{path}/archive").content) >= 1024
        client.delete(path)
        _, inside = e2b_sandbox(client)
        wanted = json.dumps({"code": "1", "context_id": "\ud800"})
        named = client.post("/sandboxes", content=json.dumps({"templateID": "\ud800"}), headers=of_json)
        assert named.status_code == 404
        answer = httpx.post(f"{url}/execute", content=wanted, headers={**inside, **of_json})
        assert (answer.status_code, "\ud800" in answer.json()["message"]) == (404, True)
        client.delete(f"/sandboxes/{inside['e2b-sandbox-id']}")


@pytest.mark.slow
def test_json_of_more_values_than_can_be_read_in_a_moment_is_refused_and_text_is_not(url: str) -> None:
    of_json = {"Content-Type": "application/json"}
    lists = b'{"code": "1", "options": ' + b"[" + b"[]," * 300_000 + b"[]]}"
    fields = b"{" + b",".join(b'"%d":1' % number for number in range(150_000)) + b"}"
    texts = b'{"code": "1", "options": [' + b'"",' * 500_000 + b'""]}'
    code = json.dumps({"code": f"len({'[{:,}, a]' * 500_000!r})  # " + '\\"' * 500_000}).encode()
    with client_of(url) as client:
        for body in (lists, fields, texts):
            for path in ("/v1/run", "/sandboxes", "/run_code"):
                assert client.post(path, content=body, headers=of_json).status_code == 413, body[:20]
        assert client.post("/v1/run", content=code, headers=of_json).json()["value"] == 4_500_000
        _, inside = e2b_sandbox(client)
        stream = {**inside, "Content-Type": "application/connect+json"}
        framed = struct.pack(">BI", 0, len(lists)) + lists
        answer = httpx.post(f"{url}/process.Process/StreamInput", content=framed, headers=stream)
        assert json.loads(answer.content[5:])["error"]["code"] == "resource_exhausted"
        client.delete(f"/sandboxes/{inside['e2b-sandbox-id']}")


def test_what_is_sent_to_a_pipe_that_nobody_reads_is_refused(url: str) -> None:
    with client_of(url) as client:
        _, inside = e2b_sandbox(client)
        httpx.post(f"{url}/execute", json={"code": "import os; os.mkfifo('pipe')"}, headers=inside, timeout=30)
        answer = httpx.post(f"{url}/files", params={"path": "pipe"}, content=b"x", headers=inside, timeout=30)
        assert answer.status_code == 400
        client.delete(f"/sandboxes/{inside['e2b-sandbox-id']}")


@pytest.mark.slow
def test_snapshots_and_forks_at_once_keep_the_limits_and_are_given_back(url: str) -> None:
    def ask(number: int) -> int:
        with client_of(url, "small") as client:
            path = f"/sandboxes/{source}/{'fork' if number % 2 else 'snapshots'}"
            return client.post(path, json={"count": 3} if number % 2 else {}).status_code

    with client_of(url, "small") as small, client_of(url) as one:
        source = small.post("/sandboxes", json={}).json()["sandboxID"]
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(ask, range(16)))
        assert set(answers) == {201, 429}
        assert len(small.get("/snapshots").json()) <= 1
        for each in small.get("/snapshots").json():
            assert small.post(f"/v1/sandboxes/{each['snapshotID']}/run", json={"code": "1"}).status_code == 404
            assert small.delete(f"/templates/{each['snapshotID']}").status_code == 204
        for each in small.get("/sandboxes").json():
            assert small.delete(f"/sandboxes/{each['sandboxID']}").status_code == 204
        metrics = one.get("/metrics").text
    for gauge in ("sandboxes", "sessions", "memory_bytes", "disk_bytes"):
        assert f'coderoom_{gauge}{{tenant="small"}} 0\n' in metrics


def test_programs_count_as_memory_of_their_tenant(url: str) -> None:
    sleep = {"argv": ["sleep", "1000"]}
    with client_of(url, "small") as small, client_of(url) as other:
        box = small.post("/v1/sandboxes", json={}).json()["id"]
        session = small.post(f"/v1/sandboxes/{box}/sessions", json={}).json()["id"]
        _, inside = e2b_sandbox(small)
        command = json.dumps({"process": {"cmd": "sleep", "args": ["1000"]}})

        started = small.post(f"/v1/sessions/{session}/processes", json=sleep).json()["id"]
        refused = httpx.post(f"{url}/process.Process/Start", content=command, headers=inside)
        assert (refused.status_code, refused.json()["code"]) == (429, "resource_exhausted")
        assert small.post("/v1/run", json={"code": "1"}).status_code == 429
        # What runs in the same session shares its memory.
        assert small.post(f"/v1/sessions/{session}/processes", json=sleep).status_code == 201
        assert small.post(f"/v1/sessions/{session}/cells", json={"code": "1"}).json()["outcome"] == "ok"
        assert other.post("/v1/run", json={"code": "1"}).json()["outcome"] == "ok"

        small.post(f"/v1/sessions/{session}/processes/{started}/signal", json={"number": 9})
        assert small.post("/v1/run", json={"code": "1"}).status_code == 429
        small.post(f"/v1/sessions/{session}/restart")
        with httpx.stream("POST", f"{url}/process.Process/Start", content=command, headers=inside) as going:
            assert going.status_code == 200
            assert small.post(f"/v1/sessions/{session}/processes", json=sleep).status_code == 429
        small.delete(f"/sandboxes/{inside['e2b-sandbox-id']}")
        assert small.post("/v1/run", json={"code": "1"}).json()["outcome"] == "ok"
        small.delete(f"/v1/sandboxes/{box}")


def test_commands_of_other_types_are_refused(url: str) -> None:
    wrong = ({"process": [1]}, {"process": {"cmd": "ls", "args": 5}}, {"process": {"cmd": "ls", "envs": [1]}})
    with client_of(url) as client:
        _, inside = e2b_sandbox(client)
        bodies = [*map(json.dumps, (*wrong, {"process": {"cmd": "ls"}, "tag": "x" * 10_000})), "[" * 100_000]
        for body in bodies:
            answer = httpx.post(f"{url}/process.Process/Start", content=body, headers=inside)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument"), body[:100]
        client.delete(f"/sandboxes/{inside['e2b-sandbox-id']}")


def test_streams_of_input_that_are_none_are_refused(url: str) -> None:
    start = json.dumps({"start": {"process": {"pid": 1}}}).encode()
    data = json.dumps({"data": {"input": {"stdin": "eA=="}}}).encode()
    streams = {
        "resource_exhausted": b"\0\xff\xff\xff\xff",
        "unimplemented": b"\1\0\0\0\2{}",
        "not_found": struct.pack(">BI", 0, len(start)) + start,
        "invalid_argument": struct.pack(">BI", 0, len(data)) + data,
    }
    with client_of(url) as client:
        _, inside = e2b_sandbox(client)
        inside |= {"Content-Type": "application/connect+json"}
        for code, body in (
            *streams.items(),
            ("invalid_argument", b"\0\0\0\0\2{"),
            ("invalid_argument", b"\0\0\0\0\1x"),
        ):
            answer = httpx.post(f"{url}/process.Process/StreamInput", content=body, headers=inside)
            assert json.loads(answer.content[5:])["error"]["code"] == code, body
        client.delete(f"/sandboxes/{inside['e2b-sandbox-id']}")
