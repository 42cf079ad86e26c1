"""The known defects of AutoGen's local executor, none of which ours has; most are mended for AutoGen's own as well."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor

from coderoom.executors import Execution, ExecutorRunner, LocalCodeExecutor
from coderoom.outcome import Outcome
from tests.executors.helpers import DEAF, FOREVER, TREE, all_gone, python, raw_local, run, shell, until

both = pytest.mark.parametrize("kind", ["ours", "autogen"])


def executor_of(kind: str, folder: Path, timeout: int = 20) -> CodeExecutor:
    return LocalCodeExecutor(folder, timeout) if kind == "ours" else raw_local(work_dir=folder, timeout=timeout)


async def run_once(executor: CodeExecutor, *blocks: CodeBlock) -> Execution:
    runner = ExecutorRunner(executor)
    try:
        return await run(runner, *blocks)
    finally:
        await runner.stop()


@pytest.mark.parametrize("how", ["token", "task"])
async def test_l1_cancel_ends_running_code(tmp_path: Path, how: str) -> None:
    async with LocalCodeExecutor(tmp_path) as executor, asyncio.timeout(30):
        token = CancellationToken()
        task = asyncio.create_task(executor.execute_code_blocks([python(FOREVER)], token))
        await until((tmp_path / "ready").exists)
        if how == "token":
            token.cancel()
        else:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await all_gone(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["ready"]


@both
async def test_l2_a_timeout_ends_the_whole_tree(tmp_path: Path, kind: str) -> None:
    code = TREE.replace("'ready'", "'soon'") + DEAF
    execution = await run_once(executor_of(kind, tmp_path, timeout=1), python(code))
    assert (execution.outcome, execution.exit_code) == (Outcome.TIMEOUT, 124)
    await all_gone(tmp_path)


@both
async def test_l2_a_grandchild_that_holds_the_pipe_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    execution = await run_once(executor_of(kind, tmp_path), shell("sleep 300 & echo done"))
    assert (execution.outcome, execution.output) == (Outcome.OK, "done\n")
    await all_gone(tmp_path)


@both
async def test_l3_a_timeout_keeps_the_output_so_far(tmp_path: Path, kind: str) -> None:
    code = "import sys\nprint('out'); print('err', file=sys.stderr)\nwhile True: pass"
    execution = await run_once(executor_of(kind, tmp_path, timeout=1), shell("echo first"), python(code))
    assert (execution.outcome, execution.output) == (Outcome.TIMEOUT, "first\nout\nerr\n")


async def test_l3_the_plain_result_says_so_too(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path, timeout=0.5) as executor:
        result = await executor.execute_code_blocks([python(FOREVER)], CancellationToken())
    assert result.exit_code == 124
    assert result.output == "begun\nThe code was stopped after 0.5 seconds: Timeout"


async def test_l4_secrets_of_the_environment_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret-value")
    monkeypatch.setenv("WANTED", "wanted-value")
    monkeypatch.setenv("LC_TIME", "C")
    code = "import os\nfor item in os.environ.items(): print(*item, sep='=')"
    execution = await run_once(LocalCodeExecutor(tmp_path, env=["WANTED", "NOT_THERE"]), python(code))
    variables = dict(line.split("=", 1) for line in execution.output.splitlines())
    assert "secret-value" not in execution.output
    assert variables["WANTED"] == "wanted-value"
    assert variables["LC_TIME"] == "C"
    assert variables["PATH"].endswith(os.environ["PATH"])
    assert "coderoom-" not in variables["PATH"]
    assert variables["MPLBACKEND"] == "Agg"


@both
async def test_l5_input_gets_the_end_of_the_file_at_once(tmp_path: Path, kind: str) -> None:
    execution = await run_once(executor_of(kind, tmp_path), python("input('name? ')"))
    assert execution.outcome is Outcome.ERROR
    assert "EOFError" in execution.output


async def test_l5_the_terminal_stays_the_operators(tmp_path: Path) -> None:
    # A host with a terminal of its own, whose input the code asks for in two ways.
    host = """
