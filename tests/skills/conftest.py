"""One folder of skills with a warm judge for each test, and a session that can use them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.sandbox import Sandbox, Session
from coderoom.skills import Skills


@pytest.fixture(scope="session")
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as made:
        yield made


@pytest.fixture(scope="session")
async def _shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Skills]:
    async with Skills(tmp_path_factory.mktemp("skills")) as made:
        yield made


@pytest.fixture
def skills(_shared: Skills) -> Skills:
    """An empty folder; the judge stays warm."""
    for file in _shared.folder.path.iterdir():
        file.unlink()
    return _shared


@pytest.fixture
async def session(sandbox: Sandbox, skills: Skills) -> AsyncIterator[Session]:
    async with sandbox.session(functions=await skills.functions()) as made:
        yield made
