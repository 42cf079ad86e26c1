"""The MCP server, used by the official Python client and by the MCP Inspector's command line."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    CallToolResult,
    CancelledNotification,
    CancelledNotificationParams,
    ClientNotification,
    ElicitRequestParams,
    ElicitResult,
)

from coderoom.blocks import extract_code_blocks
from tests.support.commands import ROOT, environment

TOKEN, OTHER = "a-token-of-the-test", "another-token-of-the-test"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def stdio(*arguments: str, cwd: Path, asked: Any = None, **env: str) -> AsyncIterator[ClientSession]:
    """A client whose server is a process of its own; `asked` answers what the server asks the client's user."""
    command = ["-m", "coderoom", "mcp", *arguments]
    server = StdioServerParameters(command=sys.executable, args=command, env=environment(env), cwd=cwd)
    async with (
        stdio_client(server) as (reads, writes),
        ClientSession(reads, writes, elicitation_callback=asked) as client,
    ):
        await client.initialize()
        yield client


@asynccontextmanager
async def over_http(url: str) -> AsyncIterator[ClientSession]:
    """A client of a server that others use too."""
    async with (
        httpx.AsyncClient(headers=HEADERS, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (reads, writes, _),
        ClientSession(reads, writes) as client,
    ):
        await client.initialize()
        yield client


async def call(client: ClientSession, tool: str, **arguments: Any) -> str:
    """The text that a model sees."""
    result = await client.call_tool(tool, arguments)
    text = "".join(part.text for part in result.content if part.type == "text")
    return f"ERROR {text}" if result.isError else text


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an HTTP server."""
    command = [sys.executable, "-m", "coderoom", "mcp", "--http", "0"]
    folder, env = tmp_path_factory.mktemp("server"), environment({"CODEROOM_TOKEN": f"{TOKEN},{OTHER}"})
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()
        assert server.wait(20) == -signal.SIGTERM


def processes_with(mark: str) -> list[int]:
    """The processes whose environment or arguments have a text."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                data = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in data:
                found.append(int(folder.name))
    return found


@pytest.mark.slow
async def test_code_files_and_checkpoints(tmp_path: Path) -> None:
    arguments = ["--workspace", str(tmp_path / "work"), "--processes", "--local-network"]
    async with stdio(*arguments, cwd=tmp_path) as client:
        started = await call(client, "start_process", command="python3 -m http.server 8000 2>&1")
        assert started.endswith("port 8000 (http://0.0.0.0:8000/) ...\n\n[Process 1 runs.]")
        asked = "from urllib.request import urlopen\nurlopen('http://127.0.0.1:8000').status"
        assert await call(client, "run_code", code=asked) == "200"
        assert '"GET / HTTP/1.1" 200' in await call(client, "read_process", process=1)
        await call(client, "start_process", command="cat; exit 3", session="other")
        assert await call(client, "write_process", process=1, text="a\n", session="other") == "a\n\n[Process 1 runs.]"
        assert await call(client, "stop_process", process=1) == "[Process 1 has ended with exit code 143.]"
        assert "There is no process 2; there are: 1." in await call(client, "read_process", process=2)
        assert await call(client, "run_code", code="x = 41\nprint('hi')\nx + 1") == "hi\n42"
        assert "NameError" in await call(client, "run_code", code="x", fresh=True)
        assert await call(client, "run_code", code="read a; echo $a$a", language="bash", stdin="ho") == "hoho"
        made = await call(client, "checkpoint")
        assert await call(client, "run_code", code="x = 0; open('a.txt', 'w').write('abc')") == "3\n[files: a.txt]"
        assert await call(client, "read_file", path="a.txt") == "abc"
        await call(client, "rollback", checkpoint=made)
        assert await call(client, "run_code", code="x") == "41"
        assert await call(client, "list_files") == "There are no files."
        assert (await call(client, "run_code", code="x", session="other")).startswith("ERROR")
        assert "There is no checkpoint 'main-9'; there are: main-1." in await call(
            client, "rollback", checkpoint="main-9"
        )
        data = base64.b64encode(bytes(range(256))).decode()
        assert "256 bytes" in await call(client, "write_file", path="d/b.bin", content=data, encoding="base64")
        assert await call(client, "run_code", code="cat d/b.bin | wc -c", language="bash") == "256"
        (found,) = (await client.call_tool("read_file", {"path": "d/b.bin"})).content
        assert found.type == "resource"
        assert base64.b64decode(found.resource.blob) == bytes(range(256))  # type: ignore[union-attr]
        for _ in range(17):
            made = await call(client, "checkpoint", files=False)
        assert "There is no checkpoint 'main-1'" in await call(client, "rollback", checkpoint="main-1")
        assert not (await call(client, "rollback", checkpoint=made)).startswith("ERROR")
        await call(client, "end_session")
        assert "NameError" in await call(client, "run_code", code="x")
    assert (tmp_path / "work" / "d" / "b.bin").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("wall", "isolated"), [("auto", True), ("none", False)])
