"""The process of the proxy, beside the sandbox: it accepts what code connects to, and lets through what is allowed.

Its listening sockets are in the network namespaces of rooms, which made them and handed them over; code sees them at
its own loopback. The connections onward are made here. It resolves names only if they are in the allow-list, and checks
each address that it connects to. Standard library only, besides what `credentials` needs.

It ends when the host closes the control socket. Messages are one packet of JSON each:

- the first one: `rules`, `connect_seconds`, `network_bytes`, `credentials` with the `key` of an earlier authority and
  the `path` of packages for them; the answer is `ready`, with the `authority`;
- `room`: with descriptors, the sockets of a room with the number `id`;
- `begin`: a session begins in a room, or has ended; what is left of the last one is cut off, and that is answered;
- `report`: what was let through and refused since the last report; the answer has `uses` and `left_out`;
- `end`: a room is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import json
import os
import re
import resource
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from . import wire
from .link import Link, Source, copy
from .rules import AUTHORITY, PROXY_PORT, AllowList, Rule, address_of, advice, normal_host, shown
from .wire import Head, MalformedError

if TYPE_CHECKING:  # It needs packages.
    from .credentials import Credentials

_FIRST_NAME = struct.unpack(">I", socket.inet_aton("127.64.0.1"))[0]
_MOST_NAMES, _MOST_CONNECTIONS, _MOST_USES = 4096, 256, 80
_LONGEST_HOST, _LONGEST_WHY = 253, 300
_UNUSUAL = re.compile(r"[^ -\[\]-~]")  # JSON writes these in more than two bytes.
_AT_ONCE = 1 << 18
_SECONDS_TO_ASK, _MOMENT = 30.0, 0.1
_MOST_LOOKUPS, _LOOKING_UP = 8, 64  # Of a room at a time, and of all.
_LARGEST_PACKET, _MOST_SOCKETS = 1 << 17, 64
_PR_SET_DUMPABLE = 4
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_SOCKS_GRANTED, _SOCKS_FORBIDDEN, _SOCKS_UNREACHABLE = 0, 2, 4
# They belong to a connection, not to the request (RFC 9110, section 7.6.1), or to the proxy.
_HOP_BY_HOP = {"connection", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade"}


class RefusedError(Exception):
    """A connection is not made, or ended; `status` is the one of HTTP that says so."""

    def __init__(self, why: str, status: int = 403) -> None:
        super().__init__(why)
        self.status = status


_ENDS = (OSError, EOFError, MalformedError, RefusedError)


class Room:
    """The sockets of a room, the connections that its code makes, and what becomes of them."""

    def __init__(self, proxy: Proxy, sockets: list[socket.socket]) -> None:
        self._proxy = proxy
        self._sockets = sockets
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._undecided: set[asyncio.Task[None] | None] = set()
        # Apart, so that refused ones, of which code can make as many as it likes, leave room for the others.
        self._uses: dict[tuple[str, int | None, str], dict[str, int]] = {}
        self._refused: dict[tuple[str, int | None, str], dict[str, int]] = {}
        self._left_out = self._spent = 0
        # Each has an address of the loopback, which code gets when it asks for the name.
        self._names: dict[str, int] = {}
        self._looking = asyncio.Semaphore(_MOST_LOOKUPS)
        for sock in sockets:
            sock.setblocking(False)
            self._loop.add_reader(sock, self._answer_for(sock), sock)

    def begin(self) -> None:
        """Cut off all connections, also those that wait, and forget everything."""
        for task in self._tasks:
            task.cancel()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                while True:
                    sock.accept()[0].close() if sock.type == socket.SOCK_STREAM else sock.recv(1)
        self._uses, self._refused, self._left_out, self._spent, self._names = {}, {}, 0, 0, {}

    def end(self) -> None:
        """Close everything."""
        self.begin()
        for sock in self._sockets:
            self._loop.remove_reader(sock)
            sock.close()

    def _answer_for(self, sock: socket.socket) -> Callable[[socket.socket], object]:
        return self._accept if sock.type == socket.SOCK_STREAM else self._resolve

    async def settle(self) -> None:
        """Accept what waits, and wait a moment for what is not decided yet, so that a report has it."""
        for sock in self._sockets:
            while sock.type == socket.SOCK_STREAM and self._accept(sock):
                pass
        end = self._loop.time() + _MOMENT
        while self._undecided and self._loop.time() < end:  # noqa: ASYNC110 - each of them could be the last
            await asyncio.sleep(_MOMENT / 50)
        self._undecided.clear()  # What asks for nothing now is not waited for again.

    def report(self) -> dict[str, Any]:
        """What was let through and refused since the last report."""
        uses = [*self._uses.items(), *self._refused.items()]
        left_out, self._left_out = self._left_out, 0
        self._uses, self._refused = {}, {}
        listed = [{"host": host, "port": port, "why": why, **use} for (host, port, why), use in uses]
        return {"uses": listed, "left_out": left_out}

    def note(self, host: str, port: int | None, why: str = "", /, **counts: int) -> None:
        """Add to what is reported: connections, and bytes that were sent and received."""
        # The code may have written the names.
        host = _UNUSUAL.sub("?", host[:_LONGEST_HOST].replace('"', "?"))
        why = _UNUSUAL.sub("?", why[:_LONGEST_WHY])
        key, uses = (host, port, why), self._refused if why else self._uses
        if key not in uses and len(uses) >= _MOST_USES:
            self._left_out += 1
            return
        if "connections" in counts:
            self._undecided.discard(asyncio.current_task())
        use = uses.setdefault(key, {"connections": 0, "sent": 0, "received": 0})
        for name, count in counts.items():
            use[name] += count

    def spend(self, host: str, port: int, **counts: int) -> None:
        """Count bytes, and end the connection at the session's limit."""
        self._spent += sum(counts.values())
        self.note(host, port, **counts)
        if self._spent > self._proxy.network_bytes:
            raise self.refused(host, port, self._proxy.spent)

    def refused(self, host: str, port: int, why: str, status: int = 403) -> RefusedError:
        """Note that a connection is refused, or that it failed."""
        self.note(host, port, why, connections=1)
        return RefusedError(why, status)

    def _accept(self, listener: socket.socket) -> bool:
        """Accept a connection; return whether one has waited."""
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return False
        except OSError:  # There are no descriptors left; it stays readable.
            self._loop.remove_reader(listener)
            self._loop.call_later(_MOMENT, self._listen_again, listener)
            return False
        if len(self._tasks) >= _MOST_CONNECTIONS:
            self.note("", None, f"There were more than {_MOST_CONNECTIONS} connections at a time.", connections=1)
            sock.close()
            return True
        sock.setblocking(False)
        task = self._loop.create_task(self._serve(sock))
        self._tasks.add(task)
        self._undecided.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._undecided.discard)
        return True

    def _listen_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self._loop.add_reader(listener, self._accept, listener)

    async def _serve(self, sock: socket.socket) -> None:
        reader = asyncio.StreamReader(_AT_ONCE)
        protocol = asyncio.StreamReaderProtocol(reader)
        address, port = sock.getsockname()[:2]
        is_asked = (address, port) == ("127.0.0.1", PROXY_PORT)
        host = "" if is_asked else self._name_at(address)
        transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, sock)
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            if is_asked:
                await self._answer_request(reader, writer)
            elif self._proxy.opens(host, port):
                await self._open(host, port, Source(reader), writer)
            else:
                async with self._linked(host, port, Source(reader), writer) as link:
                    await link.tunnel()
            writer.close()
        except _ENDS:
            transport.abort()  # The code gets an error, and not the end of an answer.
        finally:
            transport.close()

    async def _answer_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection to the proxy's own port: one request of HTTP, or a connection by SOCKS 5."""
        body: int | None = 0
        async with asyncio.timeout(_SECONDS_TO_ASK):
            first = await reader.readexactly(1)
            if first == b"\x05":
                host, port = await _read_socks(reader, writer)
                head, source = None, Source(reader)
            else:
                source = Source(reader, first)
                try:
                    head = wire.parse_head(await source.until(b"\r\n\r\n"))
                    (host, port), body = _target_of(head), head.body
                except MalformedError as error:
                    await _say(writer, 400, f"The proxy cannot read this: {error}.")
                    return
        try:
            name = normal_host(host)
            if name is not None and (head is None or head.method == "CONNECT") and self._proxy.opens(name, port):
                await self._open(
                    name, port, source, writer, _socks_answer(_SOCKS_GRANTED) if head is None else _ESTABLISHED
                )
                return
            async with self._linked(host, port, source, writer) as link:
                if head is not None and head.method != "CONNECT":
                    await link.forward(_for_origin(head, shown(host, None if port == 80 else port)), body)
                    return
                writer.write(_socks_answer(_SOCKS_GRANTED) if head is None else _ESTABLISHED)
                await link.tunnel()
        except RefusedError as error:
            if head is not None:
                await _say(writer, error.status, str(error))
            else:
                writer.write(_socks_answer(_SOCKS_FORBIDDEN if error.status == 403 else _SOCKS_UNREACHABLE))
                await writer.drain()

    async def _connect(self, host: str, port: int) -> socket.socket:
        """Connect to a host, if that is allowed, and note what comes of it."""
        if self._spent > self._proxy.network_bytes:
            raise self.refused(host, port, self._proxy.spent)
        try:
            async with self._looking:
                sock = await self._proxy.connect(host, port)
        except RefusedError as error:
            raise self.refused(host, port, str(error), error.status) from error
        self.note(host, port, connections=1)
        return sock

    @contextlib.asynccontextmanager
    async def _linked(self, host: str, port: int, source: Source, writer: asyncio.StreamWriter) -> AsyncIterator[Link]:
        """A connection of code that goes on to a host."""
        name = normal_host(host)
        if name is None:
            raise self.refused(host, port, f"{host[:100]!r} is not the name of a host in a usual spelling.")
        onward_reader, onward_writer = await asyncio.open_connection(
            sock=await self._connect(name, port), limit=_AT_ONCE
        )
        try:
            yield Link(self, name, port, source, writer, onward_reader, onward_writer)
            onward_writer.close()
            await onward_writer.wait_closed()  # Until the host has taken what is left, or the session ends.
        except RefusedError as error:  # It is too late to say so in an answer.
            raise ConnectionAbortedError(str(error)) from error
        finally:
            onward_writer.transport.abort()

    async def _open(
        self, host: str, port: int, source: Source, writer: asyncio.StreamWriter, granted: bytes = b""
    ) -> None:
        """Open TLS in the place of a host, and add its credential to each request."""
        from .credentials import Opened

        credentials = self._proxy.credentials
        assert credentials is not None

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            sock = await self._connect(host, port)
            try:
                return await asyncio.open_connection(
                    sock=sock,
                    limit=_AT_ONCE,
                    ssl=credentials.verifying,
                    server_hostname=host,
                    ssl_handshake_timeout=self._proxy.connect_seconds,
                )
            except ssl.SSLCertVerificationError as error:
                why = f"The certificate of {shown(host, port)} is not valid: {error.verify_message.rstrip('.')}."
                raise self.refused(host, port, why, 502) from error
            except OSError as error:
                raise self.refused(host, port, f"No TLS with {shown(host, port)}: {error}.", 502) from error

        writer.write(granted)
        # What was read already is for TLS, too: it goes through a socket of its own.
        inner, outer = socket.socketpair()
        outer_reader, outer_writer = await asyncio.open_connection(sock=outer, limit=_AT_ONCE)
        ways = [
            asyncio.ensure_future(copy(source, outer_writer)),
            asyncio.ensure_future(copy(Source(outer_reader), writer)),
        ]
        try:
            reader = asyncio.StreamReader(_AT_ONCE)
            protocol = asyncio.StreamReaderProtocol(reader)
            try:
                transport, _ = await self._loop.connect_accepted_socket(
                    lambda: protocol, inner, ssl=credentials.context(host, port)
                )
            except ssl.SSLError as error:
                cause = "it asks for another host" if error.reason == "CALLBACK_FAILED" else error.reason
                why = f"The code, which has to trust {AUTHORITY}, did not agree on TLS for {host}: {cause}."
                raise self.refused(host, port, why) from error
            opened = Opened(
                *credentials.of(host, port),
                reader,
                asyncio.StreamWriter(transport, protocol, reader, self._loop),
                connect,
                functools.partial(self.spend, host, port),
            )
            await opened.serve(functools.partial(self.refused, host, port))
            transport.close()
            await ways[1]
        except RefusedError as error:  # It is too late to say so in an answer.
            raise ConnectionAbortedError(str(error)) from error
        finally:
            for way in ways:
                way.cancel()
            outer_writer.close()
            await asyncio.gather(*ways, return_exceptions=True)

    def _name_at(self, address: str) -> str:
        place = struct.unpack(">I", socket.inet_aton(address))[0] - _FIRST_NAME
        return next((name for name, number in self._names.items() if number == place), address)

    def _resolve(self, sock: socket.socket) -> None:
        """Answer a query of DNS: an address that stands for the name here, if the name is in the allow-list."""
        try:
            packet, sender = sock.recvfrom(512)
            question = wire.parse_question(packet)
        except (OSError, MalformedError):
            return
        name, address = normal_host(question.name), None
        if name is not None and self._proxy.rules.allows(name, None):
            if len(self._names) < _MOST_NAMES:
                address = struct.pack(">I", _FIRST_NAME + self._names.setdefault(name, len(self._names)))
        elif wire.asks_for_address(question):
            self.note(question.name, None, advice(name or question.name, None), connections=1)
        with contextlib.suppress(OSError):
            sock.sendto(wire.answer_to(question, address), sender)


