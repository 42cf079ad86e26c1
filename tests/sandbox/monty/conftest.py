from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.sandbox.engines.monty.engine import MontyEngine, MontySession
from coderoom.sandbox.limits import Limits


@pytest.fixture(autouse=True)
def monty_is_installed() -> None:
    pytest.importorskip("pydantic_monty", reason="the engine monty is an extra: coderoom[monty]")


@pytest.fixture
async def engine() -> AsyncIterator[MontyEngine]:
    async with MontyEngine(limits=Limits(wall_seconds=20, memory_bytes=64 << 20)) as engine:
        yield engine


@pytest.fixture
async def session(engine: MontyEngine) -> MontySession:
    return await engine.open()
