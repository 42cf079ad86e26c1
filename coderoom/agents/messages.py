"""Answers and stops as messages, and the output of code while it runs. Used by all agents."""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    TextMessage,
)
from autogen_core import Image
from autogen_core.models import CreateResult
from PIL import Image as PILImage

from coderoom._util.tasks import cancel_and_wait
from coderoom.agents import metadata as keys
from coderoom.agents.attempt import Attempt, cut_of, facts, report
from coderoom.agents.metadata import StopReason
from coderoom.sandbox import Artifact, OutputChunk

T = TypeVar("T")


_MOST_STREAMED = 1_000_000
_MOST_AT_ONCE = 100
"""How many chunks are passed on as they arrive. Later ones are combined, since showing each of them costs time."""
_GATHER_SECONDS = 0.05
_NO_MORE = "\n[Further output of the code is not shown while it runs.]\n"
_PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_LARGEST_PICTURE = 8 * 1024 * 1024
_MOST_PIXELS = 25_000_000


def plain_answer(
    source: str,
    message_id: str,
    reply: CreateResult,
    attempts: Sequence[Attempt],
    after_code: StopReason = StopReason.NO_CODE,
) -> TextMessage:
    """The model has answered without code; `after_code` is the stop reason if there was code before."""
    text, metadata = str(reply.content), {keys.STOP_REASON: StopReason.NO_CODE.value}
    if attempts:
        # An answer does not change the result of the code.
        metadata = facts(attempts[-1], after_code) | {keys.SUMMARY: text}
        text = report(text, attempts[-1])
    metadata |= cut_of(reply)
    return TextMessage(id=message_id, content=text, source=source, models_usage=reply.usage, metadata=metadata)


async def with_output(
    run: Callable[[Callable[[OutputChunk], None]], Coroutine[Any, Any, T]],
) -> AsyncGenerator[OutputChunk | T, None]:
    """Run a coroutine that reports output to its argument; yield the output, up to a limit, and last its result."""
    waiting: deque[OutputChunk] = deque()
    news = asyncio.Event()
    size = 0

    def report_output(chunk: OutputChunk) -> None:
        nonlocal size
        if size < _MOST_STREAMED:
            size += len(chunk.text)
            waiting.append(chunk if size < _MOST_STREAMED else OutputChunk("stderr", _NO_MORE))
            news.set()

    task = asyncio.ensure_future(run(report_output))
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
        await cancel_and_wait(task)


def _gathered(waiting: deque[OutputChunk]) -> OutputChunk:
    """The first chunk, combined with those after it of the same stream."""
    first = waiting.popleft()
    texts = [first.text]
    while waiting and waiting[0].stream == first.stream:
        texts.append(waiting.popleft().text)
    return OutputChunk(first.stream, "".join(texts))


def picture_of(artifact: Artifact) -> Image | None:
    """The picture in a file; `None` if it is too large or not a picture."""
    if artifact.media_type not in _PICTURES or artifact.size > _LARGEST_PICTURE:
        return None
    try:
        data = artifact.data if artifact.path is None else artifact.path.read_bytes()
        if data is None:
            return None
        picture = PILImage.open(io.BytesIO(data), formats=[_PICTURES[artifact.media_type]])
        return Image.from_pil(picture) if picture.width * picture.height <= _MOST_PIXELS else None
    except Exception:  # Pillow raises many kinds of errors for a broken file.
        return None


def without_questions(result: TaskResult) -> TaskResult:
    """A result without the questions to a person, which are not for agents and programs."""
    kept = [message for message in result.messages if keys.SHOWN not in message.metadata]
    return result.model_copy(update={"messages": kept})
