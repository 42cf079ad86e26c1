"""The packets that cross the wall. Used by the host and by the guest.

A packet is one message of a `SOCK_SEQPACKET` socket: eight bytes of key, one byte of tag, and the body. Because of the
key, bytes that code writes to descriptors at random are not taken for a packet; packets without it are dropped.
Messages are JSON, split into as many packets as needed; output is sent as plain bytes. Descriptors are attached to the
first packet of a message.
"""

from __future__ import annotations

import array
import gc
import json
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

KEY_SIZE = 8
MORE, LAST, STDOUT, STDERR, CONTENT = b"m", b"M", b"o", b"e", b"c"

PART = 61_440
"""The most bytes of a message in one packet."""

_PACKET = PART + KEY_SIZE + 1
_FDS = 8
# Made once: `json.dumps` and `JSONEncoder.encode` make one for every message, and `json.loads` detects its encoding.
_encode = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
    None, None, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True
)
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]

# Set while they are received: another thread may start a program at any moment, which must not inherit them.
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_ANCILLARY = socket.CMSG_SPACE(_FDS * array.array("i").itemsize)


def encode(message: dict[str, Any]) -> bytes:
    """A message's JSON."""
    return "".join(_encode(message, 0)).encode()


def parts(body: bytes, key: bytes) -> Iterator[bytes]:
    """The packets of a message that is encoded already."""
    for begin in range(0, max(len(body), 1), PART):
        end = begin + PART
        yield key + (LAST if end >= len(body) else MORE) + body[begin:end]


def send_packet(sock: socket.socket, packet: bytes, fds: Sequence[int] = ()) -> None:
    """Send a packet, with descriptors if there are any."""
    if fds:
        sock.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    else:
        sock.send(packet)


def receive_packet(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Receive a packet and its descriptors; an empty packet means that the other side has closed."""
    data, ancillary, _, _ = sock.recvmsg(_PACKET, _ANCILLARY, _CLOSE_ON_EXEC)
    if not ancillary:
        return data, []
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


class Assembler:
    """Assembles messages of up to `limit` bytes; `taken` is the size of the last complete one."""

    def __init__(self, limit: int) -> None:
        self.taken = 0
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def clear(self) -> None:
        """Drop the packets of an incomplete message."""
        self._parts, self._size = [], 0

    def add(self, tag: bytes, body: bytes) -> dict[str, Any] | None:
        """Add a packet; return the message that it completes, if that is valid and not too large."""
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
    # Garbage collections while a long message is decoded would cost much and find nothing.
    collecting = len(data) > PART and gc.isenabled()
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
    """The guest's end of a socket, with blocking calls."""

    def __init__(self, sock: socket.socket, key: bytes = bytes(KEY_SIZE)) -> None:
        self.sock = sock
        self.key = key
        self._assembler = Assembler(1 << 30)
        self._fds: list[int] = []

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self.send_encoded(encode(message))

    def send_encoded(self, body: bytes) -> None:
        """Send a message that is encoded already."""
        for packet in parts(body, self.key):
            send_packet(self.sock, packet)

    def send_text(self, tag: bytes, data: bytes) -> None:
        """Send output."""
        head = self.key + tag
        for begin in range(0, len(data), PART):
            self.sock.send(head + data[begin : begin + PART])

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
        """Drop the packets of an incomplete message, whose rest another process will receive."""
        self._assembler.clear()

    def close(self) -> None:
        """Close the socket."""
        fd = self.sock.detach()  # Faster than `socket.close`; every fork calls this.
        if fd >= 0:
            os.close(fd)
        for fd in self._fds:
            os.close(fd)
        self._fds = []
