"""What components have opened is closed at the end of a run where nobody else closes it.

AutoGen Studio, for instance, makes a team for each run and does not close it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from coderoom._util.tasks import run_uncancellable

Close = Callable[[], Awaitable[None]]

_opened: ContextVar[list[Close] | None] = ContextVar("_opened", default=None)
_requests: set[asyncio.Task[None]] = set()


@asynccontextmanager
async def closing_what_opens() -> AsyncIterator[None]:
    """Close everything that is passed to `at_end_of_run` inside, at the end."""
    opened: list[Close] = []
    _opened.set(opened)
    try:
        yield
    finally:
        await run_uncancellable(_close_all(opened))


def at_end_of_run(close: Close) -> None:
    """Close something at the end of the surrounding run. Does nothing if the run's caller closes its components."""
    opened = _opened.get()
    if opened is not None and close not in opened:
        opened.append(close)


def note_run() -> None:
    """Detect runs of `autogenstudio serve`, which creates a team in the task of each request. Components call this."""
    if "autogenstudio.web.serve" not in sys.modules or _opened.get() is not None:
        return
    try:
        request: asyncio.Task[Any] | None = asyncio.current_task()
    except RuntimeError:  # There is no event loop.
        return
    if request is not None:
        opened: list[Close] = []
        _opened.set(opened)

        def close_later(_: object) -> None:
            closing = asyncio.get_running_loop().create_task(_close_all(opened))
            _requests.add(closing)
            closing.add_done_callback(_requests.discard)

        request.add_done_callback(close_later)


async def _close_all(opened: list[Close]) -> None:
    await asyncio.gather(*(close() for close in opened), return_exceptions=True)
