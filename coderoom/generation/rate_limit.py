"""Limits how many requests begin in a minute."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar

from aiolimiter import AsyncLimiter

__all__ = ["RateLimiter", "one_more"]


class RateLimiter(AbstractAsyncContextManager[None]):
    """Lets one request begin after the other, without bursts, whatever event loops and threads they come from.

    From one beginning to the next a minute's part passes at least, so that in less than a minute never more than
    `per_minute` begin. What lies between here and a server may bring two of them nearer to each other.

    Args:
        per_minute: How many may begin in a minute.
    """

    def __init__(self, per_minute: float) -> None:
        self._seconds = 60 / per_minute
        self._lock = threading.Lock()
        self._limiters: dict[asyncio.AbstractEventLoop, AsyncLimiter] = {}
        self._last = -math.inf

    async def __aenter__(self) -> None:
        await self.begin()
        _CURRENT.set(self)

    async def __aexit__(self, *_: object) -> None:
        _CURRENT.set(None)

    async def begin(self) -> None:
        """Wait until one more may begin."""
        await self._limiter().acquire()  # One loop's requests wait here in their order,
        wait = self._take()
        while wait > 0:  # and loops, of which a limiter knows nothing, here for each other.
            await asyncio.sleep(wait)
            wait = self._take()

    def _take(self) -> float:
        """Begin, or say how long that has to wait still."""
        with self._lock:
            now = time.monotonic()
            wait = self._last + self._seconds - now
            if wait <= 0:
                self._last = now
            return wait

    def _limiter(self) -> AsyncLimiter:
        loop = asyncio.get_running_loop()
        with self._lock:
            self._limiters = {each: known for each, known in self._limiters.items() if not each.is_closed()}
            return self._limiters.setdefault(loop, AsyncLimiter(1, self._seconds))


_CURRENT: ContextVar[RateLimiter | None] = ContextVar("pace", default=None)


async def one_more() -> None:
    """Wait until a request may be sent once more, where it was let begin by a pace."""
    pace = _CURRENT.get()
    if pace is not None:
        await pace.begin()
