"""Requests for a sandbox or session of another process: its owner is part of each id, and they are forwarded to it.

The processes are those of one server (`--workers`), replicas, or pods: only `Addresses` differ.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

import h11
from starlette.requests import Request

from coderoom._util.tasks import cancel_and_wait
from coderoom.errors import SandboxUnavailable
from coderoom.integrations.http import CALLER, Message, Receive, Send
from coderoom.integrations.service.failures import SessionLostError, told

SECRET: Final = b"x-coderoom-secret"
TENANT: Final = b"x-coderoom-tenant"
FORWARDED: Final = "coderoom.forwarded"
"""The key of a request's scope that says that another process has sent it on."""
Headers = Sequence[tuple[bytes, bytes]]
Address = Path | tuple[str, int]
"""A Unix socket, or a host and its port."""
_ID: Final = re.compile(rb"(?<![0-9a-z])[bs]([0-9a-z]+)-[0-9a-f]{24}(?![0-9a-f])")
_WITH_ID: Final = (b"host", b"e2b-sandbox-id", b"x-sandbox-id")
_OF_CONNECTION: Final = {
    *(b"connection", b"date", b"expect", b"keep-alive", b"server", b"te", b"transfer-encoding", b"upgrade"),
    *(SECRET, TENANT),
}
_MOST_READ: Final = 256 * 1024
_IDLE_SECONDS: Final = 5.0  # A server closes idle connections after 10 s.
_MOST_IDLE: Final = 64
_CONNECT_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 5.0
_OWNER_DIGITS: Final = 8
_EVENTS: Final = b"text/event-stream"
_ENDED: Final = "The process of this sandbox has ended; what it ran is lost."


class Addresses(Protocol):
    """Where the processes are."""

    async def find(self, owner: str) -> Address | None:
        """The address of an owner; `None`: it has ended."""
        ...

    async def others(self, owner: str) -> Mapping[str, Address]:
        """The addresses of all others, by names."""
        ...


