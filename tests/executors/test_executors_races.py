"""What comes at the worst moment: a stop, a cancel or a second call just while something else is under way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from autogen_core import CancellationToken

from coderoom.executors import ExecutorRunner, LocalCodeExecutor, SandboxCodeExecutor
from coderoom.sandbox import Sandbox

from .helpers import python


async def test_a_stop_that_comes_with_the_start_waits_for_it(tmp_path: Path) -> None:
    runner = ExecutorRunner(LocalCodeExecutor(tmp_path))
    starting = asyncio.create_task(runner.start())
    await asyncio.sleep(0)  # The start has been asked for, and has not begun.
    async with asyncio.timeout(20):
        await runner.stop()
        await starting
    execution = await runner.run([python("print(1)")])
    assert execution.output == "1\n"
    await runner.stop()


async def test_a_start_that_comes_with_the_stop_follows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, opened = asyncio.Event(), asyncio.Event()
    stop = LocalCodeExecutor.stop

    async def held(self: LocalCodeExecutor) -> None:
        reached.set()
        await opened.wait()
        await stop(self)

    monkeypatch.setattr(LocalCodeExecutor, "stop", held)
    executor = LocalCodeExecutor(tmp_path)
    runner = ExecutorRunner(executor)
    await runner.start()
    stopping = asyncio.create_task(runner.stop())
    await reached.wait()
    starting = asyncio.create_task(runner.start())
    await asyncio.sleep(0.01)
    opened.set()
    async with asyncio.timeout(20):
        await asyncio.gather(stopping, starting)
    assert executor._started
    await runner.stop()
    assert not executor._started


async def test_a_stop_that_is_cancelled_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    reached, opened = asyncio.Event(), asyncio.Event()
    closed: list[Sandbox] = []
    close = Sandbox.close

    async def held(self: Sandbox) -> None:
        reached.set()
        await opened.wait()
        await close(self)
        closed.append(self)

    monkeypatch.setattr(Sandbox, "close", held)
    executor = SandboxCodeExecutor(wall="none")
    await executor.execute_code_blocks([python("print(1)")], CancellationToken())
    folder = executor.work_dir
    assert folder is not None
    stopping = asyncio.create_task(executor.stop())
    await reached.wait()
    for _ in range(2):
        stopping.cancel()
        await asyncio.sleep(0.01)
    opened.set()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert len(closed) == 1
    assert not folder.exists()
