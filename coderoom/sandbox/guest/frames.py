"""The packets that cross the wall.

Every packet is one message of a `SOCK_SEQPACKET` socket: eight bytes of key, one byte of tag, and the rest. The key
keeps bytes that code writes to descriptors at random from being taken for a packet; a packet of another shape is
dropped. Messages are JSON in as many packets as they need; text on its way out goes as it is. Descriptors ride on the
first packet.
"""

from __future__ import annotations

import array
import gc
import json
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = [
    "CONTENT",
    "KEY_SIZE",
    "LAST",
    "MORE",
    "STDERR",
    "STDOUT",
    "Assembler",
    "Channel",
    "encode",
    "packets",
    "parts",
    "receive_packet",
    "send_packet",
]

KEY_SIZE = 8
MORE, LAST, STDOUT, STDERR, CONTENT = b"m", b"M", b"o", b"e", b"c"

_PART = 61_440
_PACKET = _PART + KEY_SIZE + 1
_FDS = 8
# Made once: `json.dumps` and `json.loads` would make one for every message, or look for its encoding.
_encode = json.JSONEncoder(separators=(",", ":")).encode
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]

_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_ANCILLARY = socket.CMSG_SPACE(_FDS * array.array("i").itemsize)


def packets(message: dict[str, Any], key: bytes) -> Iterator[bytes]:
    """The packets of a message."""
    return parts(encode(message), key)


def encode(message: dict[str, Any]) -> bytes:
    """A message's JSON."""
    return _encode(message).encode()


def parts(body: bytes, key: bytes) -> Iterator[bytes]:
    """The packets of a message whose JSON is at hand."""
    for begin in range(0, max(len(body), 1), _PART):
        end = begin + _PART
        yield key + (LAST if end >= len(body) else MORE) + body[begin:end]


def send_packet(sock: socket.socket, packet: bytes, fds: Sequence[int] = ()) -> None:
    """Send a packet, with descriptors."""
    if fds:
        sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    else:
        sock.send(packet)


def receive_packet(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Wait for a packet; an empty one is the end."""
    data, ancillary, _, _ = sock.recvmsg(_PACKET, _ANCILLARY, _CLOSE_ON_EXEC)
    if not ancillary:
        return data, []
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


class Assembler:
    """Puts messages together from their packets.

    Args:
        limit: The most bytes that a message may have.

    Attributes:
        taken: How many bytes the last one had.
    """

    def __init__(self, limit: int) -> None:
        self.taken = 0
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def clear(self) -> None:
        """Forget the packets of a message that is not complete."""
        self._parts, self._size = [], 0

    def add(self, tag: bytes, body: bytes) -> dict[str, Any] | None:
        """Take a packet; return the message that it completes, if it completes a sound one."""
        if tag == LAST and not self._size and len(body) <= self._limit:
            self.taken = len(body)
            return _decode(body)
        self._size += len(body)
        if self._size <= self._limit:
            self._parts.append(body)
        if tag == MORE:
            return None
        self.taken = self._size
        whole, sound = b"".join(self._parts), self._size <= self._limit
        self.clear()
        return _decode(whole) if sound else None


def _decode(data: bytes) -> dict[str, Any] | None:
    # The collector would look at all of a long message again and again, and find nothing.
    collecting = len(data) > _PART and gc.isenabled()
    if collecting:
        gc.disable()
    try:
        message, _ = _scan(data.decode(), 0)
    except (ValueError, RecursionError, StopIteration):
        return None
    finally:
        if collecting:
            gc.enable()
    return message if isinstance(message, dict) else None


class Channel:
    """The worker's end of a socket: sends and waits.

    Args:
        sock: The socket.
        key: The key that packets on it have.
    """

    def __init__(self, sock: socket.socket, key: bytes = bytes(KEY_SIZE)) -> None:
        self.sock = sock
        self.key = key
        self._assembler = Assembler(1 << 30)
        self._fds: list[int] = []

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self.send_encoded(encode(message))

    def send_encoded(self, body: bytes) -> None:
        """Send a message whose JSON is at hand."""
        for packet in parts(body, self.key):
            send_packet(self.sock, packet)

    def send_text(self, tag: bytes, data: bytes) -> None:
        """Send output, as it is."""
        head = self.key + tag
        for begin in range(0, len(data), _PART):
            self.sock.send(head + data[begin : begin + _PART])

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """Wait for a message and its descriptors; `None`: the other side has closed."""
        while True:
            try:
                data, fds = receive_packet(self.sock)
            except ConnectionError:
                return None
            if not data:
                return None
            self._fds += fds
            if data[:KEY_SIZE] != self.key:
                continue
            message = self._assembler.add(data[KEY_SIZE : KEY_SIZE + 1], data[KEY_SIZE + 1 :])
            if message is not None:
                fds, self._fds = self._fds, []
                return message, fds

    def forget(self) -> None:
        """Forget what has arrived of a message whose rest will not come here."""
        self._assembler.clear()

    def close(self) -> None:
        """Close the socket."""
        fd = self.sock.detach()  # Python's own `close` does more, and every fork comes by here.
        if fd >= 0:
            os.close(fd)
        for fd in self._fds:
            os.close(fd)
        self._fds = []
