"""The class `Process`: a program that stays in a session, beside its cells. Made by `Session.start`."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import os
import signal
import struct
import termios
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from coderoom.sandbox.result import Limit

StreamName = Literal["stdout", "stderr"]
_CHUNK, _SMALL = 65_536, 4096
_END_OF_FILE = b"\x04"  # As Ctrl-D at a terminal.
_KILLED = 128 + int(signal.SIGKILL)
_NOT_STARTED = 126


@dataclass(frozen=True)
class ProcessOutput:
    """A piece of what a process has written.

    Attributes:
        stream: The stream that it was written to; all that a terminal shows is `stdout`.
        data: The bytes.
        text: The same as text. A character that is cut comes with the next piece.
        dropped: How many bytes just before it were dropped, since nobody had read them.
    """

    stream: StreamName
    data: bytes
    text: str
    dropped: int = 0


class Process:
    """A program that runs in a session until it ends, is ended, or the session ends; made by `Session.start`.

    Read its output by `async for piece in process` or by `read`. With `async with`, it ends with the block.

    Attributes:
        argv: Its command.
        exit_code: Its exit code once it has ended, 128 and the number for a signal; `None` while it runs.
        limit: The limit of the session that ended it, `memory` for instance.
    """

    def __init__(
        self, argv: Sequence[str], terminal: tuple[int, int] | None, most_bytes: int, wait_for_reader: bool
    ) -> None:
        self.argv = tuple(argv)
        self.exit_code: int | None = None
        self.limit: Limit | None = None
        self.key = b""
        self.send_number: Callable[[int], Awaitable[None]]  # Sends it a signal, once it is started.
        self.on_resize: Callable[[int, int], object] | None = None  # Of a terminal that is not on this machine.
        self._loop = asyncio.get_running_loop()
        self._terminal = terminal is not None
        self._most_bytes = most_bytes
        self._waits = wait_for_reader
        self._pieces: deque[tuple[StreamName, bytes]] = deque()
        self._size = self._dropped = 0
        self._paused = False
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._writing = asyncio.Lock()
        self._writable: asyncio.Future[None] | None = None
        self._readers: dict[int, StreamName] = {}
        self._input: int | None = None
        self.remote_fds: list[int] = []
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}
        self._open: set[int] = set()
        # For a sandbox that is never closed.
        weakref.finalize(self, _close_all, self._open).atexit = False
        try:
            if terminal is not None:
                master, slave = os.openpty()
                self._open.add(master)
                self.remote_fds.append(slave)
                self._readers[master] = "stdout"
                self._input = master
                _set_size(master, *terminal)
            else:
                theirs, self._input = os.pipe()
                self._open.add(self._input)
                self.remote_fds.append(theirs)
                for name in ("stdout", "stderr"):
                    reader, writer = os.pipe()
                    self._open.add(reader)
                    self.remote_fds.append(writer)
                    self._readers[reader] = name
        except OSError:  # There are no descriptors left.
            self.close_remote_fds()
            raise
        for fd in self._open:
            os.set_blocking(fd, False)
        for fd in self._readers:
            self._loop.add_reader(fd, self._read, fd)

    @property
    def closed(self) -> bool:
        """Whether it has ended and nothing more can be read."""
        return self.exit_code is not None and not self._readers and not self._pieces

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def __aiter__(self) -> AsyncIterator[ProcessOutput]:
        while await self._wait_for_output():
            yield self._take()

    async def read(self, timeout: float | None = None) -> str:
        """Return what has been written since the last time, as text.

        Args:
            timeout: How many seconds to wait for something; `None`: until there is something.

        Returns:
            The text, of both streams; empty if nothing came, or nothing will any more. Where output was dropped, it
            says so.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._wait_for_output()
        texts = []
        while self._pieces:
            piece = self._take()
            said = f"[{piece.dropped:,} bytes of output were dropped here.]\n" if piece.dropped else ""
            texts.append(said + piece.text)
        return "".join(texts)

    async def write(self, data: str | bytes) -> None:
        """Write to its standard input; wait until it has room.

        Raises:
            BrokenPipeError: The process has ended, or its input is closed.
        """
        left = memoryview(data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data)
        async with self._writing:
            while left:
                if self._input is None:
                    raise BrokenPipeError(f"The input of {self.argv[0]!r} is closed.")
                try:
                    left = left[os.write(self._input, left) :]
                except BlockingIOError:
                    self._writable = self._loop.create_future()
                    self._loop.add_writer(self._input, _resolve, self._writable)
                    try:
                        await self._writable
                    finally:
                        self._writable = None
                        if self._input is not None:
                            self._loop.remove_writer(self._input)
                except OSError:
                    self._close_input()

    async def close_input(self) -> None:
        """End its standard input; to a terminal, send Ctrl-D. A second time does nothing."""
        if self._terminal and self._input is not None:
            await self.write(_END_OF_FILE)
        async with self._writing:
            if not self._terminal:
                self._close_input()

    async def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        await self._ended.wait()
        assert self.exit_code is not None
        return self.exit_code

    async def send_signal(self, number: int) -> None:
        """Send a signal to it and to what it has started; does nothing once it has ended."""
        if self.exit_code is None:
            await self.send_number(number)

    async def kill(self) -> int:
        """End it at once, with what it has started, and return its exit code."""
        await self.send_signal(signal.SIGKILL)
        return await self.wait()

    async def stop(self, timeout: float = 2.0) -> int:
        """Ask it to end (`SIGTERM`), end it at once after some seconds, and return its exit code."""
        await self.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                return await self.wait()
        return await self.kill()

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of its terminal; does nothing without one."""
        if self._terminal and self._input is not None:
            _set_size(self._input, rows, columns)
            if self.on_resize is not None:
                self.on_resize(rows, columns)

    def close_remote_fds(self) -> None:
        """Close its ends of the descriptors, after they were sent to it; called by the engine."""
        _close_all(self.remote_fds)
        self.remote_fds.clear()

    def note_end(self, facts: Mapping[str, Any]) -> None:
        """Record how it ended; called by the engine, the last time with `lost`."""
        status = facts.get("status")
        if self.exit_code is None:
            self._note_exit(status, facts.get("fork"))
        if facts.get("lost"):  # Nothing will come any more.
            for fd in list(self._readers):
                self._read(fd)
                if fd in self._readers:
                    self._close_reader(fd)
            self._close_input()
            self._news.set()

    def _note_exit(self, status: object, failure: object) -> None:
        if isinstance(status, int) and -64 <= status <= 255:
            self.exit_code = 128 - status if status < 0 else status
        else:
            self.exit_code = _NOT_STARTED if failure else _KILLED
        if failure:
            self._add("stderr", f"It could not be started: {failure}\n".encode())
        if self.exit_code != _KILLED:
            self.limit = None
        if not self._terminal:
            self._close_input()
        self._ended.set()
        self._news.set()

    async def _wait_for_output(self) -> bool:
        """Wait until there is output; return whether there is, or else all has been read."""
        while not self._pieces:
            if not self._readers:
                return False
            self._news.clear()
            await self._news.wait()
        return True

    def _take(self) -> ProcessOutput:
        stream, data = self._pieces.popleft()
        self._size -= len(data)
        dropped, self._dropped = self._dropped, 0
        if self._paused and self._size <= self._most_bytes // 2:
            self._paused = False
            for fd in self._readers:
                self._loop.add_reader(fd, self._read, fd)
        if dropped:
            for decoder in self._decoders.values():
                decoder.reset()
        return ProcessOutput(stream, data, self._decoders[stream].decode(data), dropped)

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # A terminal that no process has open any more.
            data = b""
        if data:
            self._add(self._readers[fd], data)
        else:
            self._close_reader(fd)
        self._news.set()

    def _add(self, stream: StreamName, data: bytes) -> None:
        self._size += len(data)
        if self._pieces and self._pieces[-1][0] == stream and len(self._pieces[-1][1]) < _SMALL:
            data = self._pieces.pop()[1] + data
        self._pieces.append((stream, data))
        if self._size >= self._most_bytes and self._waits:
            self._paused = True
            for fd in self._readers:
                self._loop.remove_reader(fd)
        while self._size > self._most_bytes and not self._waits:
            first, old = self._pieces.popleft()
            cut = min(self._size - self._most_bytes, len(old))
            self._dropped += cut
            self._size -= cut
            if cut < len(old):
                self._pieces.appendleft((first, old[cut:]))

    def _close_reader(self, fd: int) -> None:
        del self._readers[fd]
        with contextlib.suppress(RuntimeError):  # The event loop is closed already.
            self._loop.remove_reader(fd)
        if fd == self._input:  # Of a terminal, both are one.
            self._close_input()
        else:
            self._close_fd(fd)

    def _close_input(self) -> None:
        fd, self._input = self._input, None
        if fd is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.remove_writer(fd)
                if self._writable is not None:
                    _resolve(self._writable)
            if fd not in self._readers:
                self._close_fd(fd)

    def _close_fd(self, fd: int) -> None:
        self._open.discard(fd)
        os.close(fd)


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _close_all(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
