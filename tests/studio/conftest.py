from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.conftest import actor, agents, coder, lent, one_folder, terminal, tmp_path, warm
from tests.studio import driving
from tests.support.studio import Studio, start_studio

__all__ = ["actor", "agents", "coder", "driver", "lent", "one_folder", "studio_server", "terminal", "tmp_path", "warm"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The first test installs Studio.
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))


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
