from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coderoom.sandbox import Sandbox, Session
from tests.support.docker import docker_host, docker_image

from .offered import RELEASED
from .places import PLACES, Place

__all__ = ["docker_host", "docker_image"]


@pytest.fixture(params=PLACES, ids=str)
def place(request: pytest.FixtureRequest) -> Place:
    place: Place = request.param
    missing = place.missing()
    if missing:
        pytest.skip(missing)
    if place.wall == "docker":
        return replace(place, arguments={"options": {"image": request.getfixturevalue("docker_image")}})
    return place


@pytest.fixture
async def sandbox(place: Place) -> AsyncIterator[Sandbox]:
    async with place.sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with sandbox.session() as session:
        yield session


@pytest.fixture
def released() -> Iterator[None]:
    """Functions of the host that block are let go at the end."""
    RELEASED.clear()
    yield
    RELEASED.set()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder that a worker who is not root any more can reach too."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder.stat().st_mode & 0o077 == 0 and folder.parent != folder:
            folder.chmod(0o711)
    return tmp_path
