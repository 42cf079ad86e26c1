"""The relay of a room: connects streams of the host to ports at which the room's code listens.

The supervisor forks it for the first stream; `Relay` in `engines/cpython/room.py` is the host's side. It connects to
nothing that a process of the room does not listen at, so that it is no way to another session, nor to the host.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import time
from typing import Any, Callable, List

from .frames import Channel

_CHUNK = 65_536
_ROUNDS = 16  # Before other connections have their turn.
_SECONDS = 5.0  # For a connection to be accepted into the queue of a server.
_GONE = select.POLLHUP | select.POLLERR


def serve(fd: int, key: bytes, pids: Callable[[], List[int]]) -> None:
    """Serve until the host closes the control socket; `pids` gives the processes of the room."""
    null = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(null, each)
    # It has those of the supervisor, which belong to the runner.
    os.closerange(3, fd)
    os.closerange(fd + 1, 65_536)
    _Relay(Channel(socket.socket(fileno=fd), key), pids).serve()


class _Relay:
    def __init__(self, control: Channel, pids: Callable[[], List[int]]) -> None:
        self._control = control
        self._pids = pids
        self._poll = select.poll()
        self._connections: dict[int, _Connection] = {}  # By each of their two descriptors.
        self._begun: dict[int, _Begun] = {}

    def serve(self) -> None:
        control = self._control.sock.fileno()
        self._poll.register(control, select.POLLIN)
        while True:
            for fd, events in self._poll.poll(1000 if self._begun else None):
                if fd == control:
                    request = self._control.receive()
                    if request is None:
                        return
                    self._connect(*request)
                elif fd in self._begun:
                    self._finish(fd, self._begun[fd].inside.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                elif fd in self._connections:  # Otherwise an event of the same round has ended it.
                    self._pass_on(self._connections[fd], fd, events)
            for fd, begun in list(self._begun.items()):
                if time.monotonic() > begun.deadline:
                    self._finish(fd, errno.ETIMEDOUT)

    def _connect(self, message: dict[str, Any], fds: list[int]) -> None:
        if not fds:  # There were no descriptors left to receive it.
            self._control.send({"event": message["event"], "errno": errno.EMFILE})
            return
        host = socket.socket(fileno=fds[0])
        inside = None
        try:
            found = _listener_at(message["port"], self._pids())
            if found is None:
                raise OSError(errno.ECONNREFUSED, "")
            inside = socket.socket(found[0], socket.SOCK_STREAM)
            inside.setblocking(False)
            begun = inside.connect_ex(found[1])
            self._begun[inside.fileno()] = _Begun(message["event"], host, inside)
            self._poll.register(inside, select.POLLOUT)
            if begun != errno.EINPROGRESS:
                self._finish(inside.fileno(), begun)
        except OSError as error:
            for each in (host, inside):
                if each is not None:
                    each.close()
            self._control.send({"event": message["event"], "errno": error.errno})

    def _finish(self, fd: int, failed: int) -> None:
        begun = self._begun.pop(fd)
        self._poll.unregister(fd)
        if failed:
            begun.host.close()
            begun.inside.close()
        else:
            begun.host.setblocking(False)
            connection = _Connection(begun.host, begun.inside)
            for side in connection.sides:
                self._connections[side.fileno()] = connection
                self._poll.register(side, select.POLLIN)
        self._control.send({"event": begun.event, "errno": failed})

    def _pass_on(self, connection: _Connection, fd: int, events: int) -> None:
        if events & _GONE:
            connection.gone[[side.fileno() for side in connection.sides].index(fd)] = True
        try:
            goes_on = connection.pass_on()
        except OSError:  # One side has broken it off.
            goes_on = False
        for number, side in enumerate(connection.sides):
            wanted = connection.wanted(number)
            with contextlib.suppress(KeyError):
                self._poll.unregister(side)
            if not goes_on:
                del self._connections[side.fileno()]
            elif wanted or not connection.gone[number]:  # Otherwise it would be reported again and again.
                self._poll.register(side, wanted)
        if not goes_on:
            for side in connection.sides:
                side.close()


class _Begun:
    """A connection that is not accepted yet."""

    def __init__(self, event: str, host: socket.socket, inside: socket.socket) -> None:
        self.event = event
        self.host = host
        self.inside = inside
        self.deadline = time.monotonic() + _SECONDS


class _Connection:
    """Passes bytes between a stream of the host and a socket of the room, until both directions have ended.

    Attributes:
        sides: The two, of which none blocks.
        gone: Whether the other end of each is closed, as far as known.
    """

    def __init__(self, host: socket.socket, inside: socket.socket) -> None:
        self.sides = (host, inside)
        self.gone = [False, False]
        self._waiting = [memoryview(b""), memoryview(b"")]  # Read from each side, and not written to the other yet.
        self._ended = [False, False]  # Whether each side has sent its last byte.

    def wanted(self, number: int) -> int:
        """The events that a side waits for."""
        reads = not self._ended[number] and not self._waiting[number]
        return select.POLLIN * reads | select.POLLOUT * bool(self._waiting[1 - number])

    def pass_on(self) -> bool:
        """Pass on what can be passed on; return whether there may be more."""
        for number in (0, 1):
            self._pump(number)
        unread_by_host = self.gone[0] and self._ended[0] and not self._waiting[0]
        return not (all(self._ended) and not any(self._waiting)) and not unread_by_host

    def _pump(self, number: int) -> None:
        source, target = self.sides[number], self.sides[1 - number]
        for _ in range(_ROUNDS):
            try:
                if not self._waiting[number]:
                    if self._ended[number]:
                        return
                    data = source.recv(_CHUNK)
                    if not data:
                        self._ended[number] = True
                        target.shutdown(socket.SHUT_WR)
                        return
                    self._waiting[number] = memoryview(data)
                self._waiting[number] = self._waiting[number][target.send(self._waiting[number]) :]
            except BlockingIOError:
                return


def _listener_at(port: int, pids: List[int]) -> tuple[int, tuple[str, int]] | None:
    """The family and the address at which one of these processes listens at a port; `None`: none does."""
    found = {}
    for family, name in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        try:
            with open(f"/proc/self/net/{name}") as file:
                rows = [line.split() for line in file]
        except OSError:  # There is no IPv6.
            continue
        for row in rows:
            address, _, hexadecimal = row[1].partition(":")
            listening = "0A"
            if row[3] == listening and int(hexadecimal, 16) == port:
                words = [int(address[begin : begin + 8], 16) for begin in range(0, len(address), 8)]
                packed = struct.pack(f"={len(words)}I", *words)
                if not any(packed):
                    packed = b"\x7f\0\0\1" if family == socket.AF_INET else bytes(15) + b"\1"
                found[f"socket:[{row[9]}]"] = family, (socket.inet_ntop(family, packed), port)
    for pid in pids if found else ():
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(FileNotFoundError):
                    its = found.get(os.readlink(f"/proc/{pid}/fd/{fd}"))
                    if its is not None:
                        return its
        except OSError:  # It has ended, or cannot be inspected.
            continue
    return None
