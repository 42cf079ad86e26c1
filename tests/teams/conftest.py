from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator

import pytest

from coderoom.teams.group_chat import Turns


class Complaints(logging.Handler):
    """Keeps what a logger is told."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture(autouse=True, scope="package")
def collecting_is_quick() -> None:
    """Leave out of each collection all that was there before the tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def agents_that_do_not_listen_are_ended_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Turns, "GRACE_SECONDS", 0.1)


@pytest.fixture(autouse=True)
async def nothing_is_left(caplog: pytest.LogCaptureFixture) -> AsyncGenerator[None, None]:
    """No test may leave a task running, or a complaint of asyncio's about a task that nobody looked after."""
    # AutoGen logs each error of an agent with its traceback, which would keep alive what a test has done with.
    caplog.set_level(logging.CRITICAL, logger="autogen_core")
    complaints = Complaints()
    asyncio_logger = logging.getLogger("asyncio")
    asyncio_logger.addHandler(complaints)
    before = asyncio.all_tasks()
    try:
        yield
        left = asyncio.all_tasks() - before - {asyncio.current_task()}
        if left:
            # What was told to end may take a moment for it.
            await asyncio.wait(left, timeout=3)
        assert [task for task in left if not task.done()] == []
        del left
        gc.collect()
        assert complaints.texts == []
    finally:
        asyncio_logger.removeHandler(complaints)
