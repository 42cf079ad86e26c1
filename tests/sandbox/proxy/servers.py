"""Servers at the loopback that say what they were asked, and the proxy's own classes in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from coderoom.sandbox.proxy import server
from coderoom.sandbox.proxy.rules import parse_rule


class Server(ThreadingHTTPServer):
    """Says nothing of connections that are cut off."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Echo)
        self.heads: list[str] = []

    def handle_error(self, *_: object) -> None: ...


class Echo(BaseHTTPRequestHandler):
    """Answers with the request as JSON; the server keeps its head in `heads`."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        self.server.heads.append(f"{self.requestline}|{self.headers['host']}")
        size = int(self.headers.get("content-length") or 0)
        said = {"path": self.path, "headers": dict(self.headers), "body": self.rfile.read(size).decode("latin-1")}
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-seen", self.headers.get("authorization") or "nothing")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_DELETE = do_GET  # noqa: N815 - the names that the library calls

    def log_message(self, *_: object) -> None: ...


@contextlib.contextmanager
def echo(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server; its `heads` are the requests that have reached it."""
    found = Server()
    if context is not None:
        found.socket = context.wrap_socket(found.socket, server_side=True)
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.shutdown()
        found.server_close()


class InProcess:
    """A proxy in this process with one room, whose sockets are at this machine's loopback."""

    def __init__(self, *hosts: str, **limits: float) -> None:
        self._told, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        rules = list(map(parse_rule, hosts))
        config = {
            "rules": rules,
            "connect_seconds": 5,
            "network_bytes": 1 << 30,
            "credentials": [],
            "key": "",
            **limits,
        }
        self.proxy = server.Proxy(told, config)
        self._control = told
        tcp = [socket.create_server((address, 0)) for address in ("127.0.0.1", "0.0.0.0")]
        names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        names.bind(("127.0.0.1", 0))
        self.port, self.other_port = (sock.getsockname()[1] for sock in tcp)
        self.dns = names.getsockname()
        self.room = server.Room(self.proxy, [*tcp, names])

    def uses(self) -> list[tuple[str, int | None, str]]:
        """What was asked for, and why it was refused."""
        return [(use["host"], use["port"], use["why"]) for use in self.room.report()["uses"]]

    async def say(self, data: bytes, address: tuple[str, int] | None = None) -> bytes:
        """Send bytes to the proxy's port, or another one; return all that comes back; `b"!"` at a reset."""
        reader, writer = await asyncio.open_connection(*(address or ("127.0.0.1", self.port)))
        writer.write(data)
        said = b""
        try:
            async with asyncio.timeout(5):
                while part := await reader.read(65536):
                    said += part
        except ConnectionError:
            said += b"!"
        writer.close()
        return said

    async def ask(self, packet: bytes) -> bytes:
        """Send a query of DNS."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            await loop.sock_sendto(sock, packet, self.dns)
            return await asyncio.wait_for(loop.sock_recv(sock, 512), 5)

    def close(self) -> None:
        self.room.end()
        self._control.close()
        self._told.close()


@contextlib.asynccontextmanager
async def in_process(monkeypatch: pytest.MonkeyPatch, *hosts: str, **limits: float) -> AsyncIterator[InProcess]:
    """The proxy's classes in this process."""
    found = InProcess(*hosts, **limits)
    monkeypatch.setattr(server, "PROXY_PORT", found.port)
    try:
        yield found
    finally:
        found.close()


def resolve_to(monkeypatch: pytest.MonkeyPatch, **names: list[str]) -> None:
    """Resolve names, with `_` for a dot, to the addresses: one for each time, the last one again and again."""
    loop = asyncio.get_running_loop()
    left = {name.replace("_", "."): list(addresses) for name, addresses in names.items()}

    async def getaddrinfo(host: str, port: int, **_: object) -> list[Any]:
        if host not in left:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found = left[host].pop(0) if len(left[host]) > 1 else left[host][0]
        return [(socket.AF_INET6 if ":" in each else socket.AF_INET, 1, 6, "", (each, port)) for each in found.split()]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
