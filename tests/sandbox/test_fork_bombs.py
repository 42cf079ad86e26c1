"""A session serves its next cell after a cell that was a fork bomb."""

from __future__ import annotations

import pytest

from coderoom.outcome import Outcome
from coderoom.sandbox import Limits

from .places import STRONGEST, Place

pytestmark = pytest.mark.attack

BOMB = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
DOCKER = Place("cpython", "docker")


@pytest.mark.parametrize(
    "place",
    [pytest.param(STRONGEST, id=str(STRONGEST)), pytest.param(DOCKER, id="docker", marks=pytest.mark.docker)],
    indirect=True,
)
async def test_a_session_goes_on_after_a_fork_bomb(place: Place) -> None:
    async with place.sandbox(limits=Limits(processes=40, wall_seconds=2)) as sandbox, sandbox.session() as session:
        await session.run("x = 41")
        for _ in range(2):
            bomb = await session.run(BOMB)
            assert bomb.outcome is not Outcome.OK
            result = await session.run("6 * 7")
            assert result.value == 42, result.output
        assert (await sandbox.run("6 * 7")).value == 42
