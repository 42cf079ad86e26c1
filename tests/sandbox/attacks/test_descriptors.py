# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Code that closes, replaces or uses up its descriptors, and code that looks for somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, open_files, still_works
from .inside import CHANNEL

LOOK = """
import os
found = {}
for name in os.listdir("/proc/self/fd"):
    try: found[int(name)] = os.readlink("/proc/self/fd/" + name).split(":")[0]
    except OSError: pass
sorted(found.values())
"""
BREAK = {
    "all": "import os\nos.closerange(0, 65536)",
    "all but the channel": "import os\nos.closerange(0, sock.fileno()); os.closerange(sock.fileno() + 1, 65536)",
    "standard output": "import os\nos.close(1); os.close(2)\nprint('x')",
    "the channel": "os.close(sock.fileno())",
    "another one in its place": "one, other = socket.socketpair()\nos.dup2(one.fileno(), sock.fileno())",
    "a file in its place": "os.dup2(os.open('/dev/null', os.O_RDWR), sock.fileno())",
    "shut down": "sock.shutdown(socket.SHUT_RDWR)",
    "shut down for reading": "sock.shutdown(socket.SHUT_RD)",
    "shut down for writing": "sock.shutdown(socket.SHUT_WR)",
    "never waits": "sock.setblocking(False)",
    "a short wait": "sock.settimeout(0.001)",
    "packets in a pipe": "import fcntl\nfor fd in (1, 2): fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)\nfor _ in range(5000): os.write(1, b'x')",
    "a pipe that never waits": "os.set_blocking(1, False)\ntry:\n    while True: os.write(1, b'x' * 4096)\nexcept OSError: pass",
    "a larger pipe": "import fcntl\nfor fd in (1, 2): fcntl.fcntl(fd, 1031, 1 << 20)\nos.write(1, b'x' * 1000000)",
    "a pipe that is read": "f = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)\nos.write(1, b'x')\ntry: os.read(f, 1)\nexcept OSError: pass",
    "all used up": "keep = []\ntry:\n    while True: keep.append(os.open('/dev/null', os.O_RDONLY))\nexcept OSError: pass",
    "no limit left": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
    "signals about them": "import fcntl\nfor fd in (1, 2, sock.fileno()):\n    fcntl.fcntl(fd, fcntl.F_SETOWN, 1)\n    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC)",
}


async def look(wall: str) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox, sandbox.session() as session:
        await session.run("1")
        fresh = (await attempt(session, LOOK))["value"]
        mark = await session.checkpoint()
        await session.rollback(mark)
        back = (await attempt(session, LOOK))["value"]
        once = (await attempt(sandbox, LOOK))["value"]
        program = await attempt(session, "ls -l /proc/self/fd", language="sh")
        return {"fresh": fresh, "back": back, "once": once, "program": program["output"]}


def test_nobody_elses_descriptors_are_there(caged: Caged) -> None:
    found = caged(look)
    own = ["/dev/null", "/proc/", "pipe", "pipe", "pipe", "pipe", "socket"]
    for which in ("fresh", "back", "once"):
        kinds = ["/proc/" if kind.startswith("/proc/") else kind for kind in found[which]]
        # The folder that was listed may be gone by then; what reads input, prints and answers is all there is.
        assert [kind for kind in kinds if kind != "/proc/"] == [kind for kind in own if kind != "/proc/"], found
    assert "socket:" not in found["program"]


async def damage(wall: str, code: str) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox:
        await sandbox.run("1")
        async with sandbox.session() as session:
            await session.run("x = 1")
            mark = await session.checkpoint()
            kept = await attempt(session, CHANNEL + code, 2)
            next_cell = await attempt(session, "1 + 1", 2)
            await session.rollback(mark)
            back = (await attempt(session, "x", 2))["value"]
        once = await attempt(sandbox, CHANNEL + code, 2)
        works = await still_works(sandbox)
    return {"kept": kept, "next": next_cell, "back": back, "once": once, "works": works, "open": open_files()}


@pytest.mark.parametrize("name", BREAK)
def test_only_its_own_state_is_damaged(caged: Caged, name: str) -> None:
    found = caged(damage, BREAK[name])
    assert found["works"]
    assert found["back"] == 1
    assert found["open"] < 20, found
