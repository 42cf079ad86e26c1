"""The host's ends of sockets to behind the wall: packets, and the requests to whoever forks there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from coderoom.errors import SandboxUnavailable
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

__all__ = ["PATIENCE", "ForkServerClient", "HostChannel", "integer"]

PATIENCE = 20.0
"""How many seconds what is asked for behind the wall may take."""

_AT_ONCE = 32
_LARGE = 65_536  # To read so large a message takes a while; others of the event loop come next.
_numbers = itertools.count(1)


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
        byte_budget: How many bytes of messages may still come; `None`: any number.
        held: Whether nothing is to be read now, unless the other side has ended.
        broken: Whether a message was broken off in its midst, so that the other side will understand no other one.
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
        self.byte_budget: int | None = None
        self.held = self.broken = False
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
        self.key, self.listening, self.byte_budget = key, True, None
        self.held = self.broken = False
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
        if self._sending.locked() or self.broken:
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
            if self.broken:
                raise ConnectionError("an earlier message was broken off")
            for part in packets(message, self.key):
                while not self._send_now(part, fds):
                    await self._wait_writable()
                self.broken, fds = True, ()
            self.broken = False

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
        if self.byte_budget is not None:
            self.byte_budget -= size
        return self.byte_budget is None or self.byte_budget >= 0

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


class Forked(Protocol):
    """The host's end of a process that was forked on request."""

    key: bytes
    theirs: list[int]

    def handed_over(self) -> None:
        """Close the ends that the process has been sent."""

    def note_end(self, facts: Mapping[str, Any]) -> None:
        """Take note that the process has ended."""


class ForkServerClient:
    """A process behind the wall that forks a state it holds: a room's supervisor, or a checkpoint.

    Attributes:
        facts: What it has said of itself.
        lost: Whether it has ended.
        limit: The limit that something in its room has met last.

    Args:
        sock: Our end of its control socket.
        key: The key of its packets.
    """

    # Code can end a checkpoint that it was in, and so whatever came of it.
    _gone: Mapping[str, Any] = {"status": -int(signal.SIGKILL)}

    def __init__(self, sock: socket.socket, key: bytes = bytes(KEY_SIZE)) -> None:
        self.facts: Mapping[str, Any] = {}
        self.lost = False
        self.limit: str | None = None
        self._forks: dict[int, Forked] = {}
        self._events: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._control = HostChannel(sock, self._on_message, self._on_end, key)

    async def expect(self, event: str) -> Mapping[str, Any]:
        """Wait for an event.

        Raises:
            SandboxUnavailable: The process failed, has ended or does not answer.
        """
        future = self._future(event)
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(future)
        except TimeoutError:
            raise SandboxUnavailable(f"The sandbox did not answer within {PATIENCE:g} seconds ({event!r}).") from None
        finally:
            if self._events.get(event) is future:
                del self._events[event]
            future.cancel()

    async def ask(self, op: str, event: str, **arguments: Any) -> Mapping[str, Any]:
        """Make a request and wait for its answer.

        Raises:
            SandboxUnavailable: As `expect`.
        """
        self.announce(event)  # The answer may come before there is somebody who waits.
        await self.tell({"op": op, **arguments})
        return await self.expect(event)

    async def tell(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Make a request.

        Raises:
            SandboxUnavailable: The process has ended.
        """
        try:
            await self._control.send(message, fds)
        except OSError as error:
            raise SandboxUnavailable(f"The sandbox's process has ended ({error}).") from error

    async def start(self, runner: Forked, op: str = "run", **arguments: Any) -> int:
        """Let a fork of the state become a runner.

        Returns:
            Its number.

        Raises:
            SandboxUnavailable: The process has ended.
        """
        number, request = self._request(runner, op, arguments)
        try:
            await self.tell(request, runner.theirs)
        finally:
            runner.handed_over()
        return number

    def _request(self, runner: Forked, op: str, arguments: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        number = next(_numbers)
        self._forks[number] = runner
        return number, {"op": op, "id": number, "key": runner.key.hex(), **arguments}

    def close(self) -> None:
        """Let the process end."""
        self._control.close()
        self._on_end()

    def announce(self, event: str) -> None:
        """Say that `expect` will be called for an event that may come before."""
        self._future(event)

    def _future(self, event: str) -> asyncio.Future[Mapping[str, Any]]:
        future = self._events.get(event)
        if future is None:
            future = self._events[event] = asyncio.get_running_loop().create_future()
            if self.lost:
                self._fail(SandboxUnavailable("The sandbox's process has ended."))
        return future

    def _on_message(self, message: dict[str, Any]) -> None:
        event = str(message.get("event"))
        if event == "ended":
            runner = self._forks.pop(integer(message, "id"), None)
            if runner is not None:
                runner.note_end(message)
        elif event == "limit":
            self.limit = str(message.get("limit"))
        elif event == "failed":
            self._fail(SandboxUnavailable(f"The sandbox could not be set up: {message.get('error')}"))
        else:
            future = self._events.get(event)
            if future is not None and not future.done():
                future.set_result(message)

    def _on_end(self) -> None:
        self.lost = True
        self._fail(SandboxUnavailable("The sandbox's process has ended."))
        forks, self._forks = self._forks, {}
        for fork in forks.values():
            fork.note_end(self._gone)

    def _fail(self, error: SandboxUnavailable) -> None:
        for future in self._events.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # Somebody may have stopped waiting.


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def integer(message: Mapping[str, Any], key: str) -> int:
    """A number of a message, which may be anything; 0 if it is none."""
    value = message.get(key)
    return value if type(value) is int else 0