async def test_clients_and_users_learn_whether_code_is_isolated(tmp_path: Path, wall: str, isolated: bool) -> None:
    hosts = ["--allow-host", "a.example.org"] if isolated else []
    command = ["-m", "coderoom", "mcp", "--wall", wall, *hosts]
    server = StdioServerParameters(command=sys.executable, args=command, env=environment(), cwd=tmp_path)
    with (tmp_path / "errors").open("w+") as errors:
        async with stdio_client(server, errlog=errors) as (reads, writes), ClientSession(reads, writes) as client:
            told = str((await client.initialize()).instructions)
        errors.seek(0)
        shown = errors.read()
    assert ("It is not isolated" in told, "isolated sandbox" in told) == (not isolated, isolated)
    assert ("code reaches these hosts and no others: a.example.org" in told) == isolated
    assert shown.startswith("Code is isolated" if isolated else "Code is not isolated")


@pytest.mark.slow
async def test_what_a_client_learns_of_a_cell(tmp_path: Path) -> None:
    async with stdio("--timeout", "5", "--allow-host", "a.example.org", cwd=tmp_path) as client:
        asking = "import urllib.request\nurllib.request.urlopen('http://b.example.org')"
        asked = await client.call_tool("run_code", {"code": asking})
        assert asked.structuredContent is not None
        [use] = asked.structuredContent["network"]
        assert (use["host"], use["port"]) == ("b.example.org", 80)
        assert use["why"].startswith("b.example.org:80 is not in the allow-list")
        shown: list[str] = []

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            shown.append(message or "")

        slow = "import time\nfor n in range(3):\n    print(n, flush=True)\n    time.sleep(0.6)"
        await client.call_tool("run_code", {"code": slow}, progress_callback=progress)
        assert "0\n" in shown
        picture = "import matplotlib.pyplot as plot\nplot.plot([1, 2])\nplot.savefig('p.png')"
        drawn = await client.call_tool("run_code", {"code": picture, "timeout": 60})
        assert [part.type for part in drawn.content] == ["text", "image"]
        value = "[b'\\xff', 1j, {(1, 2): float('inf')}, {3}]"
        typed = await client.call_tool("run_code", {"code": value})
        assert typed.structuredContent is not None
        assert base64.b64decode(typed.structuredContent["value"][0]) == b"\xff"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        schema = tools["run_code"].outputSchema
        assert schema is not None
        assert schema["required"] == [*typed.structuredContent]
        assert "timeout" in schema["properties"]["outcome"]["enum"]
        assert all(tool.title for tool in tools.values())
        refused = await call(client, "run_code", code="1", langauge="sh")
        assert refused.startswith("ERROR run_code has no argument 'langauge'; its arguments are code, language, ")
        assert all(tool.inputSchema["additionalProperties"] is False for tool in tools.values())
        many = await client.call_tool("run_code", {"code": "[0] * 50_000"})
        assert many.structuredContent is not None
        assert len(many.structuredContent["value"]) < 31_000
        rows = await call(client, "run_code", code="[{'n': n, 'square': n * n} for n in range(500)]")
        assert rows.startswith("list of dicts, 500 rows x 2 columns")
        # No encoding can write these.
        assert await call(client, "run_code", code="'\\ud800'") == "'\\ud800'"
        assert not (await client.call_tool("run_code", {"code": "{'\\ud800': '\\udfff'}"})).isError
        await call(client, "run_code", code="open(b'bad\\xff', 'w'); open('two\\nlines', 'w')")
        assert len((await call(client, "list_files")).splitlines()) == 3
        failed = await client.call_tool("run_code", {"code": "import os; os.kill(os.getpid(), 9)"})
        assert failed.isError
        assert failed.structuredContent is not None
        assert (failed.structuredContent["outcome"], failed.structuredContent["state_lost"]) == ("error", True)
        late = await client.call_tool("run_code", {"code": "while True: pass", "timeout": 0.5})
        assert late.structuredContent is not None
        assert late.structuredContent["outcome"] == "timeout"
        long = await call(client, "run_code", code="print('x' * 10**6)")
        assert len(long) < 31_000
        assert "characters left out" in long


