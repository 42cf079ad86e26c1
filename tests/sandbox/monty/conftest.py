from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.sandbox import Limits, Sandbox, Session


@pytest.fixture(autouse=True)
def monty_is_installed() -> None:
    pytest.importorskip("pydantic_monty", reason="the engine monty is an extra: coderoom[monty]")


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(engine="monty", limits=Limits(wall_seconds=20, memory_bytes=64 << 20)) as sandbox:
        yield sandbox


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with sandbox.session() as session:
        yield session
