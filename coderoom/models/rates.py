"""How often requests to models may start."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from time import monotonic
from typing import Any, Final

from coderoom.steps import MODEL, StepObserver


class RateLimiter:
    """Spaces requests evenly, without bursts, across event loops and threads.

    Two requests start at least `60 / per_minute` seconds apart, so no more than `per_minute` start within a minute.
    Delays in the network may bring them closer together at the server.
    """

    def __init__(self, per_minute: float) -> None:
        self._seconds = 60 / per_minute
        self._lock = threading.Lock()
        self._last = -math.inf

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


_MINUTE: Final = 60.0


class Pace(StepObserver):
    """Delays requests to models, so that there are not more of them, and of their tokens, in a minute than allowed.

    Args:
        requests: The most requests; `None`: any number.
        tokens: The most tokens; `None`: any number.
    """

    def __init__(self, requests: float | None, tokens: int | None) -> None:
        self.rates = requests, tokens
        self._limiter = None if requests is None else RateLimiter(requests)
        self._tokens = tokens
        self._used: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    async def wait(self, kind: str, request: Any) -> None:
        """Wait until the next request may begin."""
        if self._limiter is not None:
            await self._limiter.begin()
        while (seconds := self._too_soon()) > 0:  # noqa: ASYNC110 (as above)
            await asyncio.sleep(min(1.0, seconds))

    def _too_soon(self) -> float:
        with self._lock:
            now = monotonic()
            while self._used and self._used[0][0] < now - _MINUTE:
                self._used.popleft()
            if self._tokens is None or sum(tokens for _, tokens in self._used) < self._tokens:
                return 0.0
            return self._used[0][0] + _MINUTE - now + 0.01

    def keep(self, kind: str, request: Any, result: Any, seconds: float, *, known: bool) -> None:
        """Count the tokens of a reply."""
        if kind == MODEL and not known:
            usage = result["usage"]
            self.count(usage["prompt_tokens"] + usage["completion_tokens"])

    def count(self, tokens: int) -> None:
        """Count tokens that were used."""
        if tokens and self._tokens is not None:
            with self._lock:
                self._used.append((monotonic(), tokens))
