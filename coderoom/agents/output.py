"""What code prints, while it runs, beside what comes of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from coderoom._util.tasks import ended
from coderoom.sandbox import OutputChunk

__all__ = ["with_output"]

_MOST = 1_000_000
_MOST_AT_ONCE = 100
"""How many pieces are told as they come. Each has a price for whoever shows it: a flood comes in fewer, larger ones."""
_GATHER_SECONDS = 0.05
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
    waiting: deque[OutputChunk] = deque()
    news = asyncio.Event()
    told = 0

    def tell(chunk: OutputChunk) -> None:
        nonlocal told
        if told < _MOST:
            told += len(chunk.text)
            waiting.append(chunk if told < _MOST else OutputChunk("stderr", _NO_MORE))
            news.set()

    task = asyncio.ensure_future(run(tell))
    task.add_done_callback(lambda _: news.set())
    pieces = 0
    try:
        while waiting or not task.done():
            if not waiting:
                news.clear()
                await news.wait()
                continue
            pieces += 1
            if pieces > _MOST_AT_ONCE:
                await asyncio.wait([task], timeout=_GATHER_SECONDS)
                while waiting:
                    yield _gathered(waiting)
            else:
                yield waiting.popleft()
        yield await task
    finally:
        await ended(task)


def _gathered(waiting: deque[OutputChunk]) -> OutputChunk:
    """The first piece, together with those behind it that went to the same place."""
    first = waiting.popleft()
    texts = [first.text]
    while waiting and waiting[0].stream == first.stream:
        texts.append(waiting.popleft().text)
    return OutputChunk(first.stream, "".join(texts))
