"""A stream into which somebody else may put something, each item taken before the next one is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Generic, TypeVar

from coderoom._util.tasks import ended

__all__ = ["Relay"]

T = TypeVar("T")


class Relay(Generic[T]):
    """Passes a stream on, and what is put in between.

    Who gives an item waits until whoever reads the stream asks for the next one, as a generator does that yields it.
    """

    def __init__(self) -> None:
        self._given: asyncio.Queue[tuple[T, asyncio.Future[None]] | None] = asyncio.Queue()

    async def give(self, item: T) -> None:
        """Put something in; it has been read when this returns."""
        read = asyncio.get_running_loop().create_future()
        self._given.put_nowait((item, read))
        await read

    async def pass_on(self, stream: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Yield what the stream yields and what is given meanwhile. Its end, and a cancel, are the stream's too."""
        running = asyncio.create_task(self._give_all(stream))
        running.add_done_callback(lambda _: self._given.put_nowait(None))
        try:
            while (given := await self._given.get()) is not None:
                item, read = given
                yield item
                if not read.done():
                    read.set_result(None)
            await running
        finally:
            await ended(running)

    async def _give_all(self, stream: AsyncGenerator[T, None]) -> None:
        async with aclosing(stream):
            async for item in stream:
                await self.give(item)
