"""Time cells of many MCP clients at once, as a ratio to sessions of a sandbox without a server in between.

Most of the difference is what a message of MCP costs in the SDK, which a `ping` shows.

python benchmarks/mcp_clients.py [--clients N] [--cells N]

Each client has a connection over HTTP, and so a sandbox of its own. Rounds of the two take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from statistics import median, quantiles
from time import perf_counter

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from coderoom.sandbox import Sandbox

CODE = "x = globals().get('x', 0) + 1\nprint(x)"
TOKEN = "a-token-of-the-benchmark"
ROUNDS = 5
Cell = Callable[[], Awaitable[object]]


async def client_of(url: str, stack: AsyncExitStack) -> tuple[Cell, Cell]:
    """A client; return what runs a cell, and what asks only whether the server is there."""
    http = await stack.enter_async_context(httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120))
    reads, writes, _ = await stack.enter_async_context(streamable_http_client(url, http_client=http))
    client = await stack.enter_async_context(ClientSession(reads, writes))
    await client.initialize()

    async def run() -> None:
        result = await client.call_tool("run_code", {"code": CODE})
        assert not result.isError, result

    return run, client.send_ping


async def session_of(stack: AsyncExitStack) -> Cell:
    """A session in a sandbox of its own; return what runs a cell."""
    sandbox = await stack.enter_async_context(Sandbox())
    session = await stack.enter_async_context(sandbox.session())

    async def run() -> None:
        assert (await session.run(CODE)).success

    return run


async def timed(cells: list[Cell], number: int) -> list[float]:
    """The seconds of each cell, if all clients run so many at the same time."""
    found: list[float] = []

    async def one(cell: Cell) -> None:
        for _ in range(number):
            begun = perf_counter()
            await cell()
            found.append(perf_counter() - begun)

    await asyncio.gather(*map(one, cells))
    return found


async def compare(url: str, number: int, cells: int) -> None:
    """Print the times."""
    async with AsyncExitStack() as stack:
        begun = perf_counter()
        pairs = [await client_of(url, stack) for _ in range(number)]
        clients, pings = [run for run, _ in pairs], [ping for _, ping in pairs]
        await timed(clients, 1)
        print(f"{number} clients have their first result after {perf_counter() - begun:.1f} s")
        sessions = [await session_of(stack) for _ in range(number)]
        await timed(sessions, 1)
        times: tuple[list[float], ...] = [], [], []
        for _ in range(ROUNDS):
            for found, each in zip(times, (clients, pings, sessions), strict=True):
                found += await timed(each, cells)
    for name, found in zip(("cell over MCP", "ping over MCP", "cell in a sandbox"), times, strict=True):
        print(f"{name:<18} median {1e3 * median(found):7.2f} ms, 95 % {1e3 * quantiles(found, n=20)[-1]:7.2f} ms")
    over, ping, bare = map(median, times)
    print(f"over MCP / in a sandbox: {over / bare:.1f}; over MCP / (ping + in a sandbox): {over / (ping + bare):.2f}")


def main() -> None:
    """Start a server, and compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--cells", type=int, default=20)
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "coderoom", "mcp", "--http", "0"]
    env = {**os.environ, "CODEROOM_TOKEN": TOKEN}
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as server,
    ):
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        asyncio.run(compare(url, arguments.clients, arguments.cells))
        server.terminate()


if __name__ == "__main__":
    main()
