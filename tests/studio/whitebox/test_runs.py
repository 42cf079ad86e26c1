"""Which processes are ended that servers have left."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from typing import Any

import pytest

from coderoom._util import owner
from coderoom.studio.marks import end_orphans
from coderoom.studio.runs import RunsLoop


@pytest.fixture
def mark() -> str:
    """That of a server that is gone."""
    code = "from coderoom._util import owner; print(owner.ours())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_what_a_dead_server_has_left_is_ended_and_nothing_else(mark: str) -> None:
    marks = {"left": mark, "of a run": f"{mark} 7", "nobody's": None, "no mark": "some words"}
    begun = {}
    for name, value in marks.items():
        environment = {**os.environ, **({} if value is None else {"CODEROOM_STUDIO": value})}
        begun[name] = subprocess.Popen(["sleep", "600"], env=environment)
    try:
        end_orphans()
        assert [begun[name].wait(10) for name in ("left", "of a run")] == [-9, -9]
        assert [begun[name].poll() for name in ("nobody's", "no mark")] == [None, None]
    finally:
        for process in begun.values():
            process.kill()
            process.wait()


FROM_THERE = """
from coderoom.studio import marks
marks.owner.is_orphan = lambda mark: mark == "{mark}"
marks.end_orphans()
print(42)
"""


def test_who_was_started_from_there_does_not_end_itself() -> None:
    mark = owner.ours()  # Of a living process, so that no other server of this machine ends them.
    inner = shlex.join([sys.executable, "-c", FROM_THERE.format(mark=mark)])
    environment = {**os.environ, "CODEROOM_STUDIO": mark}
    done = subprocess.run(["sh", "-c", f"{inner}; true"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_a_look_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    looks = 0

    def going() -> list[Any]:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise OSError("no more descriptors")
        return []

    async def look(loop: RunsLoop) -> None:
        looking = asyncio.create_task(loop.end_runs(going))
        async with asyncio.timeout(10):
            while looks < 3:
                await asyncio.sleep(0.05)
        looking.cancel()

    loop = RunsLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(look(loop))
    assert "no more descriptors" in caplog.text
