# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Output that nobody asked for: very much, in very small pieces, of a strange kind, and after the cell has ended."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from coderoom.sandbox import ExecutionResult, Sandbox

from .conftest import Caged
from .hostside import resident, still_works, watched
from .inside import CHANNEL

BOMBS = {
    "long lines": "while True: print('x' * 10_000_000)",
    "short lines": "while True: print()",
    "no lines": "import sys\nwhile True: sys.stdout.write('x')",
    "both streams": "import sys\nwhile True: print('x'); print('y', file=sys.stderr)",
    "a descriptor": "import os\nwhile True: os.write(1, b'x' * 65536)",
    "single bytes": "import os\nwhile True: os.write(1, b'x'); os.write(2, b'y')",
    "no text": "import os\nwhile True: os.write(1, bytes(range(256)) * 200)",
    "half a character": "import os\nwhile True: os.write(1, b'\\xf0\\x9f'); os.write(2, b'\\xf0')",
    "zeros": "import os\nwhile True: os.write(1, bytes(65536))",
    "many processes": "import os\nfor _ in range(20): os.fork() or os.execlp('yes', 'yes')\nwhile True: pass",
    "small packets": CHANNEL + "while True: packet(b'x', b'o'); packet(b'y', b'e')",
    "packets of nothing": CHANNEL + "while True: packet(b'', b'o')",
    "contents": CHANNEL + "while True: packet(b'x' * 60000, b'c')",
    "an exception": "class E(Exception):\n    def __str__(self): return 'x' * 200_000_000\nraise E",
    "a repr": "class R:\n    def __repr__(self): return 'x' * 200_000_000\nR()",
    "a deep value": "x = []\nfor _ in range(100_000): x = [x]\nx",
    "a wide value": "[[]] * 3_000_000",
    "a large number": "10 ** 4_000_000",
    "escapes": "while True: print('\\x1b[2J\\x1b]0;x\\x07' * 1000)",
}


def size_of(result: ExecutionResult) -> int:
    error = result.error
    told = [result.stdout, result.stderr, result.output, result.value_repr or ""]
    return sum(map(len, told + ([] if error is None else [error.message, error.traceback, error.type])))


async def explode(wall: str, code: str) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox:
        await sandbox.run("1")
        begin = time.monotonic()
        result, blocked, grown = await watched(sandbox.run(code, timeout=0.5))
        seconds = time.monotonic() - begin
        for text in (result.stdout, result.stderr, result.output, repr(result.error)):
            text.encode()
        return {
            "seconds": seconds,
            "blocked": blocked,
            "grown": grown,
            "size": size_of(result),
            "outcome": result.outcome.value,
            "works": await still_works(sandbox),
        }


@pytest.mark.parametrize("name", BOMBS)
def test_output_is_bounded(caged_once: Caged, name: str) -> None:
    found = caged_once(explode, BOMBS[name])
    assert found["works"]
    assert found["seconds"] < 10, found
    assert found["blocked"] < 3, found
    assert found["grown"] < 100, found  # MiB
    assert found["size"] < 6 << 20, found


AFTERWARDS = {
    "a thread": "import os, threading\ndef f():\n    while True: os.write(1, b'x' * 65536)\nthreading.Thread(target=f, daemon=True).start()",
    "a process": "import os\nif not os.fork():\n    while True: os.write(1, b'x' * 65536)",
    "a thread that prints": "import threading\ndef f():\n    while True: print('x' * 1000)\nthreading.Thread(target=f, daemon=True).start()",
    "small packets": CHANNEL
    + "def f():\n    while True: packet(b'x', b'o')\nthreading.Thread(target=f, daemon=True).start()",
}


async def go_on(wall: str, code: str) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox, sandbox.session() as session:
        async for item in session.stream(code, timeout=10):
            last = item
        assert isinstance(last, ExecutionResult), last
        before, size = resident(), last.output_size
        await asyncio.sleep(1)  # Somebody thinks about what to do next.
        grown = resident() - before
        again = await session.run("1 + 1", timeout=5)
        return {
            "grown": grown,
            "size": size,
            "later": last.output_size,
            "again": again.value,
            "works": await still_works(sandbox),
        }


@pytest.mark.parametrize("name", AFTERWARDS)
def test_output_between_cells_is_bounded(caged_once: Caged, name: str) -> None:
    found = caged_once(go_on, AFTERWARDS[name])
    assert found["works"]
    assert found["again"] == 2, found
    assert found["grown"] < 100, found  # MiB


async def neglect(wall: str) -> int:
    """A stream that somebody looks at now and then."""
    async with Sandbox(wall) as sandbox, sandbox.session() as session:
        before = most = resident()
        count = 0
        async for _ in session.stream("import os\nwhile True: os.write(1, b'x' * 65536)", timeout=4):
            count += 1
            if count % 10 == 0:
                await asyncio.sleep(0.3)
            most = max(most, resident())
            if count > 100:
                break
        return most - before


def test_a_stream_that_nobody_reads_is_bounded(caged_once: Caged) -> None:
    assert caged_once(neglect) < 150  # MiB: 256 pieces of 64 KiB, each kept in a few places.
