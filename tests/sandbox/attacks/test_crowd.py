"""Fifty attackers at once, while an innocent session goes on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox import Limits, Sandbox

from .conftest import Caged
from .hostside import all_gone, still_works, watched
from .inside import CHANNEL

MIB = 1 << 20
ATTACKS = [
    "while True: pass",
    "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "while True: print('x' * 10000)",
    "import os\nwhile True: os.write(1, b'x' * 65536)",
    "n = 0\nwhile True:\n    open('/tmp/%d' % n, 'wb').write(b'x' * 1000000); n += 1",
    "import os\nos.closerange(0, 65536)",
    "import os\nos.kill(-1, 9)",
    CHANNEL + "while True: tell(event='done', id=number + 1)",
    CHANNEL + "while True: packet(b'x' * 60000, b'm')",
]


async def crowd(wall: str, count: int) -> dict[str, Any]:
    limits = Limits(memory_bytes=64 * MIB, processes=16, disk_bytes=16 * MIB, wall_seconds=3)
    values: list[Any] = []
    slowest = 0.0

    async def attack(sandbox: Sandbox, number: int) -> str:
        try:
            return (await sandbox.run(ATTACKS[number % len(ATTACKS)])).outcome.value
        except SandboxUnavailable as error:
            return str(error)

    async def work(sandbox: Sandbox) -> list[str]:
        nonlocal slowest
        async with innocents.session() as session, sandbox.session() as neighbour:
            await session.run("x = 0")
            await neighbour.run("x = 0")
            attacks = [asyncio.ensure_future(attack(sandbox, number)) for number in range(count)]
            while not all(task.done() for task in attacks):
                for one in (session, neighbour):
                    begin = time.monotonic()
                    result = await one.run("x += 1\nx", timeout=30)
                    slowest = max(slowest, time.monotonic() - begin)
                    values.append(result.value)
                await asyncio.sleep(0.05)
            return [await task for task in attacks]

    async with Sandbox(wall, limits=limits) as sandbox, Sandbox(wall) as innocents:
        outcomes, blocked, grown = await watched(work(sandbox))
        works = await still_works(sandbox) and await still_works(innocents)
    return {
        "outcomes": sorted(set(outcomes)),
        "values": values,
        "slowest": slowest,
        "blocked": blocked,
        "grown": grown,
        "works": works,
        "left": await all_gone(),
    }


def test_an_innocent_session_goes_on(caged_once: Caged) -> None:
    found = caged_once(crowd, 50, seconds=110, memory=12 << 30, processes=1500)
    assert found["works"]
    expected = [number for pair in range(1, len(found["values"]) // 2 + 1) for number in (pair, pair)]
    assert found["values"] == expected, found
    assert len(found["values"]) > 4
    assert set(found["outcomes"]) <= {"ok", "error", "timeout", "memory"}, found
    assert found["left"] == []
    # Fifty programs that use all they can get leave little of two processors.
    assert found["slowest"] < 20, found
    assert found["blocked"] < 3, found
    assert found["grown"] < 400, found
