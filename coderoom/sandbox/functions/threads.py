"""A pool of threads for functions that block. Used by `Calls`."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """A pool of threads that does not delay the end of the interpreter.

    A pool of `concurrent.futures` would: it waits until all functions have returned.

    Args:
        most: The largest number of threads.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._idle = threading.Semaphore(0)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()

    def run(self, work: Callable[[], T], on_result: Callable[[T], None]) -> None:
        """Do `work`, which must not raise, in a thread, and give its result to `on_result` in the event loop."""
        self._jobs.put(_Job(work, asyncio.get_running_loop(), on_result))
        if not self._idle.acquire(blocking=False) and self._count < self._most:
            self._count += 1
            name = f"coderoom-call-{self._count}"
            threading.Thread(target=_serve, args=(self._jobs, self._idle), name=name, daemon=True).start()

    def close(self) -> None:
        """End each thread after its current work; waiting work is not done."""
        for _ in range(self._count):
            self._jobs.put(None)


@dataclass(slots=True)
class _Job:
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    on_result: Callable[[Any], None]

    def do(self) -> None:
        result = self.work()
        with contextlib.suppress(RuntimeError):  # The event loop is closed.
            self.loop.call_soon_threadsafe(self.on_result, result)


def _serve(jobs: queue.SimpleQueue[_Job | None], idle: threading.Semaphore) -> None:
    while (job := jobs.get()) is not None:
        job.do()
        del job  # So that a waiting thread keeps no objects alive.
        idle.release()