@pytest.mark.slow
async def test_a_cell_that_the_client_cancels_ends(tmp_path: Path) -> None:
    async with stdio(cwd=tmp_path) as client:
        await call(client, "run_code", code="x = 5")
        number = client._request_id
        running = asyncio.create_task(client.call_tool("run_code", {"code": "import time; time.sleep(50)"}))
        await asyncio.sleep(0.7)
        asked = CancelledNotificationParams(requestId=number)
        await client.send_notification(
            ClientNotification(CancelledNotification(method="notifications/cancelled", params=asked))
        )
        with pytest.raises(McpError, match="cancelled"):
            await running
        assert await call(client, "run_code", code="x") == "5"


@pytest.mark.slow
async def test_files_outside_of_the_folder_are_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    async with stdio("--workspace", "work", cwd=tmp_path) as client:
        link = "import os; os.symlink('/etc', 'folder'); os.symlink('../secret', 'file'); os.mkfifo('pipe')"
        await call(client, "run_code", code=link)
        for path in ("../secret", "/etc/passwd", "a/../../secret", "folder/passwd", "file", "pipe", ".", "a\0b"):
            assert (await call(client, "read_file", path=path)).startswith("ERROR"), path
            if path not in ("file", "pipe"):  # Those are replaced.
                assert (await call(client, "write_file", path=path, content="no")).startswith("ERROR"), path
        await call(client, "write_file", path="file", content="new")
        assert "file" in await call(client, "list_files")
    assert (tmp_path / "secret").read_text() == "secret"


@pytest.mark.slow
async def test_a_team_is_a_tool(tmp_path: Path) -> None:
    replies = tmp_path / "replies.json"
    working = json.dumps(["```python\nopen('made', 'w').write('1')\nprint(6 * 7)\n```", "It is 42."])
    replies.write_text(working)
    command = ["--team", "code-act", "--model", f"replay:{replies}", "--journal", str(tmp_path / "runs.sqlite3")]
    async with stdio(*command, cwd=tmp_path) as client:
        done: CallToolResult = await client.call_tool("team_code_act", {"task": "Compute 6 * 7."})
        assert done.structuredContent is not None  # The client has checked it.
        (tool,) = [each for each in (await client.list_tools()).tools if each.name == "team_code_act"]
        assert tool.outputSchema is not None
        assert tool.outputSchema["required"] == [*done.structuredContent]
        assert (done.isError, done.structuredContent["answer"]) == (False, "It is 42.")
        assert done.structuredContent["outcome"] == "ok"
        assert await call(client, "read_file", path="made") == "1"
        replies.write_text(json.dumps(["```python\n1 / 0\n```", "It cannot be computed."]))
        failed = await call(client, "team_code_act", task="Compute 1 / 0.")
        assert failed == "ERROR It cannot be computed.\n\n[outcome: error]"
    replies.write_text(working)
    async with stdio("--team", "human-approves", "--model", f"replay:{replies}", cwd=tmp_path) as client:
        refused = await client.call_tool("team_human_approves", {"task": "Compute 6 * 7."})
        assert refused.isError  # There is nobody to ask: standard input belongs to the client.
        assert await call(client, "list_files") == "There are no files."
    shown = subprocess.run(
        [sys.executable, "-m", "coderoom", "runs", "--journal", str(tmp_path / "runs.sqlite3"), "--json"],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path,
        check=True,
    )
    assert done.structuredContent["run"] in shown.stdout


