"""Forks of sessions at a server: by the engine `remote`, without `async`, and by requests."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from coderoom.errors import RequestError
from coderoom.sandbox import RemoteSandbox, SyncSandbox
from tests.support.sandbox_server import TOKEN, shared_server


async def test_they_have_the_state_and_copies_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given")
    async with RemoteSandbox(**shared_server(), workspace=tmp_path) as sandbox, sandbox.session() as session:
        await session.run("x = [1]")
        (tmp_path / "given.txt").write_text("again")
        one, other = await session.fork(2)
        await session.close()
        result = await one.run("x.append(2)\nopen('given.txt', 'a').write('!')\nx, open('given.txt').read()")
        assert result.value == ([1, 2], "again!")
        assert [(each.name, each.data) for each in result.artifacts] == [("given.txt", b"again!")]
        (tmp_path / "given.txt").unlink()
        mark = await other.checkpoint()
        await other.run("x = None")
        await other.rollback(mark)
        (deeper,) = await other.fork(reseed=True)
        assert (await deeper.run("x, open('given.txt').read()")).value == ([1], "again")
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(RequestError, match="128 open forks"):
            await other.fork(1000)


async def test_a_session_becomes_one(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("given")
    async with RemoteSandbox(**shared_server(), workspace=tmp_path) as sandbox, sandbox.session() as session:
        await session.run("x = [1]")
        winner, loser = await session.fork(2)
        await winner.run("import os\nx.append(2)\nos.remove('given.txt')\nopen('made.txt', 'w').write('m')")
        await winner.put("lib/it's $1.py", b"\0'\n")
        await loser.put("lib", b"")
        with pytest.raises(OSError, match="lib"):
            await loser.put("lib/made.py", b"")
        await loser.run("x.append(3)")
        (tmp_path / "later.txt").write_text("l")
        await session.become(winner)
        assert sorted(each.name for each in tmp_path.iterdir()) == ["lib", "made.txt"]
        assert (tmp_path / "lib" / "it's $1.py").read_bytes() == b"\0'\n"
        assert (await session.run("open('made.txt', 'a').write('!')\nx")).value == [1, 2]
        assert (tmp_path / "made.txt").read_text() == "m!"
        with pytest.raises(RequestError, match="closed"):
            await winner.run("x")
        assert (await loser.run("x")).value == [1, 3]


async def test_functions_of_the_host_are_refused() -> None:
    async with RemoteSandbox(**shared_server()) as sandbox, sandbox.session([len]) as session:
        with pytest.raises(RequestError, match="functions"):
            await session.fork()


def test_without_async() -> None:
    with SyncSandbox(**shared_server()) as sandbox, sandbox.session() as session:
        session.run("x = 1")
        with session.fork(2)[1] as fork:
            fork.run("x += 1")
            session.become(fork)
        assert session.run("x").value == 2


def test_by_requests() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=shared_server()["url"], headers=headers, timeout=30) as client:
        box = client.post("/v1/sandboxes", json={}).json()["id"]
        described = {"functions": [{"name": "add", "parameters": []}]}
        session = client.post(f"/v1/sandboxes/{box}/sessions", json={}).json()["id"]
        client.post(f"/v1/sessions/{session}/cells", json={"code": "x = 1"})
        forks = client.post(f"/v1/sessions/{session}/forks", json={"count": 2}).json()["sessions"]
        for each in forks:
            assert client.post(f"/v1/sessions/{each}/cells", json={"code": "x = x + 1\nx"}).json()["value"] == 2
        assert client.post(f"/v1/sessions/{forks[1]}/become", json={"fork": session}).status_code == 400
        assert client.post(f"/v1/sessions/{session}/become", json={"fork": forks[0]}).status_code == 204
        assert client.post(f"/v1/sessions/{session}/cells", json={"code": "x"}).json()["value"] == 2
        assert client.post(f"/v1/sessions/{forks[0]}/forks", json={}).status_code == 404
        for count in (0, 1 << 70):
            assert client.post(f"/v1/sessions/{session}/forks", json={"count": count}).status_code == 400
        calling = client.post(f"/v1/sandboxes/{box}/sessions", json=described).json()["id"]
        refused = client.post(f"/v1/sessions/{calling}/forks", json={})
        assert "functions of the client" in refused.json()["error"]["message"]
        assert client.delete(f"/v1/sandboxes/{box}").status_code == 204
        assert client.post(f"/v1/sessions/{forks[1]}/cells", json={"code": "x"}).status_code == 404
