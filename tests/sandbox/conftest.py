from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from coderoom.sandbox import Sandbox, Session

from .places import PLACES, Place


@pytest.fixture(params=PLACES, ids=str)
def place(request: pytest.FixtureRequest) -> Place:
    place: Place = request.param
    missing = place.missing()
    if missing:
        pytest.skip(missing)
    return place


@pytest.fixture
async def sandbox(place: Place) -> AsyncIterator[Sandbox]:
    async with place.sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with sandbox.session() as session:
        yield session
