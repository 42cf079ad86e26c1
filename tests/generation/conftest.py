from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.generation import JavaScriptLanguage, TestRunner, make_sandbox
from coderoom.sandbox import Limits, Sandbox
from tests.judge.conftest import default_sandbox, hasty, runner, sandbox

__all__ = ["default_sandbox", "hasty", "runner", "sandbox"]


@pytest.fixture(scope="session")
async def node_sandbox() -> AsyncIterator[Sandbox]:
    async with make_sandbox(language="javascript", limits=Limits(memory_bytes=512 * 1024 * 1024)) as sandbox:
        yield sandbox


@pytest.fixture
def node_runner(node_sandbox: Sandbox) -> TestRunner:
    return TestRunner(node_sandbox, timeout=5, language=JavaScriptLanguage())