import asyncio, sys
from autogen_core.code_executor import CodeBlock
from coderoom.executors import ExecutorRunner, LocalCodeExecutor
code = "import sys; print(repr(sys.stdin.read()))\\ntry: open('/dev/tty')\\nexcept OSError: print('none')"
runner = ExecutorRunner(LocalCodeExecutor(sys.argv[1]))
execution = asyncio.run(runner.run([CodeBlock(code=code, language="python")]))
open(sys.argv[1] + "/seen", "w").write(execution.output)
"""
    ours, theirs = pty.openpty()
    os.write(ours, b"typed\n")
    command = [sys.executable, "-c", host, str(tmp_path)]
    try:
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, start_new_session=True)
        await asyncio.to_thread(process.wait, 30)
    finally:
        os.close(theirs)
        os.close(ours)
    assert (tmp_path / "seen").read_text() == "''\nnone\n"


async def test_l6_files_that_the_author_named_stay(tmp_path: Path) -> None:
    executor = LocalCodeExecutor(tmp_path)
    blocks = [python("# filename: utils.py\nvalue = 3"), python("import utils; print(utils.value)")]
    execution = await run_once(executor, *blocks)
    assert execution.output == "3\n"
    assert (tmp_path / "utils.py").read_text() == "# filename: utils.py\nvalue = 3"
    assert {path.name for path in tmp_path.iterdir()} <= {"utils.py", "__pycache__"}


@both
async def test_l7_folders_of_a_named_file_are_made(tmp_path: Path, kind: str) -> None:
    execution = await run_once(executor_of(kind, tmp_path), python("# filename: src/deep/a.py\nprint(__file__)"))
    assert execution.output == f"{tmp_path}/src/deep/a.py\n"


async def test_l8_the_same_code_in_parallel_on_one_folder(tmp_path: Path) -> None:
    code = "import os, time; print(os.getcwd()); time.sleep(0.3); print(len(open(__file__).read()))"
    async with LocalCodeExecutor(tmp_path, timeout=30) as one, LocalCodeExecutor(tmp_path, timeout=30) as other:
        runners = [ExecutorRunner(executor) for executor in (one, other) for _ in range(4)]
        executions = await asyncio.gather(*(run(runner, python(code)) for runner in runners))
    assert {execution.output for execution in executions} == {f"{tmp_path}\n{len(code)}\n"}
    assert list(tmp_path.iterdir()) == []


async def test_l8_the_same_named_file_in_parallel(tmp_path: Path) -> None:
    executor = LocalCodeExecutor(tmp_path, timeout=30)
    code = "# filename: same.py\nprint('whole')\n" + "#" * 100_000
    async with executor:
        runner = ExecutorRunner(executor)
        executions = await asyncio.gather(*(run(runner, python(code)) for _ in range(6)))
    assert {execution.output for execution in executions} == {"whole\n"}
    assert [path.name for path in tmp_path.iterdir()] == ["same.py"]


@both
async def test_l9_binary_output_is_replaced(tmp_path: Path, kind: str) -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)))"
    execution = await run_once(executor_of(kind, tmp_path), python(code))
    assert execution.outcome is Outcome.OK
    assert execution.output.startswith("\0\1\2")
    assert execution.output.endswith("\ufffd")


@both
async def test_l9_both_outputs_are_in_the_order_written(tmp_path: Path, kind: str) -> None:
    code = "import sys\nprint(1)\nprint(2, file=sys.stderr)\nprint(3)"
    execution = await run_once(executor_of(kind, tmp_path), python(code), shell("echo 4; echo 5 >&2; echo 6"))
    assert execution.output == "1\n2\n3\n4\n5\n6\n"


@pytest.mark.parametrize("language", ["powershell", "pwsh", "cobol", ""])
async def test_l10_a_language_that_is_not_there_is_an_error_result(tmp_path: Path, language: str) -> None:
    execution = await run_once(LocalCodeExecutor(tmp_path), CodeBlock(code="x", language=language))
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert repr(language) in execution.output


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


NAMES = ["../out.py", "/etc/out.py", "a/../../out.py", ".", "", "folder", "link/out.py", "x" * 5000, "nul\0.py"]


@pytest.mark.parametrize("name", NAMES)
async def test_l11_a_bad_name_keeps_the_earlier_output(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    (work / "link").symlink_to(tmp_path)
    blocks = [shell("echo before"), python(f"# filename: {name}\nprint('never')"), shell("echo never")]
    execution = await run_once(LocalCodeExecutor(work), *blocks)
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert execution.output.startswith("before\n")
    assert "Filename is not in the workspace" in execution.output
    assert "never" not in execution.output
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


async def test_l11_for_autogens_executor(tmp_path: Path) -> None:
    blocks = [shell("echo before"), python("# filename: ../out.py\nprint('never')")]
    execution = await run_once(raw_local(work_dir=tmp_path / "work"), *blocks)
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert execution.output == "before\nFilename is not in the workspace"


async def test_l12_the_parents_of_the_folder_are_made(tmp_path: Path) -> None:
    execution = await run_once(LocalCodeExecutor(tmp_path / "a" / "b" / "c"), shell("pwd"))
    assert execution.output == f"{tmp_path}/a/b/c\n"


def test_l13_no_protection_is_promised_that_is_not_there() -> None:
    text = LocalCodeExecutor.__doc__ or ""
    assert "without isolation" in text
    assert "sanitized" not in text


async def test_l14_it_runs_in_a_loop_of_another_thread(tmp_path: Path) -> None:
    execution = await asyncio.to_thread(
        lambda: asyncio.run(run_once(LocalCodeExecutor(tmp_path), python("print('there')")))
    )
    assert execution.output == "there\n"


@both
async def test_l15_output_is_bounded_while_it_is_read(tmp_path: Path, kind: str) -> None:
    code = "while True: print('x' * 1000)"
    execution = await run_once(executor_of(kind, tmp_path, timeout=1), python(code))
    assert execution.outcome is Outcome.TIMEOUT
    assert len(execution.output) < 1_100_000
    assert execution.total_chars > len(execution.output)
    assert execution.whole_output is not None
    assert execution.whole_output.stat().st_size <= 64 << 20
