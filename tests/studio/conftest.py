from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.studio import driving
from tests.support.studio import Studio, start_studio


@pytest.fixture(scope="session")
def studio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """One Studio for all tests: `.url`, `.pid` of the command, `.appdir` and `.log`."""
    folder = tmp_path_factory.mktemp("studio")
    with start_studio(folder / "app", "--no-browser", cwd=folder) as studio:
        yield studio


@pytest.fixture
def driver(studio_server: Studio) -> Iterator[driving.Studio]:
    """Who drives it as its page does."""
    driver = driving.Studio(studio_server.url)
    yield driver
    driver.close()
