"""Measure calls from code in a sandbox to the host, beside requests to an HTTP server there, in one run, as ratios.

python benchmarks/functions.py [--wall NAME] [rounds]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.server
import json
import os
import statistics
import sys
import threading
from typing import Any

from coderoom.sandbox import Limits, Sandbox

# Both are timed inside, where the code is that waits; one call after the other.
TIMING = """
import asyncio, http.client, json, time, urllib.request

def median(call, count=300):
    times = []
    for number in range(count):
        begin = time.perf_counter()
        assert call(number, 1) == number + 1
        times.append(time.perf_counter() - begin)
    return sorted(times)[count // 2]

async def median_async(call, count=300):
    times = []
    for number in range(count):
        begin = time.perf_counter()
        assert await call(number, 1) == number + 1
        times.append(time.perf_counter() - begin)
    return sorted(times)[count // 2]

async def each(call, count=1000):
    begin = time.perf_counter()
    assert await asyncio.gather(*(call(number, 1) for number in range(count))) == list(range(1, count + 1))
    return (time.perf_counter() - begin) / count

def by_request(a, b):
    request = urllib.request.Request(URL, json.dumps({"a": a, "b": b}).encode())
    with urllib.request.urlopen(request) as response:
        return json.load(response)

connection = http.client.HTTPConnection(*URL.removeprefix("http://").split(":"))

def by_connection(a, b):
    connection.request("POST", "/", json.dumps({"a": a, "b": b}))
    return json.load(connection.getresponse())
"""
MEMORY = """
import gc
def pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])
for number in range(100):
    echo(["x" * 1000])
gc.collect()
before = pages()
for number in range(1000):
    echo(["x" * 1000])
(pages() - before) * 4
"""


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def add_async(a: int, b: int) -> int:
    """Add."""
    return a + b


def echo(value: Any) -> Any:
    """Return it."""
    return value


class Handler(http.server.BaseHTTPRequestHandler):
    """What one would write to let code call `add`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        """Answer a call."""
        arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(add(**arguments)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


async def measure(wall: str, url: str, rounds: int) -> dict[str, list[float]]:
    """The times of each way, in seconds."""
    ways = {
        "sync": "median(add)",
        "async": "await median_async(add_async)",
        "side by side": "await each(add_async)",
        "request": "median(by_request)",
        "connection": "median(by_connection)",
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    async with (
        Sandbox(wall, network=True) as sandbox,
        sandbox.session(functions=[add, add_async]) as session,
    ):
        prepared = await session.run(f"URL = {url!r}\n{TIMING}")
        assert prepared.success, prepared.output
        for _ in range(rounds):
            for way, code in ways.items():
                result = await session.run(code)
                assert result.success, result.output
                found[way].append(result.value)
    return found


def resident() -> int:
    """How many KiB of this process are in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


async def memory(wall: str) -> tuple[int, int]:
    """What a thousand calls leave behind, inside and on the host, in KiB."""
    async with Sandbox(wall, limits=Limits(calls=2000)) as sandbox, sandbox.session(functions=[echo]) as session:
        await session.run(MEMORY)
        before = resident()
        result = await session.run(MEMORY)
        return result.value, resident() - before


def line(name: str, times: list[float], others: list[float], whose: str) -> None:
    """Print a line of the table."""
    ours, theirs = statistics.median(times), statistics.median(others)
    print(f"{name:32} {ours * 1e3:8.3f} ms {theirs * 1e3:8.3f} ms   {theirs / ours:5.1f} times as fast as {whose}")


async def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    parser.add_argument("--wall", default="auto")
    arguments = parser.parse_args()
    gc.disable()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    async with Sandbox(arguments.wall) as sandbox:
        print(f"wall {sandbox.wall}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    found = await measure(arguments.wall, f"http://127.0.0.1:{server.server_port}", arguments.rounds)
    server.shutdown()
    for name in ("sync", "async", "side by side"):
        line(f"call, {name}", found[name], found["request"], "a request")
        line(f"call, {name}", found[name], found["connection"], "a request on an open connection")
    inside, outside = await memory(arguments.wall)
    print(f"a thousand calls leave behind: {inside} KiB inside, {outside} KiB on the host, their log included")


if __name__ == "__main__":
    asyncio.run(main())
