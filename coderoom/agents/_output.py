"""What code prints, while it runs, beside what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from coderoom.sandbox import OutputChunk

__all__ = ["with_output"]

T = TypeVar("T")


async def with_output(
    run: Callable[[Callable[[OutputChunk], None]], Coroutine[Any, Any, T]],
) -> AsyncGenerator[OutputChunk | T, None]:
    """Run something that tells of output.

    Args:
        run: What to run; it gets the function to tell output to.

    Yields:
        The output, piece by piece, and last what `run` returned.
    """
    queue: asyncio.Queue[OutputChunk | None] = asyncio.Queue()
    task = asyncio.ensure_future(run(queue.put_nowait))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (chunk := await queue.get()) is not None:
            yield chunk
        yield await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
