"""A real Studio for the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.studio.driving import Studio
from tests.support.studio import Studio as Server
from tests.support.studio import start_studio


@pytest.fixture(scope="session")
def studio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One Studio for all tests: `.url`, `.pid` of the command, `.appdir` and `.log`."""
    folder = tmp_path_factory.mktemp("studio")
    with start_studio(folder / "app", cwd=folder) as server:
        yield server


@pytest.fixture
def studio(studio_server: Server) -> Iterator[Studio]:
    """What drives it."""
    studio = Studio(studio_server.url)
    yield studio
    studio.close()
