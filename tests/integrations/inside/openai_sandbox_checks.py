"""Sandboxes of the OpenAI Agents SDK: commands, files, snapshots, and an agent with the SDK's own tools."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import agents
import pytest
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, ExecTransportError, WorkspaceReadNotFoundError
from agents.sandbox.snapshot import LocalSnapshotSpec

from coderoom.integrations.openai_sandbox import CodeRoomSandboxClient
from tests.integrations.inside.processes import descendants, kill
from tests.integrations.support import call_of
from tests.support.openai_server import OpenAIServer


@pytest.fixture(scope="module")
def client() -> Iterator[CodeRoomSandboxClient]:
    with CodeRoomSandboxClient() as client:
        yield client


async def test_commands_and_files(client: CodeRoomSandboxClient) -> None:
    manifest = Manifest(entries={"notes/a.txt": File(content=b"one\ntwo\n")}, environment={"value": {"GREETING": "hi"}})
    async with await client.create(manifest=manifest) as one, await client.create() as two:
        done = await one.exec("echo $GREETING; wc -l < notes/a.txt; exit 3")
        assert (done.stdout, done.exit_code) == (b"hi\n2\n", 3)
        with pytest.raises(ExecTimeoutError):
            await one.exec("sleep 1000", timeout=0.3)
        await one.write(Path("deep/b.bin"), io.BytesIO(b"\0\xff"))
        assert (await one.read(Path("deep/b.bin"))).read() == b"\0\xff"
        assert await one.read_bounded(Path("notes/a.txt"), max_bytes=3) == b"one"
        assert sorted(Path(entry.path).name for entry in await one.ls(".")) == ["deep", "notes"]
        with pytest.raises(WorkspaceReadNotFoundError):
            await two.read(Path("notes/a.txt"))
        with pytest.raises(agents.sandbox.errors.InvalidManifestPathError):
            await one.read(Path("/etc/passwd"))
        assert await one.running()
    assert not await one.running()


async def test_session_goes_on_or_begins_with_its_snapshot(client: CodeRoomSandboxClient, tmp_path: Path) -> None:
    session = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path))
    await session.start()
    await session.write(Path("kept.txt"), io.BytesIO(b"kept"))
    await session.exec("echo process > /tmp/outside")
    payload = client.serialize_session_state(session.state)
    again = await client.resume(client.deserialize_session_state(payload))
    await again.start()
    assert (await again.exec("cat kept.txt /tmp/outside")).stdout == b"keptprocess\n"
    await again.stop()
    payload = client.serialize_session_state(again.state)
    await client.delete(again)
    fresh = await client.resume(client.deserialize_session_state(payload))
    async with fresh:
        done = await fresh.exec("cat kept.txt /tmp/outside")
        assert (done.stdout, done.exit_code) == (b"kept", 1)


async def test_agent_with_the_tools_of_the_sdk(client: CodeRoomSandboxClient) -> None:
    with OpenAIServer() as server:
        agents.set_default_openai_client(agents.AsyncOpenAI(base_url=server.base_url, api_key="test"), False)
        agents.set_default_openai_api("chat_completions")
        shell = agents.sandbox.capabilities.Shell()
        agent = SandboxAgent(name="coder", model="gpt-5-mini", capabilities=[shell])
        server.add(call_of(1, "exec_command", cmd="python3 -c 'print(6 * 7)'"), "It is 42.")
        config = agents.RunConfig(sandbox=SandboxRunConfig(client=client), tracing_disabled=True)
        result = await agents.Runner.run(agent, "What is 6 * 7?", run_config=config)
        assert result.final_output == "It is 42."
        [answer] = [each["content"] for each in server.requests[-1].messages if each["role"] == "tool"]
        assert "42" in str(answer)


async def test_broken_sandbox() -> None:
    before = descendants()
    with CodeRoomSandboxClient() as client:
        session = await client.create()
        await session.start()
        kill(descendants() - before)
        with pytest.raises(ExecTransportError):
            await session.exec("true")
        assert not await session.running()
    assert descendants() <= before
