"""Standard output and error of a runner: frames for what Python prints, pipes for all else."""

from __future__ import annotations

import array
import fcntl
import io
import os
import sys
import termios
import time
from collections.abc import Sequence
from typing import Any

from .frames import STDERR, STDOUT, Channel

__all__ = ["Streams", "null_input", "settle"]

_PATIENCE = 0.05


class Streams:
    """What a runner's code sees as `sys.stdout` and `sys.stderr`.

    What Python writes goes out as frames, so that both streams keep their order; what others write to descriptors 1 and
    2 (subprocesses, libraries in C) goes through a pipe each. Before a frame is sent the pipes are given the time to be
    read, so that the order holds between those too.

    Args:
        channel: Where the frames go.
        pipes: The ends of the pipes to write to.
    """

    def __init__(self, channel: Channel, pipes: list[int]) -> None:
        self._channel = channel
        self.pipes = pipes
        self._last: _Stream | None = None
        self.stdout = _Stream(self, STDOUT)
        self.stderr = _Stream(self, STDERR)

    def install(self) -> None:
        """Become the interpreter's streams."""
        sys.stdout = sys.__stdout__ = self.stdout  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self.stderr  # type: ignore[misc]

    def flush(self) -> None:
        """Send everything that was written, and wait until the pipes are read."""
        for stream, own in ((sys.stdout, self.stdout), (sys.stderr, self.stderr)):
            if stream is not own:
                _flush(stream)
            _flush(own)
        self.settle()

    def settle(self) -> None:
        """Wait until the pipes are read, for a moment at most."""
        settle(self.pipes, _PATIENCE)

    def send(self, tag: bytes, data: bytes) -> None:
        """Send what a stream has collected."""
        self.settle()
        self._channel.send_text(tag, data)

    def turn_to(self, stream: _Stream) -> None:
        """Let a stream be written to; what the other has collected goes first."""
        last, self._last = self._last, stream
        if last is not None and last is not stream:
            last.flush()


def settle(pipes: Sequence[int], patience: float) -> None:
    """Wait until pipes have been read to their end, for some seconds at most."""
    waiting = array.array("i", [0])
    end = 0.0
    for pipe in pipes:
        while True:
            try:
                fcntl.ioctl(pipe, termios.FIONREAD, waiting)
            except OSError:
                break
            if not waiting[0]:
                break
            now = time.monotonic()
            end = end or now + patience
            if now > end:
                return
            time.sleep(0.0001)


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except Exception:  # Whatever the code has put in a stream's place, or has closed.
        pass


class _Raw(io.RawIOBase):
    def __init__(self, streams: Streams, tag: bytes) -> None:
        self._streams = streams
        self._tag = tag

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._streams.send(self._tag, content)
        return len(content)

    def fileno(self) -> int:
        return 1 if self._tag == STDOUT else 2


class _Stream(io.TextIOWrapper):
    def __init__(self, streams: Streams, tag: bytes) -> None:
        buffer = io.BufferedWriter(_Raw(streams, tag), 8192)
        super().__init__(buffer, "utf-8", "backslashreplace", "\n", line_buffering=True)
        self._streams = streams

    @property
    def name(self) -> str:
        return "<stdout>" if self.fileno() == 1 else "<stderr>"

    def write(self, text: str) -> int:
        if self._streams._last is not self:
            self._streams.turn_to(self)
        return super().write(text)


def null_input() -> None:
    """Let descriptor 0 and `sys.stdin` be empty."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]
