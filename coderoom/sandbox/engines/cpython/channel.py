"""The host's ends of sockets and pipes to processes behind the wall.

`Worker`, `Room` and `Runner` read and write through them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from coderoom._util.tasks import resolve
from coderoom.sandbox.cell import StreamName
from coderoom.sandbox.guest.frames import (
    CONTENT,
    KEY_SIZE,
    LAST,
    MORE,
    PART,
    STDERR,
    STDOUT,
    Assembler,
    encode,
    parts,
    receive_packet,
    send_packet,
)

BUFFERED = 512
"""More reads than are needed for all that a socket or a pipe can buffer."""

_AT_ONCE = 32
_CHUNK = 65_536


class HostChannel:
    """Reads and writes packets without blocking the event loop, and closes its socket.

    The input is hostile: packets of another shape or with another key are dropped, received descriptors are closed, and
    messages above the size limit are dropped. `on_output` gets the tag and the bytes of each packet of printed text or
    of a file's content.

    Attributes:
        listening: Whether messages are accepted; otherwise they are dropped unparsed.
        byte_budget: How many more bytes of messages are accepted; `None`: any number.
        broken: Whether a message was cut off while it was sent, so that the other side cannot understand a later one.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[dict[str, Any]], None],
        on_end: Callable[[], None],
        key: bytes = bytes(KEY_SIZE),
        on_output: Callable[[bytes, bytes], None] | None = None,
        largest: int = 1 << 20,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.key = key
        self._on_message = on_message
        self._on_end = on_end
        self._on_output = on_output
        self._largest = largest
        self._assembler = Assembler(largest)
        self.listening = True
        self.byte_budget: int | None = None
        self._paused = self._suspended = self.broken = False
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._reading = False
        self._writable: asyncio.Future[None] | None = None
        self.closed = False
        # For a channel that is never closed: a socket that is garbage-collected open would warn.
        self._close_socket = weakref.finalize(self, sock.close)
        self._read_or_wait()

    @property
    def taken(self) -> int:
        """The size of the last complete message, in bytes."""
        return self._assembler.taken

    def reset(self, key: bytes) -> None:
        """Prepare for another process at the other end, whose packets have another key."""
        self.key, self.listening, self.byte_budget = key, True, None
        self._suspended = self.broken = False
        self._assembler.clear()
        self._read_or_wait()

    def pause(self, paused: bool) -> None:
        """Stop or continue to read; the other side blocks once the socket is full."""
        self._paused = paused
        self._read_or_wait()

    def suspend_reading(self, suspended: bool) -> None:
        """Stop or continue to read, for a reason of its own; the end of the other side is still noticed."""
        self._suspended = suspended
        self._read_or_wait()

    def limit_input(self) -> None:
        """Accept no more bytes from now on than one message may have."""
        self.byte_budget = self._largest

    def send_now(self, message: dict[str, Any], fds: Sequence[int] = ()) -> bool:
        """Send a message if it is one packet and the socket can take it at once; return whether it was sent."""
        if self._sending.locked() or self.broken:
            return False
        body = encode(message)
        return len(body) <= PART and self._send_now(self.key + LAST + body, fds)

    async def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a message; wait until the socket can take it."""
        if self.send_now(message, fds):
            return
        async with self._sending:
            if self.broken:
                raise ConnectionError("an earlier message was cut off")
            for part in parts(encode(message), self.key):
                while not self._send_now(part, fds):
                    self._writable = self._loop.create_future()
                    self._loop.add_writer(self._sock.fileno(), resolve, self._writable)
                    try:
                        await self._writable
                    finally:
                        self._writable = None
                        if not self.closed:
                            self._loop.remove_writer(self._sock.fileno())
                self.broken, fds = True, ()
            self.broken = False

    def drain(self, at_once: int = BUFFERED, one_message: bool = False, ended: bool = False) -> None:
        """Read what has arrived, up to a number of packets, or up to the end of the first message.

        `ended`: the other side has, so that this cannot wait.
        """
        for _ in range(at_once):
            if self.closed or (self._suspended and not ended):
                return
            try:
                data, fds = receive_packet(self._sock)
            except BlockingIOError:
                return
            except ConnectionResetError:  # What the other side has sent before can still be read.
                continue
            except OSError:
                data, fds = b"", []
            for fd in fds:
                os.close(fd)
            if not data:
                self.close()
                self._on_end()
                return
            try:
                if self._take(data) and one_message:
                    return
            except Exception:  # Who waits for a message must not wait for ever.
                self.close()
                self._on_end()
                raise

    def close(self) -> None:
        """Close the socket; a second time does nothing."""
        if not self.closed:
            self.closed = True
            with contextlib.suppress(RuntimeError):  # The event loop is closed already.
                self._read_or_wait()
                if self._writable is not None:  # The descriptor's number may be reused in a moment.
                    self._loop.remove_writer(self._sock.fileno())
                    resolve(self._writable)
            self._close_socket()

    def _read_or_wait(self) -> None:
        reading = not (self._paused or self._suspended or self.closed)
        if reading != self._reading:
            self._reading = reading
            if reading:
                # The event loop gets a turn after each message: mostly there is no other, and decoding took a while.
                self._loop.add_reader(self._sock.fileno(), self.drain, _AT_ONCE, True)
            else:
                self._loop.remove_reader(self._sock.fileno())

    def _take(self, data: bytes) -> bool:
        """Process a packet; return whether it completes a message."""
        if data[:KEY_SIZE] != self.key:
            return False
        tag, body = data[KEY_SIZE : KEY_SIZE + 1], data[KEY_SIZE + 1 :]
        if tag in (STDOUT, STDERR, CONTENT):
            if self._on_output is not None:
                self._on_output(tag, body)
        elif tag in (MORE, LAST) and self.listening:
            if self.byte_budget is not None:
                self.byte_budget -= len(body)
                if self.byte_budget < 0:
                    return False
            message = self._assembler.add(tag, body)
            if message is not None:
                self._on_message(message)
            return tag == LAST
        return False

    def _send_now(self, packet: bytes, fds: Sequence[int]) -> bool:
        if self.closed:
            raise ConnectionError("the channel is closed")
        try:
            send_packet(self._sock, packet, fds)
        except BlockingIOError:
            return False
        return True


class OutputPipes:
    """The host's ends (`readers`) of the pipes that a process has as descriptors 1 and 2 (`writers`).

    If the process has a channel, that is read before a pipe.
    """

    def __init__(self, on_output: Callable[[StreamName, bytes], None], channel: HostChannel | None) -> None:
        self._on_output = on_output
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self.readers: dict[int, StreamName] = {}
        self.writers: list[int] = []
        for name in ("stdout", "stderr"):
            try:
                reader, writer = os.pipe()
            except OSError:
                for fd in (*self.readers, *self.writers):
                    os.close(fd)
                raise
            os.set_blocking(reader, False)
            self.readers[reader] = name
            self.writers.append(writer)
        self.pause(False)

    def pause(self, paused: bool) -> None:
        """Stop or continue to read."""
        for pipe in self.readers:
            if paused:
                self._loop.remove_reader(pipe)
            else:
                self._loop.add_reader(pipe, self._read, pipe)

    def close(self) -> None:
        """Close the pipes; a second time does nothing."""
        for pipe in list(self.readers):
            self._close(pipe)

    def drain(self, skipped: int = -1) -> None:
        """Read all that is in the pipes, except one that may be skipped."""
        for pipe in [each for each in self.readers if each != skipped]:  # A pipe at its end is removed.
            for _ in range(BUFFERED):
                if not self._read(pipe):
                    break

    def _read(self, pipe: int) -> bool:
        """Read from a pipe; return whether there was something."""
        if self._channel is not None:
            self._channel.drain()  # What Python has printed before must come first.
        name = self.readers.get(pipe)
        if name is None or (name == "stdout" and self._channel is None and not self._read_older(pipe)):
            return False
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close(pipe)
            return False
        self._on_output(name, data)
        return True

    def _read_older(self, stdout: int) -> bool:
        """Read the pipe of standard error first if there is something in that of standard output; return whether.

        A program can write to standard error only while the pipe of standard output is empty (see `guest.programs`), so
        what is in the former was written before what is in the latter.
        """
        ready = select.poll()
        ready.register(stdout, select.POLLIN)
        if not ready.poll(0):
            return False
        self.drain(skipped=stdout)
        return True

    def _close(self, pipe: int) -> None:
        if self.readers.pop(pipe, None) is not None:
            with contextlib.suppress(RuntimeError):  # The event loop is closed already.
                self._loop.remove_reader(pipe)
            os.close(pipe)
