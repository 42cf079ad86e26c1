"""Standard output and error of a runner: packets for what Python prints, pipes for all other output."""

from __future__ import annotations

import array
import builtins
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
_AT_ONCE, _PER_SECOND = 5000, 20_000  # How many writes are no burst.


class Streams:
    """What a runner's code sees as `sys.stdout` and `sys.stderr`.

    What Python writes is sent in packets on the channel, which keeps the order of both streams. What subprocesses and
    libraries in C write to descriptors 1 and 2 goes through a pipe for each. A packet is sent only after the pipes were
    read, so that all output is in order.

    Unfinished lines are sent at once, since code in C that comes next cannot be interrupted and is killed. In a burst
    of writes to one stream, packets would be slow, and its pipe is used.
    """

    def __init__(self, channel: Channel, pipes: list[int]) -> None:
        self._channel = channel
        self._pipes = pipes
        self.last: _Stream | None = None
        self._left, self._written = float(_AT_ONCE), 0.0
        self._is_burst = False
        self.stdout = _Stream(self, STDOUT)
        self.stderr = _Stream(self, STDERR)

    def install(self) -> None:
        """Set the interpreter's streams."""
        sys.stdout = sys.__stdout__ = self.stdout  # type: ignore[misc]
        sys.stderr = sys.__stderr__ = self.stderr  # type: ignore[misc]

    def use_pipes(self, stdin: int) -> None:
        """Make standard input and output those of a program in a pipe: a descriptor, and a buffer for descriptor 1."""
        os.dup2(stdin, 0)
        os.close(stdin)
        sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc]
        sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # type: ignore[misc]
        builtins.input = _READ

    def flush_text(self) -> None:
        """Write or send all buffered text."""
        for stream in (sys.stdout, sys.__stdout__, self.stdout, sys.stderr, self.stderr):
            _flush(stream)

    def flush(self) -> None:
        """Send all buffered text, and wait until the pipes were read."""
        self.flush_text()
        settle(self._pipes, _PATIENCE)

    def count_write(self, *, switched: bool) -> None:
        """Find out whether there is a burst of writes to one stream; `switched`: the last write was to the other."""
        now = time.monotonic()
        self._left = min(_AT_ONCE, self._left + (now - self._written) * _PER_SECOND) - 1
        self._written = now
        if switched:
            self._left, self._is_burst = float(_AT_ONCE), False
        elif self._left < 1:
            self._left, self._is_burst = 0.0, True
        elif self._left > _AT_ONCE / 2:
            self._is_burst = False

    def send(self, tag: bytes, data: bytes) -> None:
        """Send text of a stream."""
        ours = self._pipes[tag == STDERR]
        if not self._is_burst:
            settle(self._pipes, _PATIENCE)
            self._channel.send_text(tag, data)
            return
        settle([pipe for pipe in self._pipes if pipe != ours], _PATIENCE)
        while data:
            data = data[os.write(ours, data) :]


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
        self._streams.count_write(switched=last is not self)
        count = super().write(text)
        if text and "\n" not in text:
            self.flush()
        return count


_READ = builtins.input


def _no_input(prompt: object = "", /) -> str:
    try:
        is_null = os.path.samestat(os.fstat(0), os.stat(os.devnull))
    except OSError:
        is_null = True
    if sys.stdin is sys.__stdin__ and is_null:
        raise EOFError("input() is not available: nobody can answer here. Put the values into the code.")
    return _READ(prompt)


def null_input() -> None:
    """Make descriptor 0 and `sys.stdin` empty."""
    null = os.open(os.devnull, os.O_RDONLY)
    if null:  # Otherwise 0 was free.
        os.dup2(null, 0)
        os.close(null)
    os.set_inheritable(0, True)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]
    builtins.input = _no_input


def keep_input() -> None:
    """Make standard input empty again if code has closed it, for instance by `open(0).read()`."""
    try:
        os.fstat(0)
        closed = sys.__stdin__.closed  # type: ignore[union-attr]
    except (OSError, AttributeError):
        closed = True
    if closed:
        null_input()