class Proxy:
    """The allow-list, what is resolved and connected to, and the rooms."""

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.rules = AllowList(Rule(*each) for each in config["rules"])
        self.network_bytes: int = config["network_bytes"]
        self.spent = f"The session has used up its network_bytes, {self.network_bytes}."
        self.connect_seconds: float = config["connect_seconds"]
        self.credentials: Credentials | None = None
        if config["credentials"]:
            from .credentials import Credentials as Known

            self.credentials = Known(config["credentials"], config["key"])
        self._rooms: dict[int, Room] = {}
        self._control = control
        self._reporting: set[asyncio.Future[None]] = set()
        self.ended = asyncio.get_running_loop().create_future()

    def take(self) -> None:
        """Take what the host has sent; all of it, before another connection is accepted."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._control, _LARGEST_PACKET, _MOST_SOCKETS)
            except BlockingIOError:
                return
            if not data:
                self.ended.set_result(None)
                asyncio.get_running_loop().remove_reader(self._control)
                return
            self._obey(json.loads(data), fds)

    def _obey(self, message: dict[str, Any], fds: list[int]) -> None:
        op, number = message["op"], message["id"]
        if op == "room":
            self._rooms[number] = Room(self, [socket.socket(fileno=fd) for fd in fds])
        elif op == "begin":
            self._rooms[number].begin()
            self.send({"id": number, "asked": message["asked"]})
        elif op == "report":
            reporting = asyncio.ensure_future(self._report(number, message["asked"]))
            self._reporting.add(reporting)
            reporting.add_done_callback(self._reporting.discard)
        elif op == "end":
            self._rooms.pop(number).end()

    async def _report(self, number: int, asked: int) -> None:
        room = self._rooms[number]
        await room.settle()
        self.send({"id": number, "asked": asked, **room.report()})

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to the host."""
        self._control.send(json.dumps(message).encode())

    def opens(self, host: str, port: int) -> bool:
        """Whether TLS is opened for a host, which has a credential."""
        return self.credentials is not None and self.credentials.context(host, port) is not None

    async def connect(self, host: str, port: int) -> socket.socket:
        """Connect to a host that is allowed, by an address that is."""
        if not self.rules.allows(host, port):
            raise RefusedError(advice(host, port))
        loop = asyncio.get_running_loop()
        why, status = "it has no address", 502
        try:
            async with asyncio.timeout(self.connect_seconds):
                if address_of(host) is None:
                    places = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                else:  # Not in a thread, which takes half a millisecond.
                    places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
                for family, _, _, _, place in places:
                    objection = self.rules.objection(str(place[0]), port)
                    if objection:
                        address = shown(str(place[0]), port)
                        why, status = f"{address} is {objection}; network: [{json.dumps(address)}] allows it", 403
                        continue
                    sock = socket.socket(family, socket.SOCK_STREAM)
                    try:
                        sock.setblocking(False)
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        await loop.sock_connect(sock, place)
                    except BaseException as error:
                        sock.close()
                        if not isinstance(error, OSError) or isinstance(error, TimeoutError):
                            raise
                        why, status = error.strerror or str(error), 502
                        continue
                    return sock
        except socket.gaierror as error:
            why, status = error.strerror or "it has no address", 502
        except TimeoutError:
            why, status = f"it did not answer within connect_seconds, {self.connect_seconds:g}", 504
        raise RefusedError(f"No connection to {shown(host, port)}: {why}.", status)


