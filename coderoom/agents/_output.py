"""What code prints, while it runs, beside what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from coderoom._waiting import ended
from coderoom.sandbox import OutputChunk

__all__ = ["with_output"]

_MOST = 1_000_000
_NO_MORE = "\n[What the code prints after this is not shown while it runs.]\n"

T = TypeVar("T")


async def with_output(
    run: Callable[[Callable[[OutputChunk], None]], Coroutine[Any, Any, T]],
) -> AsyncGenerator[OutputChunk | T, None]:
    """Run something that tells of output.

    Args:
        run: What to run; it gets the function to tell output to.

    Yields:
        The output, piece by piece, as long as it is not endless, and last what `run` returned.
    """
    queue: asyncio.Queue[OutputChunk | None] = asyncio.Queue()
    told = 0

    def tell(chunk: OutputChunk) -> None:
        nonlocal told
        if told < _MOST:
            told += len(chunk.text)
            queue.put_nowait(chunk if told < _MOST else OutputChunk("stderr", _NO_MORE))

    task = asyncio.ensure_future(run(tell))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (chunk := await queue.get()) is not None:
            yield chunk
        yield await task
    finally:
        await ended(task)
