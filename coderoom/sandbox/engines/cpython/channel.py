"""The host's end of a socket to behind the wall."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from coderoom.sandbox.guest.frames import (
    CONTENT,
    KEY_SIZE,
    LAST,
    MORE,
    STDERR,
    STDOUT,
    Assembler,
    packets,
    receive_packet,
    send_packet,
)

__all__ = ["HostChannel"]

_AT_ONCE = 32
_LARGE = 65_536  # To read so large a message takes a while; others of the event loop come next.


class HostChannel:
    """Reads and writes packets without blocking the event loop.

    What comes in is hostile: packets of another shape or with another key are dropped, descriptors are closed, and no
    message can be larger than it should be.

    Args:
        sock: The socket; it is owned from now on.
        on_message: Called with each message.
        on_end: Called once when the other side has closed.
        key: The key of its packets.
        on_output: Called with what was printed, and with what is in files, under its tag.
        largest: The most bytes that a message may have; a larger one is dropped.

    Attributes:
        key: The key of its packets.
        listening: Whether messages are wanted now; those that come unasked are not even read.
        rest: How many bytes of messages may still come; `None`: any number.
        held: Whether nothing is to be read now, unless the other side has ended.
        torn: Whether a message was broken off in its midst, so that the other side will understand no other one.
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
        self.largest = largest
        self._assembler = Assembler(largest)
        self.listening = True
        self.rest: int | None = None
        self.held = self.torn = False
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._reading = False
        self._writable: asyncio.Future[None] | None = None
        self.closed = False
        # Nobody may ever close it; a socket that is collected open would warn.
        self._close_socket = weakref.finalize(self, sock.close)
        self.resume()

    @property
    def taken(self) -> int:
        """How many bytes the message has that is being taken."""
        return self._assembler.taken

    def renew(self, key: bytes) -> None:
        """Be there for another process at the other end, whose packets have another key."""
        self.key, self.listening, self.rest = key, True, None
        self.held = self.torn = False
        self._assembler.clear()

    def pause(self) -> None:
        """Read no more for now; the other side waits once the socket is full."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock.fileno())

    def resume(self) -> None:
        """Read on, unless it is held."""
        if not self._reading and not self.closed and not self.held:
            self._reading = True
            self._loop.add_reader(self._sock.fileno(), self.drain)

    def send_now(self, message: dict[str, Any], fds: Sequence[int] = ()) -> bool:
        """Send a message if it fits into one packet, and the socket has room for that, as is nearly always so.

        Raises:
            ConnectionError: The other side has closed.
        """
        if self._sending.locked() or self.torn:
            return False
        parts = list(packets(message, self.key))
        return len(parts) == 1 and self._send_now(parts[0], fds)

    async def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a message; wait for room as long as it takes.

        Raises:
            ConnectionError: The other side has closed.
        """
        if self.send_now(message, fds):
            return
        async with self._sending:
            if self.torn:
                raise ConnectionError("an earlier message was broken off")
            for part in packets(message, self.key):
                while not self._send_now(part, fds):
                    await self._wait_writable()
                self.torn, fds = True, ()
            self.torn = False

    def drain(self, at_once: int = _AT_ONCE) -> None:
        """Take in what has arrived, up to a number of packets."""
        for _ in range(at_once):
            if self.closed or (self.held and at_once == _AT_ONCE):
                return
            try:
                data, fds = receive_packet(self._sock)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            for fd in fds:
                os.close(fd)
            if not data:
                self.close()
                self._on_end()
                return
            if self._take(data) > _LARGE and at_once == _AT_ONCE:
                return

    def close(self) -> None:
        """Close the socket; a second time does nothing."""
        if not self.closed:
            with contextlib.suppress(RuntimeError):  # The event loop is closed already.
                self.pause()
                if self._writable is not None:  # The descriptor's number may be reused in a moment.
                    self._loop.remove_writer(self._sock.fileno())
                    _resolve(self._writable)
            self.closed = True
            self._close_socket()

    def _take(self, data: bytes) -> int:
        """Take a packet; returns the size of the message that it has completed."""
        if data[:KEY_SIZE] != self.key:
            return 0
        tag, body = data[KEY_SIZE : KEY_SIZE + 1], data[KEY_SIZE + 1 :]
        if tag in (STDOUT, STDERR, CONTENT):
            if self._on_output is not None:
                self._on_output(tag, body)
        elif tag in (MORE, LAST) and self.listening and self._may_come(len(body)):
            message = self._assembler.add(tag, body)
            if message is not None:
                self._on_message(message)
            return self.taken if tag == LAST else 0
        return 0

    def _may_come(self, size: int) -> bool:
        if self.rest is not None:
            self.rest -= size
        return self.rest is None or self.rest >= 0

    def _send_now(self, packet: bytes, fds: Sequence[int]) -> bool:
        if self.closed:
            raise ConnectionError("the channel is closed")
        try:
            send_packet(self._sock, packet, fds)
        except BlockingIOError:
            return False
        return True

    async def _wait_writable(self) -> None:
        self._writable = self._loop.create_future()
        self._loop.add_writer(self._sock.fileno(), _resolve, self._writable)
        try:
            await self._writable
        finally:
            self._writable = None
            if not self.closed:
                self._loop.remove_writer(self._sock.fileno())


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
