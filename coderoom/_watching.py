"""Running below the pages of AutoGen Studio, which shows less than happens and closes less than is used."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

__all__ = ["at_end_of_request", "at_end_of_run", "is_watched"]

_STUDIO = "autogenstudio.web"
_POLL_SECONDS = 0.25

_log = logging.getLogger("coderoom")

Close = Callable[[], Awaitable[None]]

_closing: dict[Any, list[Close]] = {}
_watchers: set[asyncio.Task[None]] = set()


def is_watched() -> bool:
    """Whether this process is the server of AutoGen Studio's pages."""
    return f"{_STUDIO}.app" in sys.modules


def at_end_of_run(close: Close) -> None:
    """Close something when the run of Studio that this is called in is over, however it ends.

    Studio makes a team for each run and drops it, and closes only the agents that stand directly in it.

    Args:
        close: Closes it, and does nothing where there is nothing to close.
    """
    run = _current_run()
    if run is None:
        return
    closing = _closing.setdefault(run, [])
    if close in closing:
        return
    closing.append(close)
    if len(closing) == 1:
        watcher = asyncio.create_task(_watch(run))
        _watchers.add(watcher)
        watcher.add_done_callback(_forget)


def at_end_of_request(close: Close) -> None:
    """Close something when the request of `autogenstudio serve` that this is called in is over, however it ends.

    Each request makes a team of its own there, and nobody ends what AutoGen's agents have used.

    Args:
        close: Closes it, and does nothing where there is nothing to close.
    """
    request = asyncio.current_task() if _is_serving() else None
    if request is not None:
        request.add_done_callback(lambda _: _close_soon(close))


def _is_serving() -> bool:
    if f"{_STUDIO}.serve" not in sys.modules:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _close_soon(close: Close) -> None:
    closing = asyncio.create_task(_close_all([close]))
    _watchers.add(closing)
    closing.add_done_callback(_forget)


def _current_run() -> Any:
    module = sys.modules.get(f"{_STUDIO}.managers.run_context")
    try:
        return None if module is None else module.RunContext.current_run_id()
    except RuntimeError:  # It is in no run of Studio's.
        return None


def _forget(watcher: asyncio.Task[None]) -> None:
    _watchers.discard(watcher)
    if not watcher.cancelled() and (error := watcher.exception()) is not None:
        _log.warning("It is not known when a run of AutoGen Studio ends: %r", error)


async def _watch(run: Any) -> None:
    try:
        manager = await sys.modules[f"{_STUDIO}.deps"].get_websocket_manager()
        # Studio tells nobody that a run is over, and things that refer to each other keep all that it used.
        while run in manager.active_runs:  # noqa: ASYNC110 (there is nothing to wait for)
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        closing = _closing.pop(run)
    await _close_all(closing)


async def _close_all(closing: Iterable[Close]) -> None:
    await asyncio.gather(*map(_do, closing), return_exceptions=True)


async def _do(close: Close) -> None:
    await close()
