from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.generation import JavaScriptLanguage, TestRunner, make_sandbox
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


@pytest.fixture(scope="session")
async def node_sandbox() -> AsyncIterator[Sandbox]:
    async with make_sandbox(language="javascript", limits=Limits(memory_bytes=512 * 1024 * 1024)) as sandbox:
        yield sandbox


@pytest.fixture
def runner(sandbox: Sandbox) -> TestRunner:
    return TestRunner(sandbox, timeout=2)


@pytest.fixture
def hasty(sandbox: Sandbox) -> TestRunner:
    return TestRunner(sandbox, timeout=1)


@pytest.fixture
def node_runner(node_sandbox: Sandbox) -> TestRunner:
    return TestRunner(node_sandbox, timeout=5, language=JavaScriptLanguage())
