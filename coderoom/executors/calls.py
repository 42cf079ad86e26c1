"""Calls that end when their token, their task or their owner says so."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from autogen_core import CancellationToken

from coderoom._util.tasks import to_its_end

__all__ = ["CallEnded", "CallGaveUp", "Calls"]

T = TypeVar("T")


class CallEnded(Exception):  # noqa: N818 (an event and not a fault)
    """The owner of the calls ended this one."""


class CallGaveUp(Exception):  # noqa: N818
    """What was called ended itself as cancelled although nobody had asked for that."""


class Calls:
    """The calls under way to something that may be slow to end.

    Args:
        patience: How long, in seconds, a call that was told to end is waited for before it is left to itself.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._active: dict[asyncio.Task[Any], asyncio.Future[type[BaseException]]] = {}

    async def run(
        self, call: Callable[[CancellationToken], Coroutine[Any, Any, T]], token: CancellationToken | None
    ) -> T:
        """Make a call and return what it returns.

        The call gets a token of its own. It runs in a task, since what is called may swallow a cancellation or be deaf
        to it, and neither must keep the caller from ending.

        Args:
            call: What to call.
            token: A token that may be cancelled from any thread.

        Raises:
            asyncio.CancelledError: The token or the surrounding task was cancelled; the call was told to end first.
            CallEnded: `end_all` ended it.
            CallGaveUp: The call raised `asyncio.CancelledError` by itself.
        """
        if token is not None and token.is_cancelled():
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        inner = CancellationToken()
        task = loop.create_task(call(inner))
        stopped = self._active[task] = loop.create_future()

        def on_token() -> None:
            # Perhaps in another thread, and perhaps after the loop was closed: the token outlives the call.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_tell, stopped, asyncio.CancelledError)

        if token is not None:
            token.add_callback(on_token)
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return _result(task)
            raise stopped.result()
        finally:
            stopped.cancel()
            del self._active[task]
            if not task.done():
                await self._end(task, inner)

    async def end_all(self) -> None:
        """End all calls and wait, in bounds, until they have ended."""
        tasks = list(self._active)
        for stopped in self._active.values():
            _tell(stopped, CallEnded)
        if tasks:
            await asyncio.wait(tasks, timeout=self._patience)

    async def _end(self, task: asyncio.Task[Any], inner: CancellationToken) -> None:
        # Nobody waits for its answer any more, and an exception that nobody looks at would be logged.
        task.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())
        with contextlib.suppress(Exception):  # The callbacks of others run in here.
            inner.cancel()
        task.cancel()
        # Also if told again: who is told that it has ended asks what is known of it.
        await to_its_end(asyncio.wait((task,), timeout=self._patience))


def _tell(stopped: asyncio.Future[type[BaseException]], reason: type[BaseException]) -> None:
    if not stopped.done():
        stopped.set_result(reason)


def _result(task: asyncio.Task[T]) -> T:
    if task.cancelled():
        raise CallGaveUp
    return task.result()
