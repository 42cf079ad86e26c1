"""The engine `monty`: its start, its end, and its workers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox, SandboxUnavailable
from tests.support.commands import ROOT

from .looking import busy, children


async def settled(pids: list[int]) -> bool:
    """Whether all these processes have ended, after some patience."""
    for _ in range(500):
        if not any(is_alive(pid) for pid in pids):
            return True
        await asyncio.sleep(0.01)
    return False


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class TestProcesses:
    async def test_nothing_is_left_after_closing(self) -> None:
        before = children()
        sandbox = Sandbox(engine="monty")
        sessions = [sandbox.session() for _ in range(3)]
        running = [asyncio.ensure_future(session.run("while True: pass")) for session in sessions]
        await asyncio.sleep(0.3)
        started = children() - before
        assert len(started) >= 4
        await sandbox.close()
        await sandbox.close()
        assert [(await cell).outcome for cell in running] == [Outcome.CANCELLED] * 3
        assert await settled(list(started))
        for session in sessions:
            with pytest.raises(RequestError, match="closed"):
                await session.run("1")

    @pytest.mark.slow
    async def test_they_end_with_the_host(self) -> None:
        host = subprocess.Popen([sys.executable, "-c", _HOST], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert host.stdout is not None
        with host.stdout:
            pids = [int(pid) for pid in (await asyncio.to_thread(host.stdout.readline)).split()]
        assert len(pids) >= 3
        host.kill()
        host.wait()
        assert await settled(pids)

    async def test_a_worker_that_dies_is_our_failure(self) -> None:
        before = children()
        async with Sandbox(engine="monty") as sandbox, sandbox.session() as session:
            await session.run("x = 1")
            cell = asyncio.ensure_future(session.run("x = 2\nwhile True: pass"))
            await asyncio.sleep(0.3)
            os.kill(busy(children() - before), signal.SIGKILL)
            with pytest.raises(SandboxUnavailable, match="as they were before this cell"):
                await cell
            assert (await session.run("x")).value == 1
            assert not (await session.run("1")).state_lost


class TestStarting:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"network": True}, "network=True"),
            ({"python": "/usr/bin/python3"}, "python="),
            ({"readable": ["/data"]}, "readable="),
            ({"options": {"image": "x"}}, "options="),
            ({"preload": ["json", "numpy"]}, r"preload=\['numpy'\]"),
            ({"policy": "strict"}, "no policy 'strict'"),
        ],
    )
    def test_what_it_cannot_do(self, arguments: dict[str, Any], says: str) -> None:
        with pytest.raises(RequestError, match=says):
            Sandbox(engine="monty", **arguments)

    def test_what_is_missing_is_said_and_nothing_is_imported_before(self) -> None:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", _START], capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        imported, *said = done.stdout.split("---\n")
        assert imported == "[]\n"
        for text, says in zip(
            said,
            [
                "MissingDependencyError: The engine 'monty' needs pydantic-monty",
                "SandboxUnavailable: The engine 'monty' cannot be started",
                "SandboxUnavailable: The engine 'monty' cannot be started",
            ],
            strict=True,
        ):
            assert text.startswith(says), done
            assert "pip install 'coderoom[monty]'" in text


_HOST = """
import asyncio, os, sys
from tests.sandbox.monty.looking import children
from coderoom.sandbox import Sandbox

async def main():
    sandbox = Sandbox(engine="monty")
    cells = [asyncio.ensure_future(sandbox.session().run("while True: pass")) for _ in range(2)]
    await asyncio.sleep(0.5)
    print(*children(), flush=True)
    await asyncio.gather(*cells)

asyncio.run(main())
"""
_START = """
import asyncio, os, sys
from coderoom.sandbox import Sandbox
def start():
    print("---")
    try:
        asyncio.run(Sandbox(engine="monty").start())
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
Sandbox(engine="monty")
print([name for name in sys.modules if name.startswith(("autogen", "pydantic_monty"))])
sys.modules["pydantic_monty"] = None
start()
del sys.modules["pydantic_monty"]
for os.environ["MONTY_BIN"] in ("/bin/false", "/no/such"):
    start()
"""
