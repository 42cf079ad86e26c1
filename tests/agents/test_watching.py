"""Closing what a run of AutoGen Studio has used, when that is over."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from coderoom._util.watching import at_end_of_run
from tests.agents.helpers import until


class Closed:
    """Notes that it was closed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.times = 0
        self._error = error

    async def close(self) -> None:
        self.times += 1
        if self._error is not None:
            raise self._error


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The runs of what stands in for Studio; this test is in run 7."""
    runs = {7, 8}
    run: ContextVar[int] = ContextVar("run", default=7)

    async def get_websocket_manager() -> Any:
        return SimpleNamespace(active_runs=runs)

    context: Any = ModuleType("run_context")
    context.RunContext = SimpleNamespace(current_run_id=run.get)
    deps: Any = ModuleType("deps")
    deps.get_websocket_manager = get_websocket_manager
    monkeypatch.setitem(sys.modules, "autogenstudio.web.managers.run_context", context)
    monkeypatch.setitem(sys.modules, "autogenstudio.web.deps", deps)
    return runs


async def test_each_is_closed_once_and_not_before(active: set[int]) -> None:
    one, another, failing = Closed(), Closed(), Closed(ValueError("no"))
    for closed in (failing, one, another, one):
        at_end_of_run(closed.close)
    await asyncio.sleep(0.4)
    assert (one.times, another.times) == (0, 0)
    active.discard(8)
    await asyncio.sleep(0.3)
    assert one.times == 0
    active.discard(7)
    await until(lambda: one.times == another.times == failing.times == 1)


async def test_the_next_run_of_the_same_number_is_another(active: set[int]) -> None:
    closed = Closed()
    for times in (1, 2):
        active.add(7)
        at_end_of_run(closed.close)
        active.discard(7)
        await until(lambda times=times: closed.times == times)  # type: ignore[misc]


async def test_elsewhere_nothing_is_closed() -> None:
    closed = Closed()
    at_end_of_run(closed.close)
    await asyncio.sleep(0.4)
    assert closed.times == 0


async def test_another_studio_is_left_alone(
    active: set[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def get_websocket_manager() -> object:
        return object()

    monkeypatch.setattr(sys.modules["autogenstudio.web.deps"], "get_websocket_manager", get_websocket_manager)
    closed = Closed()
    with caplog.at_level(logging.WARNING, "coderoom"):
        at_end_of_run(closed.close)
        await until(lambda: bool(caplog.records))
    assert "It is not known when a run of AutoGen Studio ends" in caplog.text
    assert closed.times == 0
