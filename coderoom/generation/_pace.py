"""Lets requests begin only so often."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import AbstractAsyncContextManager

from aiolimiter import AsyncLimiter

__all__ = ["Pace"]


class Pace(AbstractAsyncContextManager[None]):
    """Lets one request begin after the other, without bursts, also where one event loop follows another.

    Args:
        per_minute: How many may begin in a minute.
    """

    def __init__(self, per_minute: float) -> None:
        self._seconds = 60 / per_minute
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limiter = self._fresh()
        self._last = -math.inf

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # A limiter belongs to the loop that it was used in first.
            self._loop, self._limiter = loop, self._fresh()
        await self._limiter.acquire()
        await asyncio.sleep(self._last + self._seconds - time.monotonic())  # It knows nothing of the loop before.
        self._last = time.monotonic()

    async def __aexit__(self, *_: object) -> None:
        pass

    def _fresh(self) -> AsyncLimiter:
        return AsyncLimiter(1, self._seconds)