async def _read_socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int]:
    """Read what a client of SOCKS 5 asks for (RFC 1928), without a password."""
    await reader.readexactly((await reader.readexactly(1))[0])
    writer.write(b"\x05\x00")
    version, command, _, kind = await reader.readexactly(4)
    if version != 5 or command != 1:
        raise MalformedError("only connections are made")
    if kind == 1:
        host = socket.inet_ntop(socket.AF_INET, await reader.readexactly(4))
    elif kind == 4:
        host = socket.inet_ntop(socket.AF_INET6, await reader.readexactly(16))
    elif kind == 3:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("ascii", errors="replace")
    else:
        raise MalformedError("this is not an address")
    return host, int.from_bytes(await reader.readexactly(2), "big")


def _socks_answer(code: int) -> bytes:
    return bytes([5, code, 0, 1, 0, 0, 0, 0, 0, 0])


def _target_of(head: Head) -> tuple[str, int]:
    """The host and the port that a request to the proxy is for."""
    authority, default = head.target, None
    if head.method != "CONNECT":
        scheme, separator, rest = head.target.partition("://")
        if not separator or scheme.lower() != "http":
            raise MalformedError("it takes CONNECT and http://")
        authority, default = rest.split("/", 1)[0].split("?", 1)[0], 80
    host, separator, port = authority.rpartition(":")
    if not separator or authority.endswith("]"):
        host, port = authority, str(default or "")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65_536 or "@" in host:
        raise MalformedError(f"{authority[:100]!r} is not a host with a port")
    return host, int(port)


