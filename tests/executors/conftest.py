"""Executors that tests share where nothing but running code matters: starting one takes longer than most tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from tests.support.docker import docker_host, docker_image

__all__ = ["docker_host", "docker_image", "executor", "local_executor", "sandbox_executor"]


@pytest.fixture(scope="session")
async def sandbox_executor() -> AsyncIterator[SandboxCodeExecutor]:
    async with SandboxCodeExecutor() as executor:
        yield executor


@pytest.fixture(scope="session")
async def local_executor() -> AsyncIterator[LocalCodeExecutor]:
    async with LocalCodeExecutor() as executor:
        yield executor


@pytest.fixture(params=["sandbox", "local"])
async def executor(
    request: pytest.FixtureRequest, sandbox_executor: SandboxCodeExecutor, local_executor: LocalCodeExecutor
) -> SandboxCodeExecutor | LocalCodeExecutor:
    """Each of the two, in an empty folder and without variables."""
    found = sandbox_executor if request.param == "sandbox" else local_executor
    await found.restart()
    return found