@pytest.mark.slow
async def test_a_client_that_can_ask_its_user_does_so_about_code_and_calls(tmp_path: Path) -> None:
    paying, printing = (
        f"```python\n{code}\n```" for code in ("for to in 'Ann', 'Bob', 'Cy': print(pay(to, 10))", "print(6 * 7)")
    )
    replies = tmp_path / "replies.json"
    questions = list[str]()
    answers = iter(["edit: pay('Ann', 5)", "yes", "always", None, "edit: open('edited', 'w').close()", "yes"])

    async def asked(context: Any, params: ElicitRequestParams) -> ElicitResult:
        questions.append(params.message)
        if (given := next(answers)) is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"answer": given})

    teams = ["--team", str(ROOT / "examples/approved_calls_team.yaml"), "--team", "human-approves"]
    command = [*teams, "--model", f"replay:{replies}", "--no-journal"]
    replies.write_text(json.dumps([paying, "Paid."]))
    async with stdio(*command, cwd=tmp_path, asked=asked, PYTHONWARNINGS="ignore") as client:
        assert not (await client.call_tool("team_approved_calls_team", {"task": "Pay them."})).isError
        replies.write_text(json.dumps([printing, "It is 42."]))
        assert (await client.call_tool("team_human_approves", {"task": "Compute it."})).isError
        assert "It is 42." in await call(client, "team_human_approves", task="Compute it.")
        assert "edited" in await call(client, "list_files")
    assert (tmp_path / "payments.txt").read_text() == "5 to Ann\n10 to Bob\n10 to Cy\n"
    assert [text.split("?")[0] for text in questions] == [*["Make this call"] * 3, *["Run this code"] * 3]
    assert "pay(to='Bob', amount=10)" in questions[2]


@pytest.mark.slow
async def test_a_repository_is_fixed(tmp_path: Path) -> None:
    repository = shutil.copytree(ROOT / "examples" / "fix" / "rotate", tmp_path / "work" / "rotate")
    (tmp_path / "work" / "elsewhere").symlink_to(tmp_path)
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    model = f"replay:{ROOT / 'examples' / 'fix' / 'rotate.replay.yaml'}"
    asked = {"problem": "Spaces.", "test": "sh test/run.sh"}
    async with stdio("--workspace", "work", "--fix", "--model", model, "--no-journal", cwd=tmp_path) as client:
        for path in ("..", "elsewhere", "nowhere", "rotate/rotate.sh"):
            assert (await client.call_tool("fix_repository", {**asked, "path": path})).isError, path
        done: CallToolResult = await client.call_tool("fix_repository", {**asked, "path": "rotate"})
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before
    assert done.structuredContent is not None
    assert (done.isError, done.structuredContent["succeeded"]) == (False, True)
    assert done.structuredContent["before"] == {"failed": 2, "passed": 3, "skipped": 0}
    assert done.structuredContent["after"] == {"failed": 0, "passed": 5, "skipped": 0}
    [text] = [each.text for each in done.content if each.type == "text"]
    assert "2 failed, 3 passed -> 5 passed\n" in text
    assert text.endswith(done.structuredContent["patch"].rstrip())
    patch = done.structuredContent["patch"].encode()
    subprocess.run(["git", "apply", "-"], input=patch, cwd=repository, check=True)
    assert "while IFS= read -r name" in (repository / "rotate.sh").read_text()


@pytest.mark.slow
async def test_a_client_of_http_has_a_sandbox_of_its_own(url: str) -> None:
    async with over_http(url) as one, over_http(url) as other:
        await call(one, "run_code", code="x = 1; open('mine', 'w').write('')")
        assert "NameError" in await call(other, "run_code", code="x")
        assert await call(other, "list_files") == "There are no files."


