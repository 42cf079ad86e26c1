# ruff: noqa: E501 (pieces of hostile code, one to a line)
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..places import Place
from . import cage

Caged = Callable[..., Any]

# Never without a wall: the cage keeps processes, but no files and no network. What a container runs is in no cage at all.
# Both walls of namespaces show the same; CODEROOM_ATTACKED_WALLS="bubblewrap namespaces" attacks them one after the other.
CHOSEN = os.environ.get("CODEROOM_ATTACKED_WALLS", "bubblewrap").split()
WALLED = [Place("cpython", wall) for wall in ("bubblewrap", "namespaces") if wall in CHOSEN]
# All are marked `attack` but these, which say most in the least time.
QUICK = {
    "test_proc_gives_nothing_away",
    "test_nothing_of_the_hosts_is_there",
    "test_what_changes_the_machine_is_refused",
    "test_sessions_share_nothing",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.name.partition("[")[0] not in QUICK:
            item.add_marker(pytest.mark.attack)


@pytest.fixture(params=WALLED, ids=str)
def place(request: pytest.FixtureRequest) -> Place:
    place: Place = request.param
    missing = place.missing()
    if missing:
        pytest.skip(missing)
    return place


@pytest.fixture
def caged(place: Place) -> Caged:
    """Runs a driver of the test's module in a cage, with the wall's name as its first argument."""
    reason = cage.why_not()
    if reason:
        pytest.skip(reason)

    def run(driver: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return cage.run(driver, place.wall, *arguments, **options)

    return run


@pytest.fixture
def caged_once() -> Caged:
    """As `caged`, but behind the first wall that is there: for what takes long, and is kept by what all walls share."""
    reason = cage.why_not() or "no wall can be built: " + "; ".join(place.missing() for place in WALLED)
    walls = [place.wall for place in WALLED if not place.missing()]
    if cage.why_not() or not walls:
        pytest.skip(reason)

    def run(driver: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return cage.run(driver, walls[0], *arguments, **options)

    return run
