from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is slow, which says nothing about the code. `make test` tries a quarter as many as the full run.
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("full"), max_examples=25)
settings.load_profile("full")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Measure no coverage of hostile code, which goes over the same lines again and again."""
    for item in items:
        if item.get_closest_marker("attack"):
            item.add_marker(pytest.mark.no_cover)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> object:
    """Collect no garbage while the tests are read, which makes hardly any, and never look through them later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