class FolderAddresses:
    """Processes of one machine: each has a Unix socket in a folder, by its name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def find(self, owner: str) -> Address | None:
        """See `Addresses`."""
        return self._folder / owner

    async def others(self, owner: str) -> Mapping[str, Address]:
        """See `Addresses`."""
        return {each.name: each for each in self._folder.iterdir() if each.name != owner}


class HostAddresses:
    """Servers at one port of several hosts, such as pods. The address of a server is part of its name.

    Args:
        hosts: Addresses, and names that have them all, such as that of a headless service; no other is asked.
        port: Their port.
    """

    def __init__(self, hosts: Sequence[str], port: int) -> None:
        self._hosts = hosts
        self._port = port
        self._known: set[str] = set()
        self._looked = -_LOOK_SECONDS

    @staticmethod
    def new_owner(address: str) -> str:
        """A name for the server at an address; see `new_owner`."""
        return ip_address(address).packed.hex() + new_owner()

    async def find(self, owner: str) -> Address | None:
        """See `Addresses`."""
        address = self._address_in(owner)
        return (address, self._port) if address in await self._look_up() else None

    async def others(self, owner: str) -> Mapping[str, Address]:
        """See `Addresses`; by addresses, since a server says its name to nobody."""
        own = self._address_in(owner)
        return {address: (address, self._port) for address in await self._look_up() if address != own}

    @staticmethod
    def _address_in(owner: str) -> str:
        try:
            return str(ip_address(bytes.fromhex(owner[:-_OWNER_DIGITS])))
        except ValueError:
            return ""

    async def _look_up(self) -> set[str]:
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            loop, found = asyncio.get_running_loop(), set()
            for host in self._hosts:
                with suppress(OSError):  # No server is ready yet.
                    for *_, address in await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM):
                        found.add(str(address[0]))
            self._known, self._looked = found, now
        return self._known


def new_owner() -> str:
    """A name for a process. It is never used again, so that the ids of one that has ended are known as such."""
    return secrets.token_hex(_OWNER_DIGITS // 2)


class Peers:
    """The other processes of a server.

    Args:
        owner: The name of this process.
        addresses: Where the others are; `None`: there are no others.
        secret: What requests of the others prove themselves by.
    """

    def __init__(self, owner: str, addresses: Addresses | None = None, secret: str = "") -> None:
        self.owner = owner
        self._addresses = addresses
        self._secret = secret.encode()
        self._idle: dict[str, list[Connection]] = {}

    def sender(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The name of the tenant whose request another process sends on; `None`: no other process sends it."""
        if self._secret and hmac.compare_digest(headers.get(SECRET, b""), self._secret):
            return unquote(headers.get(TENANT, b"").decode("latin-1"))
        return None

    def owner_of(self, scope: Message) -> str:
        """The owner of the sandbox or session that a request is about; this process if it is about none."""
        headers = dict(scope["headers"])
        places = (*(headers.get(name, b"") for name in _WITH_ID), scope["path"].encode("utf-8", "replace"))
        found = next(filter(None, map(_ID.search, places)), None)
        return self.owner if found is None else found[1].decode()

    async def forward(self, owner: str, scope: Message, receive: Receive, send: Send) -> None:
        """Let the owner answer.

        Raises:
            SessionLostError: It has ended.
            SandboxUnavailable: It has ended before it answered, or cannot be reached.
        """
        try:
            address = None if scope.get(FORWARDED) or self._addresses is None else await self._addresses.find(owner)
            connection = None if address is None else await self._connect(owner, address)
        except (TimeoutError, OSError) as error:
            if isinstance(error, FileNotFoundError | ConnectionError):
                connection = None
            else:
                raise SandboxUnavailable(f"The process of this sandbox cannot be reached: {error}.") from error
        if connection is None:
            raise SessionLostError("The sandbox has ended with the process that held it.")
        try:
            broken = await connection.exchange(scope, self._target(scope), self._proof(scope), receive, send)
            if broken is not None and _has_events(broken):
                event = f"\n\nevent: error\ndata: {json.dumps(told('sandbox_unavailable', _ENDED))}\n\n"
                await send({"type": "http.response.body", "body": event.encode(), "more_body": False})
        except (OSError, h11.RemoteProtocolError) as error:
            raise SandboxUnavailable(_ENDED) from error
        finally:
            self._keep(owner, connection)

    async def others(self, request: Request) -> list[dict[str, Any]]:
        """As `answers`."""
        return await self.answers(request.scope)

    async def answers(self, scope: Message) -> list[dict[str, Any]]:
        """What all other processes answer to a request without a body, as far as they do."""
        if self._addresses is None or scope.get(FORWARDED):
            return []

        async def ask(owner: str, address: Address) -> Any:
            with suppress(OSError, TimeoutError, h11.RemoteProtocolError):
                connection = await self._connect(owner, address)
                body, status = b"", 0
                try:
                    await connection.send_head(scope, self._target(scope), self._proof(scope), {})
                    async with asyncio.timeout(_CONNECT_SECONDS):
                        async for message in connection.answer():
                            status = message.get("status", status)
                            body += message.get("body", b"")
                finally:
                    self._keep(owner, connection)
                if status == 200:
                    return json.loads(body)
            return None

        asked = [ask(owner, address) for owner, address in (await self._addresses.others(self.owner)).items()]
        return [answer for answer in await asyncio.gather(*asked) if answer is not None]

    async def close(self) -> None:
        """Close the connections."""
        for connection in [each for idle in self._idle.values() for each in idle]:
            connection.close()
        self._idle.clear()

    def _proof(self, scope: Message) -> list[tuple[bytes, bytes]]:
        return [(SECRET, self._secret), (TENANT, quote(scope[CALLER].name, "").encode())]

    def _target(self, scope: Message) -> bytes:
        return quote(scope["path"]).encode()

    async def _connect(self, owner: str, address: Address) -> Connection:
        idle = self._idle.get(owner, [])
        while idle:
            if (connection := idle.pop()).is_fresh:
                return connection
            connection.close()
        async with asyncio.timeout(_CONNECT_SECONDS):
            if isinstance(address, Path):
                return Connection(*await asyncio.open_unix_connection(address))
            return Connection(*await asyncio.open_connection(*address))

    def _keep(self, owner: str, connection: Connection) -> None:
        idle = self._idle.setdefault(owner, [])
        if connection.is_reusable and len(idle) < _MOST_IDLE:
            connection.idle_since = time.monotonic()
            idle.append(connection)
        else:
            connection.close()
            if not idle:
                del self._idle[owner]


