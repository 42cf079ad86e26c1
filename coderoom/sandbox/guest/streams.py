"""Standard output and error of a runner: packets for what Python prints, pipes for all other output."""

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

_PATIENCE = 0.05
_AT_ONCE, _PER_SECOND = 5000, 20_000  # How many unfinished lines are sent at once.


class Streams:
    """What a runner's code sees as `sys.stdout` and `sys.stderr`.

    What Python writes is sent in packets on the channel, which keeps the order of both streams. What subprocesses and
    libraries in C write to descriptors 1 and 2 goes through a pipe for each. A packet is sent only after the pipes were
    read, so that all output is in order.
    """

    def __init__(self, channel: Channel, pipes: list[int]) -> None:
        self._channel = channel
        self._pipes = pipes
        self.last: _Stream | None = None
        self._at_once, self._asked = float(_AT_ONCE), 0.0
        self.stdout = _Stream(self, STDOUT)
        self.stderr = _Stream(self, STDERR)

    def install(self) -> None:
        """Set the interpreter's streams."""
        sys.stdout = sys.__stdout__ = self.stdout  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self.stderr  # type: ignore[misc]

    def flush(self) -> None:
        """Send all buffered text, and wait until the pipes were read."""
        for stream, own in ((sys.stdout, self.stdout), (sys.stderr, self.stderr)):
            if stream is not own:
                _flush(stream)
            _flush(own)
        settle(self._pipes, _PATIENCE)

    def may_send_part(self) -> bool:
        """Whether an unfinished line is sent at once: code in C that comes next cannot be interrupted and is killed.

        Not always, since many small packets are slow.
        """
        now = time.monotonic()
        self._at_once = min(_AT_ONCE, self._at_once + (now - self._asked) * _PER_SECOND)
        self._asked = now
        if self._at_once < 1:
            return False
        self._at_once -= 1
        return True

    def send(self, tag: bytes, data: bytes) -> None:
        """Send text of a stream."""
        settle(self._pipes, _PATIENCE)
        self._channel.send_text(tag, data)


def settle(pipes: Sequence[int], patience: float) -> None:
    """Wait until the host has read all that is in some pipes, for some seconds at most."""
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
    except Exception:  # The code may have replaced or closed the stream.
        pass


class _Raw(io.RawIOBase):
    def __init__(self, streams: Streams, tag: bytes) -> None:
        self._streams = streams
        self._tag = tag
        self.name = "<stdout>" if tag == STDOUT else "<stderr>"

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
        # No buffered writer below: a fork would find its lock taken if another thread was printing.
        super().__init__(_Raw(streams, tag), "utf-8", "backslashreplace", "\n", line_buffering=True)
        self._streams = streams

    def write(self, text: str) -> int:
        last = self._streams.last
        if last is not self:
            self._streams.last = self
            if last is not None:
                last.flush()  # Keeps the order.
        count = super().write(text)
        if text and "\n" not in text and self._streams.may_send_part():
            self.flush()
        return count


def null_input() -> None:
    """Make descriptor 0 and `sys.stdin` empty."""
    null = os.open(os.devnull, os.O_RDONLY)
    if null:  # Otherwise 0 was free.
        os.dup2(null, 0)
        os.close(null)
    os.set_inheritable(0, True)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]


def keep_input() -> None:
    """Make standard input empty again if code has closed it, for instance by `open(0).read()`."""
    try:
        os.fstat(0)
        closed = sys.__stdin__.closed  # type: ignore[union-attr]
    except (OSError, AttributeError):
        closed = True
    if closed:
        null_input()
