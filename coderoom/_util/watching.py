"""Running below AutoGen Studio, which shows less than happens and closes less than is used."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import Any

__all__ = ["at_end_of_run", "current_run", "is_watched", "note_run"]

_STUDIO = "autogenstudio.web"
_POLL_SECONDS = 0.25

_log = logging.getLogger("coderoom")

Close = Callable[[], Awaitable[None]]

_request: ContextVar[asyncio.Task[Any] | None] = ContextVar("_request", default=None)
_closing: dict[Any, list[Close]] = {}
_watchers: set[asyncio.Task[None]] = set()


def is_watched() -> bool:
    """Whether this process is the server of AutoGen Studio's pages."""
    return f"{_STUDIO}.app" in sys.modules


def note_run() -> None:
    """Is called where a part of a team is made, since `autogenstudio serve` makes one in the task of each request."""
    if f"{_STUDIO}.serve" in sys.modules:
        with suppress(RuntimeError):  # There is no loop.
            _request.set(asyncio.current_task())


def at_end_of_run(close: Close) -> None:
    """Close something when the run of Studio that this is called in is over, however it ends.

    Studio makes a team for each run and drops it, and closes only the agents that stand directly in it.

    Args:
        close: Closes it, and does nothing where there is nothing to close.
    """
    run = current_run()
    if run is None:
        return
    closing = _closing.setdefault(run, [])
    if close in closing:
        return
    closing.append(close)
    if len(closing) == 1:
        # It is no part of the run, which it outlives.
        watcher = asyncio.create_task(_watch(run), context=Context())
        _watchers.add(watcher)
        watcher.add_done_callback(_forget)


def current_run() -> Any:
    """The run of Studio that this is called in; `None`: in none."""
    module = sys.modules.get(f"{_STUDIO}.managers.run_context")
    if module is not None:
        with suppress(RuntimeError):  # It is in no run of a page.
            return module.RunContext.current_run_id()
    return _request.get()


def _forget(watcher: asyncio.Task[None]) -> None:
    _watchers.discard(watcher)
    if not watcher.cancelled() and (error := watcher.exception()) is not None:
        _log.warning("It is not known when a run of AutoGen Studio ends: %r", error)


async def _watch(run: Any) -> None:
    try:
        await (asyncio.wait((run,)) if isinstance(run, asyncio.Task) else _end_of(run))
    finally:
        closing = _closing.pop(run)
    await asyncio.gather(*map(_do, closing), return_exceptions=True)


async def _end_of(run: Any) -> None:
    manager = await sys.modules[f"{_STUDIO}.deps"].get_websocket_manager()
    # Studio tells nobody that a run is over, and things that refer to each other keep all that it used.
    while run in manager.active_runs:  # noqa: ASYNC110 (there is nothing to wait for)
        await asyncio.sleep(_POLL_SECONDS)


async def _do(close: Close) -> None:
    await close()