def _has_events(head: Message) -> bool:
    kind: bytes = dict(head["headers"]).get(b"content-type", b"")
    return kind.startswith(_EVENTS)


class Connection:
    """A connection to a server, such as another process, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)
        self.idle_since = time.monotonic()

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    @property
    def is_fresh(self) -> bool:
        """Whether the other process has kept it open."""
        return time.monotonic() - self.idle_since < _IDLE_SECONDS and not self._reader.at_eof()

    async def exchange(
        self, scope: Message, target: bytes, more_headers: Headers, receive: Receive, send: Send
    ) -> Message | None:
        """Pass a request on, and its answer back, until one of them has ended.

        Returns:
            The head of an answer that was broken off.

        Raises:
            OSError: The connection has ended before an answer came.
            RemoteProtocolError: The answer is none.
        """
        first = await receive()
        if first["type"] != "http.request":
            return None
        head: Message | None = None
        began = False

        async def copy() -> None:
            nonlocal began, head
            async for message in self.answer():
                if message["type"] == "http.response.start":
                    head = message
                    if not _has_events(message):  # Until some of the answer is there, nothing is said.
                        continue
                elif not began and head is not None and not _has_events(head):
                    await send(head)
                began = True
                await send(message)

        async def watch() -> None:
            more = first.get("more_body", False)
            while (message := await receive())["type"] == "http.request":
                if more:
                    more = message.get("more_body", False)
                    await self._send_body(message.get("body", b""), more)

        copying = watching = None
        try:
            await self.send_head(scope, target, more_headers, first)
            copying, watching = asyncio.ensure_future(copy()), asyncio.ensure_future(watch())
            await asyncio.wait((copying, watching), return_when=asyncio.FIRST_COMPLETED)
            if not copying.done() and watching.exception() is not None:  # It may have answered without reading all.
                await asyncio.wait((copying,), timeout=_CONNECT_SECONDS)
            if copying.done():
                await copying
        except (OSError, h11.RemoteProtocolError):
            if not began:
                raise
            return head
        finally:
            for task in (copying, watching):
                if task is not None:
                    await cancel_and_wait(task)
        return None

    async def send_head(self, scope: Message, target: bytes, more_headers: Headers, first: Mapping[str, Any]) -> None:
        """Send a request, with the first part of its body."""
        body, more = first.get("body", b""), first.get("more_body", False)
        headers = [(name, value) for name, value in scope["headers"] if name not in _OF_CONNECTION]
        if not more:
            headers = [(name, value) for name, value in headers if name != b"content-length"]
            if body or scope["method"] not in ("GET", "HEAD"):
                headers.append((b"content-length", str(len(body)).encode()))
        elif not any(name == b"content-length" for name, _ in headers):
            headers.append((b"transfer-encoding", b"chunked"))
        headers += more_headers
        target += b"?" + scope["query_string"] if scope["query_string"] else b""
        self._write(h11.Request(method=scope["method"], target=target, headers=headers))
        await self._send_body(body, more)

    async def _send_body(self, part: bytes, more: bool) -> None:
        if part:
            self._write(h11.Data(data=part))
        if not more:
            self._write(h11.EndOfMessage())
        await self._writer.drain()

    async def answer(self) -> Any:
        """The answer, as messages of an ASGI application."""
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(_MOST_READ))
            elif isinstance(event, h11.Response):
                kept = [(name, value) for name, value in event.headers if name not in _OF_CONNECTION]
                yield {"type": "http.response.start", "status": event.status_code, "headers": kept}
            elif isinstance(event, h11.Data):
                yield {"type": "http.response.body", "body": bytes(event.data), "more_body": True}
            elif isinstance(event, h11.EndOfMessage):
                yield {"type": "http.response.body", "body": b"", "more_body": False}
                return
            elif not isinstance(event, h11.InformationalResponse):
                raise ConnectionResetError("the connection has ended")

    def close(self) -> None:
        """Close it."""
        self._writer.close()

    def _write(self, event: Any) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
