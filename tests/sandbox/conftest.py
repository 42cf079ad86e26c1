from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coderoom.sandbox import Sandbox, Session
from tests.support.docker import docker_host, docker_image

from .offered import RELEASED
from .places import STRONGEST, Place

__all__ = ["docker_host", "docker_image"]


@pytest.fixture(params=[pytest.param(STRONGEST, id=str(STRONGEST))])
def place(request: pytest.FixtureRequest) -> Place:
    place: Place = request.param
    missing = place.missing()
    if missing:
        pytest.skip(missing)
    if place.wall == "docker":
        return replace(place, arguments={"options": {"image": request.getfixturevalue("docker_image")}})
    return place


@pytest.fixture(scope="session")
async def started() -> AsyncIterator[Callable[[Place], Awaitable[Sandbox]]]:
    """One sandbox for each place, which all tests of this process share."""
    sandboxes: dict[Place, Sandbox] = {}

    async def start(place: Place) -> Sandbox:
        if place not in sandboxes:
            sandboxes[place] = place.sandbox()
            await sandboxes[place].start()
        return sandboxes[place]

    yield start
    for sandbox in sandboxes.values():
        await sandbox.close()


@pytest.fixture
async def sandbox(place: Place, started: Callable[[Place], Awaitable[Sandbox]]) -> Sandbox:
    """The shared sandbox; a test that closes it, or needs other arguments, makes one with `place.sandbox()`."""
    return await started(place)


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with sandbox.session() as session:
        yield session


@pytest.fixture
def released() -> Iterator[None]:
    """Host functions that block are released at the end."""
    RELEASED.clear()
    yield
    RELEASED.set()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder that a worker that gave up root can reach too."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder.stat().st_mode & 0o077 == 0 and folder.parent != folder:
            folder.chmod(0o711)
    return tmp_path