def _for_origin(head: Head, authority: str) -> Head:
    """The request that goes on to the host itself; it is the last one of its connection."""
    rest = head.target.partition("://")[2]
    start = min((rest.find(each) for each in "/?" if each in rest), default=len(rest))
    target = rest[start:]
    dropped = _HOP_BY_HOP.union(*(each.lower().replace(" ", "").split(",") for each in head.all_of("connection")))
    dropped -= {"content-length", "transfer-encoding", "host"}
    kept = [each for each in head.headers if each[0] not in dropped and each[0] != "host"]
    headers = [("host", authority), *kept, ("connection", "close")]
    return head._replace(target=target if target.startswith("/") else f"/{target}", headers=headers)


async def _say(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    """Answer a request with what the proxy has to say."""
    shown_text = text.encode("ascii", errors="replace").decode("ascii")
    body = f"{shown_text}\n"
    writer.write(
        f"HTTP/1.1 {status} {shown_text}\r\ncontent-type: text/plain\r\ncontent-length: {len(body)}\r\n"
        f"connection: close\r\n\r\n{body}".encode("ascii")
    )
    await writer.drain()


async def _serve(control: socket.socket) -> None:
    control.setblocking(True)
    config = json.loads(control.recv(_LARGEST_PACKET))
    sys.path += config["path"]
    control.setblocking(False)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_LOOKING_UP))
    proxy = Proxy(control, config)
    proxy.send({"ready": True, "authority": proxy.credentials.authority if proxy.credentials else None})
    asyncio.get_running_loop().add_reader(control, proxy.take)
    await proxy.ended


def main(control_fd: int) -> None:
    """Serve until the host closes the control socket."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Other processes of this user must not read the secrets in its memory.
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    with socket.socket(fileno=control_fd) as control:
        asyncio.run(_serve(control))
    os._exit(0)  # Not waiting for names that are still being resolved.
