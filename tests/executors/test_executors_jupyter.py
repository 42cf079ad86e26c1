"""AutoGen's Jupyter executor through `ExecutorRunner`, with a real kernel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from autogen_ext.code_executors.jupyter import JupyterCodeExecutor

from coderoom.executors import ExecutorRunner
from coderoom.outcome import Outcome
from tests.executors.helpers import python, run, until

# AutoGen's executor leaves sockets of a kernel that it restarts to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


@pytest.fixture
async def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutorRunner]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").mkdir()
    runner = ExecutorRunner(JupyterCodeExecutor(timeout=3, output_dir=tmp_path / "output"))
    yield runner
    await runner.stop()


async def test_its_cells_share_a_kernel_until_a_restart(runner: ExecutorRunner) -> None:
    assert (await run(runner, python("x = 1\nprint('first')"), python("print(x + 1)"))).output == "first\n\n2\n"
    result = await run(runner, python("x / 0"), python("print('never')"))
    assert (result.outcome, result.exit_code) == (Outcome.ERROR, 1)
    assert "ZeroDivisionError" in result.output
    await runner.restart()
    assert "NameError" in (await run(runner, python("x"))).output


async def test_a_timeout_is_an_outcome(runner: ExecutorRunner) -> None:
    result = await run(runner, python("import time\ntime.sleep(30)"))
    assert (result.outcome, result.exit_code) == (Outcome.TIMEOUT, 124)


async def test_a_cancelled_run_is_not_waited_for(runner: ExecutorRunner, tmp_path: Path) -> None:
    task = asyncio.create_task(runner.run([python("open('ready', 'w').close()\nimport time; time.sleep(30)")]))
    await until((tmp_path / "ready").exists)
    task.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task
