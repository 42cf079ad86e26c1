"""Calls that a person decides about while their code is at a server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coderoom.outcome import Outcome
from coderoom.sandbox import Limits, RemoteSandbox, while_a_person_decides
from tests.support.sandbox_server import TOKEN, server_process, shared_server


async def decide(seconds: float) -> str:
    """Wait for a person."""
    async with while_a_person_decides():
        await asyncio.sleep(seconds)
    return "yes"


@pytest.mark.slow
async def test_the_code_and_all_time_limits_stand_still() -> None:
    code = (
        "import asyncio, threading, time\nlongest = 0\n"
        "def look():\n    global longest\n    last = time.monotonic()\n    while True:\n"
        "        now = time.monotonic(); longest = max(longest, now - last); last = now\n"
        "threading.Thread(target=look, daemon=True).start()\n"
        "print(await asyncio.gather(decide(2.5), decide(1.5)), longest > 1)\nwhile True: pass"
    )
    limits = Limits(wall_seconds=2, call_seconds=1)
    sandbox = RemoteSandbox(**shared_server(), limits=limits)
    async with sandbox, sandbox.session(functions=[decide]) as session:
        result = await session.run(code)
    assert (result.stdout, result.outcome) == ("['yes', 'yes'] True\n", Outcome.TIMEOUT)


@pytest.mark.slow
async def test_a_server_gives_the_place_to_others_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def ask() -> str:
        """Wait for a person."""
        async with while_a_person_decides():
            waits.set()
            await goes_on.wait()
        return "yes"

    (tmp_path / "tenants.yaml").write_text(f"me: {{token: {TOKEN}, concurrency: 1, decision_seconds: 8}}")
    given = ["--concurrency", "1", "--workers", "1", "--tenants", str(tmp_path / "tenants.yaml")]
    limits = Limits(call_seconds=1)
    with server_process(*given) as url:
        sandbox = RemoteSandbox(url, TOKEN, limits=limits)
        async with sandbox, sandbox.session(functions=[ask]) as session, sandbox.session() as other:
            waiting = asyncio.create_task(session.run("print(await ask())"))
            await waits.wait()
            assert (await other.run("1 + 1")).value == 2
            goes_on.set()
            assert (await waiting).stdout == "yes\n"

            for ending in ("the client leaves", "nobody ever answers"):
                goes_on.clear()
                waits.clear()
                waiting = asyncio.create_task(session.run("print(await ask())"))
                await waits.wait()
                if ending == "the client leaves":
                    waiting.cancel()
                    await asyncio.wait((waiting,))
                    assert (await other.run("1 + 1")).value == 2
            result = await waiting
            assert "TimeoutError: ask() did not answer within 1 seconds" in result.stderr
            assert (await other.run("1 + 1")).value == 2
