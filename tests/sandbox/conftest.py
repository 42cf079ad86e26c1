from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.sandbox import Sandbox, Session

from .places import Place

WALLS = ["bubblewrap"]


@pytest.fixture(params=WALLS)
def place(request: pytest.FixtureRequest) -> Place:
    return Place("cpython", request.param)


@pytest.fixture
async def sandbox(place: Place) -> AsyncIterator[Sandbox]:
    async with place.sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with sandbox.session() as session:
        yield session
