"""What a cell prints, bounded while it arrives."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable
from typing import Literal

from coderoom.sandbox.result import OutputChunk

__all__ = ["Collector", "StreamName"]

StreamName = Literal["stdout", "stderr"]

_STREAMS: tuple[StreamName, StreamName] = ("stdout", "stderr")


class Collector:
    """Keeps the beginning and the end of what is printed.

    Args:
        limit: How many bytes are kept.
        on_chunk: Called with each piece as it arrives, kept or not.
    """

    def __init__(self, limit: int, on_chunk: Callable[[OutputChunk], None] | None = None) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._on_chunk = on_chunk
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in _STREAMS}
        self._head: list[tuple[StreamName, str]] = []
        self._tail: deque[tuple[StreamName, str, int]] = deque()
        self._head_size = self._tail_size = 0
        self._dropped: dict[StreamName, int] = dict.fromkeys(_STREAMS, 0)
        self.size = 0

    @property
    def truncated(self) -> bool:
        """Whether something was left out."""
        return any(self._dropped.values())

    def add(self, stream: StreamName, data: bytes, final: bool = False) -> None:
        """Take what was printed."""
        self.size += len(data)
        text = self._decoders[stream].decode(data, final)
        if not text:
            return
        if self._on_chunk is not None:
            self._on_chunk(OutputChunk(stream, text))
        room = self._head_limit - self._head_size
        if room > 0:
            # A character has up to four bytes; what is cut off here goes to the tail.
            begin = text if len(data) <= room else text[: max(room // 4, 1)]
            self._head.append((stream, begin))
            self._head_size += len(begin.encode("utf-8", "replace"))
            text = text[len(begin) :]
            if not text:
                return
            self._head_limit = self._head_size  # What comes later is not of the beginning any more.
        self._keep_end(stream, text)

    def finish(self) -> None:
        """Take what is left of a character that was never completed."""
        for stream in _STREAMS:
            self.add(stream, b"", final=True)
        self._on_chunk = None  # Nobody takes what comes later.

    def text(self, stream: StreamName | None = None) -> str:
        """What is kept of one stream, or of both in their order."""
        head = "".join(text for name, text in self._head if stream in (None, name))
        tail = "".join(text for name, text, _ in self._tail if stream in (None, name))
        dropped = sum(count for name, count in self._dropped.items() if stream in (None, name))
        if not dropped:
            return head + tail
        gap = "" if not head or head.endswith("\n") else "\n"
        return f"{head}{gap}[... {dropped:,} bytes left out ...]\n{tail}"

    def _keep_end(self, stream: StreamName, text: str) -> None:
        size = len(text.encode("utf-8", "replace"))
        self._tail.append((stream, text, size))
        self._tail_size += size
        while self._tail_size > self._tail_limit:
            name, oldest, size = self._tail.popleft()
            over = self._tail_size - self._tail_limit
            if size <= over:
                gone = size
            else:
                rest = oldest.encode("utf-8", "replace")[over:].decode("utf-8", "ignore")
                kept = len(rest.encode("utf-8", "replace"))
                self._tail.appendleft((name, rest, kept))
                gone = size - kept
            self._tail_size -= gone
            self._dropped[name] += gone
