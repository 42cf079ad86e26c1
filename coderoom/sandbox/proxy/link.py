"""A connection of code to a host that is allowed, with bytes that pass both ways and are looked at as far as needed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from . import wire
from .rules import normal_host
from .wire import Head, MalformedError

_AT_ONCE = 1 << 18
_TLS = range(20, 25)  # The kinds of its records; only a hello may come first.
_MOST_TRAILERS = 100
_OF_STATUS = 12


class Counting(Protocol):
    """What counts the bytes of a link, and ends it."""

    def spend(self, host: str, port: int, **counts: int) -> None:
        """Count bytes, and end the connection at the session's limit."""

    def refused(self, host: str, port: int, why: str, status: int = 403) -> Exception:
        """Note that a connection is refused."""


class Source:
    """Bytes of a client, some of which may have been read already."""

    def __init__(self, reader: asyncio.StreamReader, begun: bytes = b"") -> None:
        self.reader, self.begun = reader, bytearray(begun)  # From its beginning, bytes are removed at no cost.

    async def more(self) -> bool:
        """Read what comes next; return whether there was something."""
        part = await self.reader.read(_AT_ONCE)
        self.begun += part
        return bool(part)

    def take(self, count: int) -> bytes:
        """Take bytes that have been read."""
        found = bytes(self.begun[:count])
        del self.begun[:count]
        return found

    async def until(self, end: bytes) -> bytes:
        """Read to a separator; the end of the stream before it is an `EOFError`."""
        await asyncio.sleep(0)  # Others get a turn, however many small pieces have been read already.
        while (place := self.begun.find(end)) < 0:
            if len(self.begun) > wire.LONGEST_HEAD:
                raise MalformedError("a line or a head is too long")
            if not await self.more():
                raise EOFError
        return self.take(place + len(end))

    async def some(self, most: int) -> bytes:
        """Read at least one byte and at most so many; the end of the stream is an `EOFError`."""
        if not self.begun and not await self.more():
            raise EOFError
        return self.take(most)


class Link:
    """A connection of code, and the one that goes on from it to a host."""

    def __init__(
        self,
        room: Counting,
        host: str,
        port: int,
        source: Source,
        client: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        onward: asyncio.StreamWriter,
    ) -> None:
        self._room, self._host, self._port = room, host, port
        self.source = source
        self._client, self._answers, self._onward = client, answers, onward
        self._status: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def tunnel(self) -> None:
        """Let bytes pass both ways. A first hello of TLS, and each request of HTTP, has to be for this host."""
        await _both(self._check_and_send(), self._receive())

    async def forward(self, head: Head, body: int | None) -> None:
        """Send a request of HTTP whose head was read, with its body, and let its answer pass."""

        async def send() -> None:
            await self._send(head.encode())
            await self._send_body(body)

        await _both(send(), self._receive())

    async def _check_and_send(self) -> None:
        source = self.source
        while True:
            is_tls = bool(source.begun) and source.begun[0] in _TLS
            try:
                name = wire.server_name(bytes(source.begun)) if is_tls else ""
            except MalformedError as error:
                raise self._refused(f"It looks like TLS, but {error}.") from error
            is_http = False if is_tls else wire.looks_like_http(bytes(source.begun))
            if source.begun and name is not None and is_http is not None:
                break
            if not await source.more():
                break
        if is_tls and name != "" and (name is None or normal_host(name) != self._host):
            raise self._refused(f"TLS asks for the host {name or '?'!r:.100}, and the connection is to {self._host!r}.")
        if is_http:
            await self._send_requests()
        else:
            await self._send_all()

    async def _send_all(self) -> None:
        await self._send(self.source.take(len(self.source.begun)))
        while part := await self.source.reader.read(_AT_ONCE):
            await self._send(part)
        self._onward.write_eof()

    async def _send_requests(self) -> None:
        """Send requests of HTTP/1, each of which has to be for this host."""
        first = True
        try:
            while self.source.begun or await self.source.more():
                head = wire.parse_head(await self.source.until(b"\r\n\r\n"))
                hosts, body = head.all_of("host"), head.body
                if len(hosts) > 1 or (hosts and not self._is_here(hosts[0])):
                    raise MalformedError(f"its Host is {', '.join(hosts)!r:.100}")
                if not head.target.startswith("/") and head.target != "*":
                    raise MalformedError(f"it asks for {head.target!r:.100}")
                await self._send(head.encode())
                await self._send_body(body)
                if first and head.all_of("upgrade") and (await self._status).startswith(b"HTTP/1.1 101"):
                    await self._send_all()  # From here on, it is another protocol: WebSocket for instance.
                    return
                first = False
        except MalformedError as error:
            raise self._refused(f"A request in a connection to {self._host!r}: {error}.") from error
        self._onward.write_eof()

    def _is_here(self, authority: str) -> bool:
        host, _, port = authority.rpartition(":") if not authority.endswith("]") else (authority, "", "")
        if not host:
            host, port = authority, ""
        return normal_host(host) == self._host and port in ("", str(self._port))

    async def _send_body(self, size: int | None) -> None:
        """Send the body of a request: exactly it, so that what follows is looked at."""
        source = self.source
        while size:
            part = await source.some(size)
            size -= len(part)
            await self._send(part)
        if size is not None:
            return
        left = 1
        while left:
            line = await source.until(b"\r\n")
            left = wire.chunk_size(line)
            await self._send(line)
            if left:
                await self._send_body(left)
                if await source.until(b"\r\n") != b"\r\n":
                    raise MalformedError("a chunk of the request's body is malformed")
                await self._send(b"\r\n")
        for _ in range(_MOST_TRAILERS):  # Headers after the body.
            line = await source.until(b"\r\n")
            if line != b"\r\n":
                wire.parse_header(line.removesuffix(b"\r\n"))
            await self._send(line)
            if line == b"\r\n":
                return
        raise MalformedError("there are too many headers after the request's body")

    async def _send(self, data: bytes) -> None:
        self._room.spend(self._host, self._port, sent=len(data))
        self._onward.write(data)
        await self._onward.drain()

    async def _receive(self) -> None:
        begun = b""
        while part := await self._answers.read(_AT_ONCE):
            if len(begun) < _OF_STATUS:
                begun += part[:_OF_STATUS]
                if len(begun) >= _OF_STATUS and not self._status.done():
                    self._status.set_result(begun)
            self._room.spend(self._host, self._port, received=len(part))
            self._client.write(part)
            await self._client.drain()
        if not self._status.done():
            self._status.set_result(b"")
        if self._client.can_write_eof():
            self._client.write_eof()

    def _refused(self, why: str) -> Exception:
        return self._room.refused(self._host, self._port, why)


async def _both(*ways: Coroutine[Any, Any, None]) -> None:
    """Run until both have ended, or one has failed."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def copy(source: Source, writer: asyncio.StreamWriter) -> None:
    """Copy bytes to the end of a stream."""
    while source.begun or await source.more():
        writer.write(source.take(len(source.begun)))
        await writer.drain()
    writer.write_eof()
