"""What is mended of AutoGen's Jupyter executor when `ExecutorRunner` runs it, with a real kernel."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.jupyter import JupyterCodeExecutor

from coderoom.executors import ExecutorRunner
from coderoom.outcome import Outcome
from tests.executors.helpers import python, run, shell, until

STUBBORN = """
import os, time
open("ready", "w").write(str(os.getpid()))
while True:
    try:
        time.sleep(1)
    except KeyboardInterrupt:
        print("no")
"""


@pytest.fixture
async def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ExecutorRunner]:
    monkeypatch.chdir(tmp_path)
    runner = ExecutorRunner(JupyterCodeExecutor(timeout=3, output_dir=tmp_path / "output"))
    yield runner
    await runner.stop()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_its_cells_share_a_kernel_until_a_restart(runner: ExecutorRunner) -> None:
    execution = await run(runner, python("x = 1\nprint('first')\nx"), python("x + 1"))
    assert (execution.outcome, execution.exit_code, execution.output) == (Outcome.OK, 0, "first\n\n1\n2\n")
    execution = await run(runner, python("print('a')\nx / 0"), python("print('never')"))
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert execution.output.startswith("a\n")
    assert "ZeroDivisionError" in execution.output
    assert "never" not in execution.output
    await runner.restart()
    assert "NameError" in (await run(runner, python("x"))).output


async def test_what_comes_in_pieces_is_one_text(runner: ExecutorRunner) -> None:
    code = "import sys, time\nfor n in range(4):\n    print(n, end='', flush=True)\n    time.sleep(0.3)\nprint('.')"
    assert (await run(runner, python(code))).output == "0123.\n"


async def test_a_timeout_is_an_outcome_and_the_kernel_goes_on(runner: ExecutorRunner) -> None:
    await run(runner, python("x = 1"))
    execution = await run(runner, python("print('begun')\nwhile True: pass"))
    assert (execution.outcome, execution.exit_code) == (Outcome.TIMEOUT, 124)
    assert execution.output.startswith("begun\n")
    assert "KeyboardInterrupt" in execution.output
    assert (await run(runner, python("print(x)"))).output == "1\n"


async def test_code_that_is_deaf_to_an_interrupt_costs_the_kernel(runner: ExecutorRunner, tmp_path: Path) -> None:
    execution = await run(runner, python(STUBBORN))
    assert execution.outcome is Outcome.TIMEOUT
    assert "did not stop when it was interrupted" in execution.output
    assert not is_alive(int((tmp_path / "ready").read_text()))
    assert (await run(runner, python("print(1)"))).output == "1\n"


@pytest.mark.parametrize("code", ["open('ready', 'w').close()\nwhile True: pass", STUBBORN])
async def test_a_cancel_ends_the_code(runner: ExecutorRunner, tmp_path: Path, code: str) -> None:
    task = asyncio.create_task(runner.run([python(code)]))
    await until((tmp_path / "ready").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await run(runner, python("print(1)"))).output == "1\n"


async def test_a_stop_during_a_cancel_leaves_no_kernel(runner: ExecutorRunner, tmp_path: Path) -> None:
    task = asyncio.create_task(runner.run([python(STUBBORN)]))
    await until(lambda: (tmp_path / "ready").exists() and (tmp_path / "ready").read_text() != "")
    await runner.stop()
    assert (await task).outcome is Outcome.CANCELLED
    assert not is_alive(int((tmp_path / "ready").read_text()))
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    assert not any("ipykernel" in Path(f"/proc/{child}/cmdline").read_text() for child in children)


async def test_a_kernel_that_dies_is_an_error_of_the_code(runner: ExecutorRunner) -> None:
    code = "import os, time\nprint('begun', flush=True)\ntime.sleep(0.5)\nos._exit(3)"
    execution = await run(runner, python(code))
    assert execution.outcome is Outcome.ERROR
    assert execution.exit_code != 0
    assert execution.output.startswith("begun\n[The kernel died")
    assert (await run(runner, python("print(1)"))).output == "1\n"


@pytest.mark.parametrize("language", ["sh", "cobol", ""])
async def test_an_unknown_language_is_an_error_of_the_code(runner: ExecutorRunner, language: str) -> None:
    execution = await run(runner, python("print(1)"), CodeBlock(code="echo 1", language=language))
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert execution.output.startswith(f"1\nUnknown language '{language}': this kernel runs python")


async def test_output_is_bounded_and_the_whole_is_in_a_file(runner: ExecutorRunner, tmp_path: Path) -> None:
    execution = await run(runner, python("for n in range(50): print('é' * 100_000)\nprint('last')"))
    assert execution.outcome is Outcome.OK
    assert len(execution.output) < 2_000_000
    assert execution.output.endswith("last\n")
    assert execution.total_chars == 50 * 100_001 + 5
    assert execution.whole_output is not None
    assert execution.whole_output.is_relative_to(tmp_path / "output")
    assert execution.whole_output.read_text("utf-8") == ("é" * 100_000 + "\n") * 50 + "last\n"


async def test_runs_at_once_take_turns(runner: ExecutorRunner) -> None:
    executions = await asyncio.gather(*(run(runner, python(f"print({n})")) for n in range(5)))
    assert [execution.output for execution in executions] == [f"{n}\n" for n in range(5)]


async def test_its_temporary_folder_goes_if_it_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    executor = JupyterCodeExecutor()
    runner = ExecutorRunner(executor)
    for code in ("print(1)", "from IPython.display import HTML, display\ndisplay(HTML('<p>'))"):
        assert (await run(runner, python(code))).outcome is Outcome.OK
        await runner.stop()
        assert executor.output_dir.exists() is ("HTML" in code)


async def test_a_kernel_that_was_started_before_is_used_as_it_is_and_stopped(tmp_path: Path) -> None:
    async with JupyterCodeExecutor(output_dir=tmp_path) as executor:
        kernel = executor._client
        runner = ExecutorRunner(executor)
        assert (await run(runner, python("print(1)"), shell("echo"))).outcome is Outcome.ERROR
        assert executor._client is kernel
        await runner.stop()
        assert not executor._started
