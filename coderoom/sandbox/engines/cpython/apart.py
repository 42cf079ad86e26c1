"""Workers with one session at a time, where sessions of the same worker would share what each has to have alone.

`CPythonEngine` uses it for a list of hosts behind the wall `docker`, where the network is that of the container.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

_MOST_IDLE = 4


class _Worker(Protocol):
    @property
    def lost(self) -> bool: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def abandon(self) -> None: ...

    def kill(self) -> None: ...


W = TypeVar("W", bound=_Worker)


class Apart(Generic[W]):
    """The workers, of which those without a session are used again.

    Args:
        make: Makes a worker; it is given what takes it back once its session has ended.
        concurrency: How many sessions there may be at a time.
    """

    def __init__(self, make: Callable[[Callable[[W], None]], W], concurrency: int) -> None:
        self._make = make
        self._free = asyncio.Semaphore(concurrency)
        self._idle: deque[W] = deque()
        self._all: list[W] = []
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def lost(self) -> bool:
        """Whether all workers have ended."""
        return all(worker.lost for worker in self._all)

    async def start(self) -> W:
        """Start the first one."""
        worker = await self._started()
        self._idle.append(worker)
        return worker

    async def take(self) -> W:
        """A worker for a session."""
        await self._free.acquire()
        try:
            while self._idle:
                worker = self._idle.popleft()
                if not worker.lost:
                    return worker
                self._drop(worker)
            return await self._started()
        except BaseException:
            self._free.release()
            raise

    def put(self, worker: W) -> None:
        """Take a worker back."""
        self._free.release()
        if worker.lost or len(self._idle) >= _MOST_IDLE:
            self._drop(worker)
        else:
            self._idle.append(worker)

    async def close(self) -> None:
        """End all of them."""
        for worker in self._all:
            self._close(worker)
        self._all.clear()
        self._idle.clear()
        await asyncio.gather(*self._closing)

    def abandon(self) -> None:
        """As `close`, but waits for nothing; what is left is cleaned up later."""
        for worker in self._all:
            worker.abandon()

    def kill(self) -> None:
        """As `close`, without an event loop."""
        for worker in self._all:
            worker.kill()

    async def _started(self) -> W:
        worker = self._make(self.put)
        self._all.append(worker)
        try:
            await worker.start()
        except BaseException:
            self._all.remove(worker)
            raise
        return worker

    def _drop(self, worker: W) -> None:
        if worker in self._all:
            self._all.remove(worker)
            self._close(worker)

    def _close(self, worker: W) -> None:
        closing = asyncio.ensure_future(worker.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
