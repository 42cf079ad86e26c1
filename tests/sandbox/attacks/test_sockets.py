"""Sockets of every kind, those of the host that have a path or an abstract name, and those of other sessions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, still_works

TRY = """
import ctypes, itertools, os, socket
opened = []
for family, kind, protocol in itertools.product(range(46), (1, 2, 3, 4, 5, 10), (0, 1, 6, 17, 58, 132, 255, 262)):
    try: socket.socket(family, kind, protocol).close()
    except OSError: continue
    if family != socket.AF_UNIX: opened.append((family, kind, protocol))
libc = ctypes.CDLL(None, use_errno=True)
for family in (2, 10, 16, 17, 40):
    if libc.syscall(41, family | (1 << 32), 1, 0) >= 0: opened.append(family)
opened
"""
CONNECT = """
import socket
reached = []
for name in NAMES:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        try:
            sock = socket.socket(socket.AF_UNIX, kind)
            sock.connect(name)
            sock.send(b"hello")
            reached.append(repr(name))
        except OSError as error: pass
        for way in (lambda: pair.connect(name), lambda: pair.sendto(b"hello", name),
                    lambda: pair.sendmsg([b"hello"], [], 0, name)):
            try:
                pair, other = socket.socketpair(socket.AF_UNIX, kind)
                way()
                if kind == socket.SOCK_DGRAM: reached.append("a pair: " + repr(name))
            except OSError as error: pass
for port in PORTS:
    try: socket.create_connection(("127.0.0.1", port), 2); reached.append(port)
    except OSError: pass
reached
"""


@contextlib.contextmanager
def listening(*places: str | bytes) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for place in places:
            stream = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            stream.bind(place)
            stream.listen()
            datagrams = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            datagrams.bind(os.fsencode(place) + b"-d")
        yield


async def connect(wall: str, folder: str, network: bool) -> dict[str, Any]:
    token = secrets.token_hex(8)
    workspace, readable = Path(folder) / "workspace", Path(folder) / "readable"
    workspace.mkdir()
    readable.mkdir()
    with (
        tempfile.TemporaryDirectory(dir="/run", prefix="attack-") as run,
        listening(
            f"{run}/docker.sock",
            f"{folder}/agent.sock",
            f"{workspace}/agent.sock",
            f"{readable}/agent.sock",
            b"\0" + token.encode(),
        ),
        socket.create_server(("127.0.0.1", 0)) as tcp,
    ):
        names = [
            f"{run}/docker.sock",
            f"{folder}/agent.sock",
            "/workspace/agent.sock",
            f"{readable}/agent.sock",
            "\0" + token,
        ]
        names += [f"{name}-d" for name in names]
        ports = [] if network else [tcp.getsockname()[1]]
        async with Sandbox(wall, workspace=workspace, readable=[readable], network=network) as sandbox:
            opened = (await attempt(sandbox, TRY))["value"] if not network else []
            reached = (await attempt(sandbox, f"NAMES, PORTS = {names!r}, {ports!r}\n{CONNECT}"))["value"]
            return {"opened": opened, "reached": reached, "works": await still_works(sandbox)}


@pytest.mark.parametrize("network", [False, True], ids=["no network", "network"])
def test_nothing_of_the_host_can_be_reached(caged: Caged, tmp_path: Path, network: bool) -> None:
    assert caged(connect, str(tmp_path), network) == {"opened": [], "reached": [], "works": True}


LISTEN = """
import os, socket
server = socket.socket(socket.AF_UNIX)
server.bind("\\0other")
server.listen()
path = socket.socket(socket.AF_UNIX)
path.bind("/tmp/other.sock")
path.listen()
"""


async def neighbours(wall: str) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox, sandbox.session() as one, sandbox.session() as other:
        listens = await attempt(one, LISTEN)
        reached = await attempt(other, f"NAMES, PORTS = ['\\0other', '/tmp/other.sock'], []\n{CONNECT}")
        return {"listens": listens["outcome"], "reached": reached["value"]}


def test_sessions_do_not_reach_each_other(caged: Caged) -> None:
    assert caged(neighbours)["reached"] == []


LINGER = """
import array, socket, struct
from time import sleep
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 15))
client.setblocking(False)
try:
    while True: client.send(b"x" * 65536)
except BlockingIOError: pass
sock.sendmsg([key + b"Mnull"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [client.fileno()]))])
client.close()
sleep(3)
"""


async def linger(wall: str) -> float:
    from .inside import CHANNEL

    longest = 0.0
    async with Sandbox(wall, network=True) as sandbox:
        await sandbox.run("1")
        task = asyncio.ensure_future(sandbox.run(CHANNEL + LINGER, timeout=8))
        loop = asyncio.get_running_loop()
        while not task.done():
            last = loop.time()
            await asyncio.sleep(0.01)
            longest = max(longest, loop.time() - last)
        await task
    return longest


def test_closing_what_was_sent_does_not_block_the_host(caged: Caged) -> None:
    assert caged(linger) < 1
