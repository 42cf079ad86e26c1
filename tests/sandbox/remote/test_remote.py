"""The engine `remote`: files, servers that are gone, are something else or have too much to do, and tokens."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.executors import SandboxCodeExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import RemoteSandbox, Sandbox
from tests.support.sandbox_server import TOKEN, server_process, shared_server


class TestFiles:
    async def test_what_changes_here_and_there_is_alike_after_each_cell(self, tmp_path: Path) -> None:
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep" / "given.txt").write_text("1")
        async with RemoteSandbox(**shared_server(), workspace=tmp_path) as sandbox, sandbox.session() as session:
            result = await session.run("open('made.txt', 'w').write(open('deep/given.txt').read() + '2')")
            assert [each.path for each in result.artifacts] == [tmp_path / "made.txt"]
            assert (tmp_path / "made.txt").read_text() == "12"
            (tmp_path / "made.txt").write_text("3")
            (tmp_path / "deep" / "given.txt").unlink()
            result = await session.run("import os\n[open('made.txt').read(), os.listdir('deep')]")
            assert result.value == ["3", []]
            await session.run("os.remove('made.txt')")
            assert not (tmp_path / "made.txt").exists()
            assert (await sandbox.run("open('once', 'w').write('4')")).success
            assert (tmp_path / "once").read_text() == "4"
            assert (await session.run("cat once", language="sh")).stdout == "4"

    async def test_a_checkpoint_keeps_them(self, tmp_path: Path) -> None:
        async with RemoteSandbox(**shared_server(), workspace=tmp_path) as sandbox, sandbox.session() as session:
            await session.run("x = open('a', 'w').write('old')")
            mark = await session.checkpoint(files=True)
            await session.run("open('a', 'w').write('new')\nopen('b', 'w').write('more')")
            await session.rollback(mark)
            assert (await session.run("import os\n[open('a').read(), os.listdir()]")).value == ["old", ["a"]]
            assert [each.name for each in tmp_path.iterdir()] == ["a"]

    async def test_links_in_the_folder_here_are_not_followed(self, tmp_path: Path) -> None:
        outside, folder = tmp_path / "outside", tmp_path / "folder"
        outside.mkdir()
        folder.mkdir()
        (outside / "secret").write_text("secret")
        (folder / "link").symlink_to(outside / "secret")
        (folder / "away").symlink_to(outside)
        async with RemoteSandbox(**shared_server(), workspace=folder) as sandbox, sandbox.session() as session:
            assert (await session.run("import os\nos.listdir()")).value == []
            with pytest.raises(RequestError, match="cannot be written"):
                await session.run("os.mkdir('away')\nopen('away/made', 'w').write('x')")
        assert [each.name for each in outside.iterdir()] == ["secret"]


async def test_a_table_is_described_there() -> None:
    async with RemoteSandbox(**shared_server(), describe_tables=True) as sandbox:
        result = await sandbox.run("[{'n': n, 'square': n * n} for n in range(500)]")
        assert str(result.value_repr).startswith("list of dicts, 500 rows")
        assert len(result.value) == 500


class TestServers:
    @pytest.mark.slow
    async def test_a_session_of_a_server_that_was_started_again(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with server_process(port=port) as url:
            sandbox = RemoteSandbox(url, TOKEN)
            session = sandbox.session()
            await session.run("x = 1")
            mark = await session.checkpoint()
        with pytest.raises(SandboxUnavailable, match="cannot be reached"):
            await session.run("x")
        with server_process(port=port):
            result = await session.run("print('new')\n2")
            assert (result.value, result.state_lost) == (2, True)
            assert result.stderr == "The session was restarted: earlier variables are gone.\n"
            assert not (await session.run("3")).state_lost
            with pytest.raises(RequestError, match="checkpoint is gone"):
                await session.rollback(mark)
            assert (await sandbox.run("4")).value == 4
            await sandbox.close()

    async def test_a_wrong_token_and_a_server_that_is_none(self) -> None:
        url = shared_server()["url"]
        with pytest.raises(RequestError, match="does not know the token") as caught:
            await RemoteSandbox(url, "another-token").run("1")
        assert "another-token" not in str(caught.value)
        with pytest.raises(RequestError, match=r"begins with http:// or https://"):
            RemoteSandbox("localhost:8080")
        with pytest.raises(RequestError, match="token must stand apart"):
            RemoteSandbox("http://user:secret@localhost")
        with pytest.raises(RequestError, match="the server has the wall"):
            Sandbox("none", engine="remote", options=shared_server())
        with pytest.raises(RequestError, match="network: sandboxes of this server"):
            await RemoteSandbox(**shared_server(), network=True).run("1")

    async def test_what_a_server_sends_may_be_anything(self) -> None:
        results = [
            b"[]",
            b"no JSON",
            b"{}",
            b'{"outcome": "wonderful", "exit_code": 0}',
            b'{"outcome": "ok", "exit_code": "0"}',
            b'{"outcome": "ok", "exit_code": 0, "artifacts": [{"name": 1}]}',
            b'{"outcome": "ok", "exit_code": 0, "value": {"$set": [[]]}, "value_is_data": true}',
            b'{"outcome": "ok", "exit_code": 0, "error": {"type": "E", "message": "", "more": 1}}',
        ]

        def answer(path: str) -> bytes:
            return b'{"id": "b1", "facts": {}}' if path == "/v1/sandboxes" else results[0]

        with other_server(answer) as url:
            async with RemoteSandbox(url) as sandbox:
                while results:
                    with pytest.raises(SandboxUnavailable, match="The server"):
                        await sandbox.run("1")
                    del results[0]
                results.append(b"{}")  # Of the end of the sandbox.

    async def test_a_server_that_sends_files_that_are_elsewhere(self, tmp_path: Path) -> None:
        folder = tmp_path / "folder"
        listed = [{"name": name, "size": 1, "version": "1"} for name in ("../outside", "/etc/x", "a/../../b", "..")]

        def answer(path: str) -> bytes:
            if path == "/v1/sandboxes":
                return b'{"id": "b1"}'
            return json.dumps({"files": listed, "outcome": "ok", "exit_code": 0, "artifacts": listed}).encode()

        with other_server(answer) as url:
            sandbox = RemoteSandbox(url, workspace=folder)
            result = await sandbox.run("1")
            await sandbox.close()
        assert (result.outcome, result.artifacts) == (Outcome.OK, ())
        assert list(tmp_path.iterdir()) == [folder]

    async def test_too_much_to_do_is_tried_again_within_the_time_of_the_code(self) -> None:
        asked: list[str] = []

        def answer(path: str) -> bytes | int:
            asked.append(path)
            if path == "/v1/sandboxes":
                return b'{"id": "b1"}'
            return 429 if asked.count(path) < 3 else b'{"outcome": "ok", "exit_code": 0, "value_repr": "7"}'

        with other_server(answer) as url:
            sandbox = RemoteSandbox(url)
            assert (await sandbox.run("7", timeout=20)).value == "7"
            asked.clear()
            with pytest.raises(SandboxUnavailable, match="slower, please"):
                await sandbox.run("7", timeout=0.1)
            await sandbox.close()


class TestTokens:
    def test_it_is_not_shown_and_not_dumped(self) -> None:
        sandbox = RemoteSandbox("http://localhost:1", "secret-of-mine")
        assert "secret-of-mine" not in repr(sandbox.config)
        executor = SandboxCodeExecutor(
            engine="remote", options={"url": "http://localhost:1", "token": "secret-of-mine"}
        )
        dumped = executor.dump_component()
        assert dumped.config["options"] == {"url": "http://localhost:1", "token": "${CODEROOM_SERVER_TOKEN}"}
        assert "secret-of-mine" not in repr(executor._to_config())

    async def test_they_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(RequestError, match="CODEROOM_URL"):
            Sandbox(engine="remote")
        monkeypatch.setenv("CODEROOM_URL", shared_server()["url"])
        monkeypatch.setenv("CODEROOM_TOKEN", TOKEN)
        sandbox = Sandbox(engine="remote")
        assert (await sandbox.run("6 * 7")).value == 42
        await sandbox.close()


class other_server:  # noqa: N801 (used as a function)
    """A server that is none of ours: what it answers to each path, or a status."""

    def __init__(self, answer: Callable[[str], bytes | int]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                found = answer(self.path)
                body = (
                    b'{"error": {"code": "too_much", "message": "slower, please"}}' if isinstance(found, int) else found
                )
                self.send_response(found if isinstance(found, int) else 200)
                self.send_header("Retry-After", "0.2")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_DELETE = do_POST  # noqa: N815 (names of the class above)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
