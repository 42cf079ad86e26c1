"""What tests of the Docker wall share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]
import pytest

from coderoom.sandbox import Limits, SandboxConfig
from coderoom.sandbox.walls.docker.engine import DockerWorker

__all__ = ["Start", "a_spec", "as_root", "gone", "ours"]

Start = Callable[..., Awaitable[DockerWorker]]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def a_spec(workspace: Path | None = None, **more: Any) -> SandboxConfig:
    wanted = {"network": False, "env": {}, "limits": Limits(), **more}
    return SandboxConfig(workspace=workspace, **wanted)


SHARED: set[str] = set()
"""The containers that were there before a test, of a sandbox that other tests share."""


def ours(engine: Any) -> list[str]:
    found = engine.containers(all=True, filters={"label": "coderoom"})
    own = [each["Id"] for each in found if each["Labels"]["coderoom"].split()[2:3] == [str(os.getpid())]]
    return [identity for identity in own if identity not in SHARED]


async def gone(engine: Any, container: str) -> None:
    """Wait until a container is no more; the test's own deadline is the only one."""
    while True:
        try:
            await asyncio.to_thread(engine.inspect_container, container)
        except docker.errors.NotFound:
            return
        await asyncio.sleep(0.05)
