# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Many processes, each below the limit; memory and time that nobody seems to have; cells after a rollback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox import Limits, Sandbox

from .conftest import Caged
from .hostside import attempt, still_works

MIB = 1 << 20
MEMORY = {
    "one process": "x = []\nwhile True: x.append(bytearray(8 << 20))",
    "many processes": """
import os, time
for _ in range(30):
    if not os.fork():
        x = bytearray(100 << 20)
        time.sleep(30)
time.sleep(30)""",
    "shared memory": """
import mmap, os, time
m = mmap.mmap(-1, 100 << 20)
parts = [mmap.mmap(-1, 100 << 20) for _ in range(3)]
for part in parts: part.write(b"x" * (100 << 20))
time.sleep(30)""",
    "shared memory that is let go": """
import mmap, os, time
for _ in range(20):
    if not os.fork():
        parts = [mmap.mmap(-1, 64 << 20) for _ in range(10)]
        for part in parts:
            for begin in range(0, 64 << 20, 1 << 20):
                part[begin:begin + (1 << 20)] = b"x" * (1 << 20)
                part.madvise(mmap.MADV_DONTNEED, begin, 1 << 20)
        time.sleep(30)
time.sleep(30)""",
    "programs": """
import os, sys, time
for _ in range(40):
    if not os.fork():
        os.execv(sys.executable, [sys.executable, "-S", "-c", "x = bytearray(%d)\\nimport time\\ntime.sleep(30)" % SIZE])
time.sleep(30)""",
    "sockets": """
import os, socket, time
for _ in range(50):
    if not os.fork():
        pairs = []
        try:
            while True:
                pairs.append(socket.socketpair())
                for one in pairs[-1]:
                    try: one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
                    except OSError: pass
                    one.setblocking(False)
                    try:
                        while True: one.send(b"x" * 60000)
                    except BlockingIOError: pass
        except OSError: pass
        time.sleep(30)
time.sleep(30)""",
    "names": """
import os, time
for place in ("/tmp", "/dev/shm", "/workspace"):
    if not os.fork():
        n = 0
        os.chdir(place)
        try:
            while True:
                os.mknod("%0200d" % n); n += 1
        except OSError: pass
        time.sleep(30)
time.sleep(30)""",
}


def used(group: str = "memory") -> int:
    """What the cage uses, kernel memory included and what could be given back not."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if group in controllers.split(","):
            folder = Path("/sys/fs/cgroup", group, path.lstrip("/"))
            usage = int((folder / "memory.usage_in_bytes").read_text())
            facts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return usage - int(facts["total_inactive_file"]) - int(facts["total_active_file"])
    return 0


async def fill(wall: str, code: str, after_rollback: bool) -> dict[str, Any]:
    limits = Limits(memory_bytes=256 * MIB, disk_bytes=64 * MIB, wall_seconds=3)
    async with Sandbox(wall, limits=limits) as sandbox:
        async with sandbox.session() as session:
            await session.run("1")
            if after_rollback:
                await session.rollback(await session.checkpoint())
            before = used()
            task = asyncio.ensure_future(attempt(session, code))
            most = 0
            while not task.done():
                await asyncio.sleep(0.02)
                most = max(most, used() - before)
            try:
                found = await task
            except SandboxUnavailable as error:
                found = {"raised": str(error)}
        return {"found": found, "most": most // MIB, "works": await still_works(sandbox)}


@pytest.mark.parametrize(
    ("name", "after_rollback"),
    [*((name, False) for name in MEMORY), ("one process", True), ("many processes", True)],
)
def test_memory_is_bounded(caged_once: Caged, name: str, after_rollback: bool) -> None:
    code = f"SIZE = {20 * MIB}\n{MEMORY[name]}"
    found = caged_once(fill, code, after_rollback, memory=8 << 30, seconds=100)
    assert found["works"]
    # The limit, three places in memory, and what can be had between two looks.
    assert found["most"] < 256 + 3 * 64 + 512, found
    assert "raised" not in found["found"], found


TIME = {
    "one process": "while True: pass",
    "one after the other": """
import os, time
while True:
    end = time.process_time() + 0.2
    while time.process_time() < end: pass
    if os.fork(): os._exit(0) if os.getpid() != FIRST else time.sleep(60)
""",
    "many": "import os\nfor _ in range(3): os.fork()\nwhile True: pass",
}


async def spend(wall: str, code: str, after_rollback: bool) -> dict[str, Any]:
    async with Sandbox(wall, limits=Limits(cpu_seconds=1, wall_seconds=12)) as sandbox:
        async with sandbox.session() as session:
            await session.run("1")
            if after_rollback:
                await session.rollback(await session.checkpoint())
            try:
                found = await attempt(session, f"import os\nFIRST = os.getpid()\n{code}")
            except SandboxUnavailable as error:
                found = {"raised": str(error)}
        return {"found": found, "works": await still_works(sandbox)}


@pytest.mark.parametrize("after_rollback", [False, True], ids=["fresh", "after a rollback"])
@pytest.mark.parametrize("name", TIME)
def test_processor_time_is_bounded(caged: Caged, name: str, after_rollback: bool) -> None:
    found = caged(spend, TIME[name], after_rollback)
    assert found["works"]
    assert found["found"].get("limit") == "cpu", found