async def test_a_session_belongs_to_the_token_that_made_it(url: str) -> None:
    async with (
        httpx.AsyncClient(headers=HEADERS, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (reads, writes, session),
        ClientSession(reads, writes) as one,
    ):
        await one.initialize()
        headers = {**HEADERS, "mcp-session-id": session() or "", "Authorization": f"Bearer {OTHER}"}
        asked = {"jsonrpc": "2.0", "method": "tools/list", "id": 9}
        assert httpx.post(url, headers=headers, json=asked).status_code == 404
        assert httpx.delete(url, headers=headers).status_code == 404
        assert await call(one, "run_code", code="6 * 7") == "42"


@pytest.mark.slow
def test_hostile_requests_are_refused(url: str) -> None:
    def status(**more: Any) -> int:
        headers = {**HEADERS, **more.pop("headers", {})}
        headers = {name: value for name, value in headers.items() if value}
        return httpx.post(more.pop("to", url), headers=headers, json={}, **more).status_code

    assert status() == 400  # Not a request of MCP, but it came through.
    assert status(headers={"Authorization": ""}) == 401
    assert status(headers={"Authorization": TOKEN}) == 401
    assert status(headers={"Authorization": "Bearer x"}) == 401
    assert status(headers={"Authorization": ""}, to=f"{url}?token={TOKEN}") == 401
    assert status(headers={"Authorization": ""}, cookies={"token": TOKEN}) == 401
    assert status(headers={"Origin": "http://other.example"}) == 403
    assert status(headers={"Host": "other.example"}) == 421
    large = httpx.post(url, headers=HEADERS, content=b"x" * 100_000_000, timeout=60)
    assert large.status_code == 413


@pytest.mark.slow
async def test_a_client_that_leaves_ends_its_cell_and_others_are_served(url: str) -> None:
    asks: dict[str, Any] = {"protocolVersion": "2025-06-18", "capabilities": {}}
    asks["clientInfo"] = {"name": "test", "version": "1"}
    mark = "a-mark-of-the-test-1234"
    code = f"import subprocess; subprocess.run(['sleep', '50'], env={{'MARK': '{mark}'}})"
    port = int(url.rpartition(":")[2].partition("/")[0])
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
    for _, writer in idle:
        writer.write(b"POST /mcp HTTP/1.1\r\nHost: ")
    async with httpx.AsyncClient(headers=HEADERS) as client:

        async def send(method: str, number: int | None, wait: float = 20.0, **params: Any) -> httpx.Response:
            data = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": number} if number else {})}
            return await client.post(url, json=data, timeout=wait)

        client.headers["mcp-session-id"] = (await send("initialize", 1, **asks)).headers["mcp-session-id"]
        await send("notifications/initialized", None)
        with pytest.raises(httpx.ReadTimeout):
            await send("tools/call", 2, 2.0, name="run_code", arguments={"code": code})
        while processes_with(mark):
            await asyncio.sleep(0.1)
        again = await send("tools/call", 3, name="run_code", arguments={"code": "print(6 * 7)"})
        assert "42" in again.text
        assert (await client.delete(url)).status_code == 200
    for _, writer in idle:
        writer.close()


@pytest.mark.slow
def test_the_inspector_finds_and_calls_the_tools(url: str, tmp_path: Path) -> None:
    subprocess.run(["npm", "install", "--silent", "--prefix", str(tmp_path), INSPECTOR], check=True, timeout=100)
    inspector = [str(tmp_path / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]
    stdio = [sys.executable, "-m", "coderoom", "mcp"]
    http = [url, "--transport", "http", "--header", f"Authorization: Bearer {TOKEN}"]
    for server in (stdio, http):
        done = subprocess.run(
            [*inspector, *server, "--method", "tools/call", "--tool-name", "run_code", "--tool-arg", "code=print(6*7)"],
            capture_output=True,
            text=True,
            env={**environment(), "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
        assert json.loads(done.stdout)["structuredContent"]["output"] == "42\n", done.stderr


@pytest.mark.slow
def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    example = ROOT / "examples" / "mcp_client.py"
    [block] = [
        block.code
        for block in extract_code_blocks((ROOT / "docs" / "integrations.md").read_text())
        if "stdio_client" in block.code
    ]
    assert block in example.read_text()
    subprocess.run([sys.executable, str(example)], cwd=tmp_path, env=environment(), check=True, timeout=60)


@pytest.mark.slow
async def test_a_folder_stays_as_it_is_until_the_changes_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    async with stdio("--workspace", str(folder), "--workspace-mode", "overlay", cwd=tmp_path) as client:
        assert "read_file" not in {tool.name for tool in (await client.list_tools()).tools}
        await call(client, "run_code", code="open('a.txt', 'a').write('two\\n')")
        shown = await call(client, "show_changes")
        assert shown.startswith("modified a.txt")
        assert "+two" in shown
        assert (folder / "a.txt").read_text() == "one\n"
        await call(client, "discard_changes")
        assert await call(client, "show_changes") == "Nothing has changed."
        await call(client, "run_code", code="open('b.txt', 'w').write('b')")
        assert await call(client, "commit_changes") == "written: added b.txt"
    assert (folder / "b.txt").read_text() == "b"


@pytest.mark.slow
async def test_code_keeps_functions_and_later_clients_import_them(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    define = "def double(n):\n    'Multiply by two.'\n    return 2 * n\nsave_skill('double', 'assert double(2) == 4')"
    async with stdio("--skills", str(tmp_path / "skills"), cwd=work) as client:
        assert "Saved double(n)" in await call(client, "run_code", code=define)
        assert "AssertionError" in await call(
            client, "run_code", code="save_skill('double', 'assert double(2) == 5', '', True)"
        )
    async with stdio("--skills", str(tmp_path / "skills"), cwd=work) as client:
        code = "print(search_skills('multiply'))\nfrom skills import double\ndouble(21)"
        shown = await call(client, "run_code", code=code)
        assert "double(n): Multiply by two." in shown
        assert "42" in shown
