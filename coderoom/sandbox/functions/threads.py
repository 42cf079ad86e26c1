"""Threads for functions that block."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Threads"]


class Threads:
    """Threads that do one thing after the other, and do not keep the interpreter from ending.

    Those of `concurrent.futures` would: a function that blocks for an hour would keep the host for an hour.

    Args:
        most: How many there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._idle = threading.Semaphore(0)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()

    async def run(self, work: Callable[[], Any]) -> Any:
        """Have something done; it must not raise."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        self._jobs.put(_Job(work, loop, done))
        if not self._idle.acquire(blocking=False) and self._count < self._most:
            self._count += 1
            name = f"coderoom-call-{self._count}"
            threading.Thread(target=_serve, args=(self._jobs, self._idle), name=name, daemon=True).start()
        return await done

    def close(self) -> None:
        """Let them end when they have done what they are at; what waits is not done."""
        for _ in range(self._count):
            self._jobs.put(None)


@dataclass(slots=True)
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Any]

    def do(self) -> None:
        if self.done.cancelled():
            return
        result = self.work()
        with contextlib.suppress(RuntimeError):  # The event loop is closed: nobody waits any more.
            self.loop.call_soon_threadsafe(_settle, self.done, result)


def _serve(jobs: queue.SimpleQueue[_Job | None], idle: threading.Semaphore) -> None:
    while (job := jobs.get()) is not None:
        job.do()
        del job  # Whoever waits for work keeps nothing alive.
        idle.release()


def _settle(done: asyncio.Future[Any], result: Any) -> None:
    if not done.done():
        done.set_result(result)
