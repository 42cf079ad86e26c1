"""The known defects of AutoGen's local executor in the ways that concern it and our local one alone."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from coderoom.executors import ExecutorRunner, LocalCodeExecutor
from coderoom.outcome import Outcome
from tests.executors.helpers import FOREVER, executor_of, python, run, run_once, shell

both = pytest.mark.parametrize("kind", ["local"])


async def test_l3_the_plain_result_says_so_too(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path, timeout=0.5) as executor:
        result = await executor.execute_code_blocks([python(FOREVER)], CancellationToken())
    assert result.exit_code == 124
    assert result.output == "begun\nThe code was stopped after 0.5 seconds: Timeout"


async def test_l4_what_programs_need_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_TIME", "C")
    code = "import os\nfor name in ('LC_TIME', 'PATH'): print(os.environ[name])"
    [locale, path] = (await run_once(LocalCodeExecutor(tmp_path), python(code))).output.splitlines()
    assert locale == "C"
    assert path.endswith(os.environ["PATH"])
    assert "coderoom-" not in path


@both
async def test_l7_a_named_file_in_a_new_folder_knows_its_name(tmp_path: Path, kind: str) -> None:
    execution = await run_once(executor_of(kind, tmp_path), python("# filename: src/deep/a.py\nprint(__file__)"))
    assert execution.output == f"{tmp_path}/src/deep/a.py\n"


async def test_l8_the_same_code_in_parallel_on_one_folder(tmp_path: Path) -> None:
    code = "import os, time; print(os.getcwd()); time.sleep(0.3); print(len(open(__file__).read()))"
    async with LocalCodeExecutor(tmp_path, timeout=30) as one, LocalCodeExecutor(tmp_path, timeout=30) as other:
        runners = [ExecutorRunner(executor) for executor in (one, other) for _ in range(4)]
        executions = await asyncio.gather(*(run(runner, python(code)) for runner in runners))
    assert {execution.output for execution in executions} == {f"{tmp_path}\n{len(code)}\n"}
    assert list(tmp_path.iterdir()) == []


@both
async def test_l9_both_outputs_of_a_shell_are_in_the_order_written(tmp_path: Path, kind: str) -> None:
    execution = await run_once(executor_of(kind, tmp_path), shell("echo 1; echo 2 >&2; echo 3"))
    assert execution.output == "1\n2\n3\n"


async def test_l10_a_program_that_is_not_there_is_an_error_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    (empty / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(empty))
    chosen = tmp_path / "elsewhere" / "python"
    chosen.parent.mkdir()
    chosen.symlink_to(sys.executable)
    executor = LocalCodeExecutor(tmp_path / "work", python=str(chosen))
    execution = await run_once(executor, CodeBlock(code="x", language="javascript"))
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert "'node', which is not installed" in execution.output


def test_l13_no_protection_is_promised_that_is_not_there() -> None:
    text = LocalCodeExecutor.__doc__ or ""
    assert "without isolation" in text
    assert "sanitized" not in text


@both
async def test_l15_output_is_bounded_while_it_is_read(tmp_path: Path, kind: str) -> None:
    code = "while True: print('x' * 1000)"
    execution = await run_once(executor_of(kind, tmp_path, timeout=1), python(code))
    assert execution.outcome is Outcome.TIMEOUT
    assert len(execution.output) < 1_100_000
    assert execution.total_chars > len(execution.output)
    assert execution.whole_output is not None
    assert execution.whole_output.stat().st_size <= 64 << 20
