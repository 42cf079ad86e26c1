from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.judge import Judge, make_sandbox
from coderoom.sandbox import Limits, Sandbox

# One sandbox of a kind for all tests of a process: what a test leaves behind must not reach another one.


@pytest.fixture(scope="session")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with make_sandbox(limits=Limits(processes=32, memory_bytes=256 * 1024 * 1024)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
async def default_sandbox() -> AsyncIterator[Sandbox]:
    async with make_sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def runner(sandbox: Sandbox) -> Judge:
    return Judge(sandbox, timeout=2)


@pytest.fixture
def hasty(sandbox: Sandbox) -> Judge:
    return Judge(sandbox, timeout=1)
