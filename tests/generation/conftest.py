from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.generation import TestRunner
from coderoom.sandbox import Limits, Sandbox


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(limits=Limits(processes=32, memory_bytes=256 * 1024 * 1024)) as sandbox:
        yield sandbox


@pytest.fixture
def runner(sandbox: Sandbox) -> TestRunner:
    return TestRunner(sandbox, timeout=2)


@pytest.fixture
def hasty(sandbox: Sandbox) -> TestRunner:
    return TestRunner(sandbox, timeout=1)
