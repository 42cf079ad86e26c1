"""How often requests to models may start."""

from __future__ import annotations

import asyncio
import math
import threading
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from time import monotonic
from typing import Final


class RateLimiter(AbstractAsyncContextManager[None]):
    """Spaces requests evenly, without bursts, across event loops and threads.

    Two requests start at least `60 / per_minute` seconds apart, so no more than `per_minute` start within a minute.
    Delays in the network may bring them closer together at the server.
    """

    def __init__(self, per_minute: float) -> None:
        self._seconds = 60 / per_minute
        self._lock = threading.Lock()
        self._last = -math.inf

    async def __aenter__(self) -> None:
        await self.begin()
        _CURRENT.set(self)

    async def __aexit__(self, *_: object) -> None:
        _CURRENT.set(None)

    async def begin(self) -> None:
        """Wait until the next request may start."""
        while (wait := self._take()) > 0:  # noqa: ASYNC110 (an event belongs to one event loop)
            await asyncio.sleep(wait)

    def _take(self) -> float:
        """Start a request if it may start now; return the remaining seconds otherwise."""
        with self._lock:
            now = monotonic()
            wait = self._last + self._seconds - now
            if wait <= 0:
                self._last = now
            return wait


_CURRENT: Final[ContextVar[RateLimiter | None]] = ContextVar("rate_limiter", default=None)


async def one_more() -> None:
    """Wait for the rate limiter that the current request passed, if any, before a second attempt."""
    limiter = _CURRENT.get()
    if limiter is not None:
        await limiter.begin()
