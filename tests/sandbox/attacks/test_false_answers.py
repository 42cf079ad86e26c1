# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""A worker that says it is done and is not, that never reads, and that plays the checkpoint that it was asked to make."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import attempt, still_works
from .inside import CHANNEL

NOT_DONE = "done(value=1)\nwhile True: pass"


async def next_cell(wall: str, size: int) -> dict[str, Any]:
    async with Sandbox(wall) as sandbox:
        async with sandbox.session() as session:
            first = await attempt(session, CHANNEL + NOT_DONE, 5)
            begin = time.monotonic()
            try:
                async with asyncio.timeout(15):
                    found = await attempt(session, "#" * size + "\n1 + 1", 1)
            except TimeoutError:
                found = {"hung": True}
            seconds = time.monotonic() - begin
            again = await attempt(session, "1 + 1", 5) if "hung" not in found else {}
        return {
            "first": first,
            "found": found,
            "seconds": seconds,
            "again": again.get("value"),
            "works": await still_works(sandbox),
        }


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_cell_for_a_worker_that_does_not_read(caged: Caged, size: int) -> None:
    found = caged(next_cell, size)
    assert found["works"]
    assert found["seconds"] < 10, found
    assert found["again"] == 2


PLAY = """
runner = next(item for item in gc.get_objects() if type(item).__name__ == "Runner" and type(item).__module__.startswith("coderoom_guest"))
def play(fd):
    other = socket.socket(fileno=fd)
    def say(**message):
        other.send(key + b"M" + json.dumps(message).encode())
    SAY
    while True:
        data, fds = socket.recv_fds(other, 65536, 8)[:2]
        if not data: break
        kept.extend(fds)
        REPLY
kept = []
type(runner)._checkpoint = lambda self, fd, *_: threading.Thread(target=play, args=(fd,), daemon=True).start()
"""
PLAYS = {
    "a wrong pid": ("say(event='holding', pid='x')", "pass"),
    "no pid": ("say(event='holding', pid=None)", "pass"),
    "never ready": ("say(event='holding', pid=os.getpid())", "pass"),
    "ended at once": (
        "say(event='holding', pid=os.getpid())",
        "say(event='ended', id=json.loads(data[9:])['id'], status='x', limit=[])",
    ),
    "an end of nothing": (
        "say(event='holding', pid=os.getpid())\n    say(event='ended', id='x')\n    say(event='ended', id=None)",
        "pass",
    ),
    "failed": ("say(event='failed', error=['x'])", "pass"),
    "garbage": ("other.send(b'')", "pass"),
}


async def play(wall: str, say: str, reply: str) -> dict[str, Any]:
    found: dict[str, Any] = {"raised": []}
    async with Sandbox(wall) as sandbox:
        async with sandbox.session() as session:
            code = PLAY.replace("SAY", say).replace("REPLY", reply)
            await attempt(session, CHANNEL + code, 5)
            begin = time.monotonic()
            try:
                mark = await session.checkpoint()
                await session.rollback(mark)
            except (RequestError, SandboxUnavailable) as error:
                found["raised"].append(str(error))
            found["seconds"] = time.monotonic() - begin
            found["again"] = (await attempt(session, "1 + 1", 5))["value"]
        found["works"] = await still_works(sandbox)
    return found


async def all_plays(wall: str) -> dict[str, Any]:
    found = await asyncio.gather(*(play(wall, *each) for each in PLAYS.values()))
    return dict(zip(PLAYS, found, strict=True))


def test_a_checkpoint_that_is_none(caged: Caged) -> None:
    for name, found in caged(all_plays).items():
        assert found["works"], name
        assert found["again"] == 2, name
        assert found["seconds"] < 30, name
