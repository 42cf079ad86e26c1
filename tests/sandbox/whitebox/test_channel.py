"""What a hostile process may send on its channel, and what of it reaches the host."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coderoom.sandbox.engines.cpython.channel import HostChannel
from coderoom.sandbox.guest.frames import KEY_SIZE, LAST, MORE, STDOUT, encode, parts, send_packet

KEY = b"k" * KEY_SIZE
OTHER = b"x" * KEY_SIZE


class Heard:
    """A channel, and what it has heard."""

    def __init__(self, largest: int) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.messages: list[dict[str, Any]] = []
        self.output: list[bytes] = []
        self.ends = 0
        self.channel = HostChannel(ours, self._take, self._end, KEY, lambda _, text: self.output.append(text), largest)

    def _take(self, message: dict[str, Any]) -> None:
        if message["event"] != "done":
            raise TypeError(message)
        self.messages.append(message)

    def _end(self) -> None:
        self.ends += 1

    def send(self, *packets: bytes, fds: list[int] | None = None) -> None:
        for packet in packets:
            send_packet(self.theirs, packet, fds or [])
        self.channel.drain()

    def message(self, number: int, size: int = 0) -> list[bytes]:
        return list(parts(encode({"event": "done", "id": number, "text": "x" * size}), KEY))

    @property
    def numbers(self) -> list[int]:
        return [message["id"] for message in self.messages]


@pytest.fixture
async def heard() -> AsyncIterator[Heard]:
    it = Heard(largest=1_000)
    yield it
    it.channel.close()
    it.theirs.close()


async def test_packets_without_the_key_are_dropped_and_the_rest_is_heard(heard: Heard) -> None:
    right = heard.message(1)[0]
    heard.send(OTHER + right[KEY_SIZE:], right[1:], OTHER + STDOUT + b"forged", KEY[:-1], KEY, KEY + b"?", right)
    heard.send(KEY + STDOUT + b"printed", *heard.message(2))
    assert (heard.numbers, heard.output, heard.ends) == ([1, 2], [b"printed"], 0)
    heard.channel.reset(OTHER)  # Another process, with another key.
    heard.send(*heard.message(3))
    assert heard.numbers == [1, 2]


async def test_descriptors_are_closed(heard: Heard) -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    try:
        heard.send(OTHER, *heard.message(1), fds=[writing, writing])
    finally:
        os.close(writing)
    assert os.read(reading, 1) == b"", "nobody has the other end any more"
    os.close(reading)
    assert heard.numbers == [1]


async def test_large_messages_and_those_that_nobody_waits_for_are_dropped(heard: Heard) -> None:
    heard.send(*heard.message(1, 2_000))
    heard.send(KEY + MORE + b"x" * 900, KEY + MORE + b"x" * 900, KEY + LAST + b"x", *heard.message(2))
    assert heard.numbers == [2]
    heard.channel.listening = False
    heard.send(*heard.message(3))
    heard.channel.listening = True
    heard.channel.limit_input()  # No more than one message may have.
    for number in range(4, 9):
        heard.send(*heard.message(number, 400))
    assert heard.numbers == [2, 4, 5]


async def test_what_is_no_message_is_dropped_and_what_nobody_understands_ends_the_channel(heard: Heard) -> None:
    for body in (b"{no json", b"[1]", b"\xff", b"", b"[" * 900, b'{"id": NaN'):
        heard.send(KEY + LAST + body)
    assert (heard.messages, heard.ends) == ([], 0)
    with pytest.raises(TypeError):
        heard.send(*parts(encode({"event": "?"}), KEY))
    assert (heard.ends, heard.channel.closed) == (1, True)
    with pytest.raises(ConnectionError):
        await heard.channel.send({"op": "run"})


@pytest.mark.parametrize("end", ["an empty packet", "a closed socket"])
async def test_the_end_is_told_once(heard: Heard, end: str) -> None:
    send_packet(heard.theirs, b"") if end == "an empty packet" else heard.theirs.close()
    await asyncio.sleep(0)
    heard.channel.drain()
    heard.channel.drain()
    assert heard.ends == 1
