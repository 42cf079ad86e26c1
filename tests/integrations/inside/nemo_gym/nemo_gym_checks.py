"""NeMo Gym's own sandboxes, sync and async, with CodeRoom as their provider."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nemo_gym.sandbox import AsyncSandbox, Sandbox, SandboxCreateError, SandboxSpec, SandboxStatus, create_provider
from nemo_gym.sandbox.providers import register_provider

from coderoom.integrations.nemo_gym import CodeRoomProvider
from tests.integrations.inside.processes import descendants, kill

register_provider("coderoom", CodeRoomProvider, override=True)
PROVIDER: dict[str, Any] = {"coderoom": {"limits": {"wall_seconds": 30}}}


async def test_sandboxes_beside_each_other(tmp_path: Path) -> None:
    (tmp_path / "in.bin").write_bytes(b"\0\xff")
    provider = create_provider(PROVIDER)
    spec = SandboxSpec(env={"GREETING": "hi"}, workdir="/workspace/deep folder")
    one, two = await asyncio.gather(provider.create(spec), provider.create(SandboxSpec()))
    await provider.upload_file(one, tmp_path / "in.bin", "/workspace/deep folder/a.bin")
    done = await provider.exec(one, 'echo "$GREETING $NAME"; ls; echo err >&2; exit 3', env={"NAME": "you"})
    assert (done.stdout, done.stderr, done.return_code, done.error_type) == ("hi you\na.bin\n", "err\n", 3, None)
    await provider.download_file(one, "/workspace/deep folder/a.bin", tmp_path / "out.bin")
    assert (tmp_path / "out.bin").read_bytes() == b"\0\xff"
    with pytest.raises(FileNotFoundError):
        await provider.download_file(two, "/workspace/deep folder/a.bin", tmp_path / "out.bin")
    assert (await provider.exec(two, "sleep 1000", timeout_s=0.3)).error_type == "timeout"
    await provider.close(one)
    assert (await provider.status(one), await provider.status(two)) == (SandboxStatus.STOPPED, SandboxStatus.RUNNING)
    await provider.aclose()


async def test_memory_of_a_spec_and_what_there_is_not() -> None:
    async with AsyncSandbox(PROVIDER) as sandbox:
        await sandbox.start(SandboxSpec(resources={"memory_mib": 200}))
        done = await sandbox.exec("python3 -c 'bytearray(400 << 20)'")
        assert done.return_code == 1
        assert "MemoryError" in done.stderr
    with pytest.raises(SandboxCreateError, match="no image"):
        await AsyncSandbox(PROVIDER).start(SandboxSpec(image="python:3.12"))


def test_sync_sandbox_that_breaks() -> None:
    before = descendants()
    with Sandbox(PROVIDER) as sandbox:
        sandbox.start(SandboxSpec())
        assert sandbox.exec("echo hello").stdout == "hello\n"
        kill(descendants() - before)
        assert sandbox.exec("true").error_type == "sandbox"
        assert sandbox.status() is SandboxStatus.ERROR
    assert descendants() <= before
