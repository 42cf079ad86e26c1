"""Memory that the kernel has on behalf of code, and that belongs to no process."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox import Limits, Sandbox

from .conftest import Caged
from .hostside import attempt, still_works
from .test_limits_together import used

MIB = 1 << 20
BOMBS = {
    "locks": """
import ctypes, os, struct
libc = ctypes.CDLL(None)
f = os.open("/tmp/f", os.O_CREAT | os.O_RDWR)
n = 1 << 40
lock = ctypes.create_string_buffer(32)
while True:
    n -= 2
    struct.pack_into("hhxxxxqqi", lock, 0, 1, 0, n, 1, 0)
    if libc.fcntl(f, 6, lock): break
""",
    "tables of pages": """
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
while True:
    place = libc.mmap(None, 1 << 30, 1, 0x4022, -1, 0)
    if place in (None, (1 << 64) - 1): break
    for offset in range(0, 1 << 30, 1 << 21): ctypes.string_at(place + offset, 1)
import time
time.sleep(10)
""",
    "pipes": """
import fcntl, os, time
for _ in range(40):
    if not os.fork():
        try:
            while True:
                r, w = os.pipe()
                os.set_blocking(w, False)
                try: fcntl.fcntl(w, 1031, 1 << 20)
                except OSError: pass
                try:
                    while True: os.write(w, b"x" * 4096)
                except BlockingIOError: pass
        except OSError: pass
        time.sleep(20)
time.sleep(20)
""",
    "events": """
import os, select, time
for _ in range(40):
    if not os.fork():
        try:
            polls = [select.epoll() for _ in range(100)]
            pipes = [os.pipe()[0] for _ in range(60)]
            for poll in polls:
                for pipe in pipes: poll.register(pipe)
        except OSError: pass
        time.sleep(20)
time.sleep(20)
""",
    "areas of memory": """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
for _ in range(40):
    if not os.fork():
        for n in range(60_000): libc.mmap(None, 4096, n % 2, 0x4022, -1, 0)
        time.sleep(20)
time.sleep(20)
""",
    "timers": """
import ctypes, os, time
libc = ctypes.CDLL(None)
for _ in range(40):
    if not os.fork():
        t = ctypes.c_int()
        while libc.timer_create(0, None, ctypes.byref(t)) == 0: pass
        time.sleep(20)
time.sleep(20)
""",
}


async def fill(wall: str, code: str) -> dict[str, Any]:
    limits = Limits(memory_bytes=128 * MIB, disk_bytes=16 * MIB, wall_seconds=2)
    async with Sandbox(wall, limits=limits) as sandbox:
        async with sandbox.session() as session:
            await session.run("1")
            before, most = used(), 0
            task = asyncio.ensure_future(attempt(session, code))
            while not task.done():
                await asyncio.sleep(0.02)
                most = max(most, used() - before)
            try:
                found = await task
            except SandboxUnavailable as error:
                found = {"raised": str(error)}
        return {"found": found, "most": most // MIB, "works": await still_works(sandbox)}


@pytest.mark.parametrize("name", BOMBS)
def test_the_kernels_memory_is_bounded(caged_once: Caged, name: str) -> None:
    found = caged_once(fill, BOMBS[name], memory=4 << 30)
    assert found["works"]
    assert found["most"] < 128 + 400, found
