"""The known defects of AutoGen's executors that neither of ours has."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from coderoom.executors import ExecutorRunner, LocalCodeExecutor, SandboxCodeExecutor
from coderoom.outcome import Outcome
from tests.executors.helpers import (
    DEAF,
    FOREVER,
    MARKED_TREE,
    all_gone,
    executor_of,
    marked,
    python,
    run,
    run_once,
    shell,
    until,
)

# One test for one defect, whichever executor: see `executor_of` for their names.
ours = pytest.mark.parametrize("kind", ["local", "session"])
ours_in_each_state = pytest.mark.parametrize("kind", ["local", "session", "fresh"])


@ours_in_each_state
@pytest.mark.parametrize("how", ["token", "thread", "task"])
async def test_l1_cancel_ends_running_code(tmp_path: Path, how: str, kind: str) -> None:
    mark = f"l1-{os.getpid()}-{how}-{kind}"
    code = MARKED_TREE.replace("MARK", mark) + FOREVER
    async with executor_of(kind, tmp_path) as executor, asyncio.timeout(30):
        token = CancellationToken()
        task = asyncio.create_task(executor.execute_code_blocks([python(code)], token))
        await until((tmp_path / "ready").exists)
        await until(lambda: len(marked(mark)) >= 3)
        if how == "token":
            token.cancel()
        elif how == "thread":
            threading.Thread(target=token.cancel).start()
        else:
            task.cancel()
        async with asyncio.timeout(4):
            with pytest.raises(asyncio.CancelledError):
                await task
        await until(lambda: not marked(mark), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["ready"]


@ours_in_each_state
async def test_l1_a_token_that_was_cancelled_before_runs_nothing(tmp_path: Path, kind: str) -> None:
    token = CancellationToken()
    token.cancel()
    async with executor_of(kind, tmp_path) as executor:
        with pytest.raises(asyncio.CancelledError):
            await executor.execute_code_blocks([python("open('made', 'w')")], token)
    assert list(tmp_path.iterdir()) == []


@ours_in_each_state
async def test_l2_a_timeout_ends_the_whole_tree(tmp_path: Path, kind: str) -> None:
    mark = f"l2-{os.getpid()}-{kind}"
    runner = ExecutorRunner(executor_of(kind, tmp_path, timeout=1))
    try:
        execution = await run(runner, python(MARKED_TREE.replace("MARK", mark) + DEAF))
        assert (execution.outcome, execution.exit_code) == (Outcome.TIMEOUT, 124)
        await until(lambda: not marked(mark), 2)
    finally:
        await runner.stop()
    await all_gone(tmp_path)


@ours
async def test_l2_a_grandchild_that_holds_the_pipe_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    mark = f"l2-pipe-{os.getpid()}-{kind}"
    execution = await run_once(executor_of(kind, tmp_path), shell(f"sh -c 'sleep 300; : {mark}' & echo done"))
    assert (execution.outcome, execution.output) == (Outcome.OK, "done\n")
    await until(lambda: not marked(mark))
    await all_gone(tmp_path)


@ours
async def test_l3_a_timeout_keeps_the_output_so_far(tmp_path: Path, kind: str) -> None:
    code = "import sys\nprint('out'); print('err', file=sys.stderr)\nwhile True: pass"
    execution = await run_once(executor_of(kind, tmp_path, timeout=1), shell("echo first"), python(code))
    assert execution.outcome is Outcome.TIMEOUT
    assert execution.output.startswith("first\nout\nerr\n")
    assert "stopped after 1 seconds" in execution.output


@ours
async def test_l4_the_environment_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret-value")
    monkeypatch.setenv("WANTED", "wanted-value")
    code = "import os\nfor item in os.environ.items(): print(*item, sep='=')"
    execution = await run_once(executor_of(kind, tmp_path, env=["WANTED", "NOT_THERE"]), python(code))
    variables = dict(line.split("=", 1) for line in execution.output.splitlines())
    assert "secret-value" not in execution.output
    assert variables["WANTED"] == "wanted-value"
    assert variables["MPLBACKEND"] == "Agg"
    assert not {"NOT_THERE", "PYTEST_CURRENT_TEST"} & set(variables)


@ours
@pytest.mark.parametrize("code", ["input('name? ')", "import sys\nif not sys.stdin.read(): raise EOFError"])
async def test_l5_input_gets_an_error_at_once(tmp_path: Path, code: str, kind: str) -> None:
    execution = await run_once(executor_of(kind, tmp_path), python(code))
    assert execution.outcome is Outcome.ERROR
    assert "EOFError" in execution.output


# A host with a terminal of its own, whose input the code asks for in two ways.
HOST = """
import asyncio, sys
from autogen_core.code_executor import CodeBlock
from coderoom import executors
code = "cat; (exec < /dev/tty) 2> /dev/null || echo none"
async def main():
    runner = executors.ExecutorRunner(getattr(executors, sys.argv[1])(sys.argv[2]))
    execution = await runner.run([CodeBlock(code=code, language="sh")])
    await runner.stop()
    open(sys.argv[2] + "/seen", "w").write(execution.output)
asyncio.run(main())
"""


@pytest.mark.parametrize("executor", [LocalCodeExecutor, SandboxCodeExecutor])
async def test_l5_the_terminal_stays_the_operators(tmp_path: Path, executor: type) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"typed\n")
    command = [sys.executable, "-c", HOST, executor.__name__, str(tmp_path)]
    try:
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, start_new_session=True)
        await asyncio.to_thread(process.wait, 30)
    finally:
        os.close(theirs)
        os.close(ours)
    assert (tmp_path / "seen").read_text() == "none\n"


@ours_in_each_state
async def test_l6_files_that_the_author_named_stay(tmp_path: Path, kind: str) -> None:
    blocks = [python("# filename: utils.py\nvalue = 3"), python("import utils; print(utils.value)")]
    execution = await run_once(executor_of(kind, tmp_path), *blocks)
    assert execution.output == "3\n"
    assert (tmp_path / "utils.py").read_text() == "# filename: utils.py\nvalue = 3"
    assert {path.name for path in tmp_path.iterdir()} <= {"utils.py", "__pycache__"}


@ours
@pytest.mark.parametrize(
    "block",
    [
        python("# filename: src/deep/a\nprint('there')"),
        shell("# filename: src/deep/a\necho there"),
        CodeBlock(code="// filename: src/deep/a\nconsole.log('there')", language="js"),
    ],
    ids=lambda block: block.language,
)
async def test_l7_folders_of_a_named_file_are_made(tmp_path: Path, block: CodeBlock, kind: str) -> None:
    execution = await run_once(executor_of(kind, tmp_path), block)
    assert execution.output == "there\n"
    assert (tmp_path / "src/deep/a").read_text() == block.code


@ours_in_each_state
async def test_l8_the_same_named_file_in_parallel(tmp_path: Path, kind: str) -> None:
    code = "# filename: same.py\nimport time; time.sleep(0.1); print('whole')\n" + "#" * 100_000
    async with executor_of(kind, tmp_path) as one, executor_of(kind, tmp_path) as other:
        runners = [ExecutorRunner(executor) for executor in (one, other) for _ in range(4)]
        executions = await asyncio.gather(*(run(runner, python(code)) for runner in runners))
    assert {execution.output for execution in executions} == {"whole\n"}
    assert [path.name for path in tmp_path.iterdir()] == ["same.py"]


@ours
async def test_l9_binary_output_is_replaced(tmp_path: Path, kind: str) -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256))); None"
    execution = await run_once(executor_of(kind, tmp_path), python(code))
    assert execution.outcome is Outcome.OK
    assert execution.output.startswith("\0\1\2")
    assert execution.output.endswith("\ufffd")


@ours
async def test_l9_both_outputs_are_in_the_order_written(tmp_path: Path, kind: str) -> None:
    code = "import sys\nprint(1)\nprint(2, file=sys.stderr)\nprint(3)"
    execution = await run_once(executor_of(kind, tmp_path), python(code), shell("echo 4; echo 5"))
    assert execution.output == "1\n2\n3\n4\n5\n"


@ours
@pytest.mark.parametrize("language", ["powershell", "pwsh", "cobol", ""])
async def test_l10_dk8_a_language_that_is_not_there_is_an_error_result(
    tmp_path: Path, language: str, kind: str
) -> None:
    blocks = [shell("echo before"), CodeBlock(code="x", language=language), shell("echo never")]
    execution = await run_once(executor_of(kind, tmp_path), *blocks)
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert execution.output.startswith("before\n")
    assert repr(language) in execution.output
    assert all(known in execution.output for known in ("python", "sh", "bash", "javascript"))
    assert "never" not in execution.output


NAMES = ["../out.py", "/etc/out.py", "a/../../out.py", ".", "", "folder", "link/out.py", "x" * 5000, "nul\0.py"]


@ours
@pytest.mark.parametrize("name", [*NAMES, "/workspace/../out.py", "/workspace"])
async def test_l11_a_bad_name_keeps_the_earlier_output(tmp_path: Path, name: str, kind: str) -> None:
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    (work / "link").symlink_to(tmp_path)
    blocks = [shell("echo before"), python(f"# filename: {name}\nprint('never')"), shell("echo never")]
    execution = await run_once(executor_of(kind, work), *blocks)
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert execution.output.startswith("before\n")
    assert "Filename is not in the workspace" in execution.output
    assert "never" not in execution.output
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


@ours
async def test_l12_the_parents_of_the_folder_are_made(tmp_path: Path, kind: str) -> None:
    await run_once(executor_of(kind, tmp_path / "a" / "b" / "c"), shell("echo here > d"))
    assert (tmp_path / "a" / "b" / "c" / "d").read_text() == "here\n"


@ours
async def test_l14_it_runs_in_a_loop_of_another_thread(tmp_path: Path, kind: str) -> None:
    execution = await asyncio.to_thread(
        lambda: asyncio.run(run_once(executor_of(kind, tmp_path), python("print('there')")))
    )
    assert execution.output == "there\n"


@ours
async def test_dk4_an_exit_code_of_124_is_no_timeout(tmp_path: Path, kind: str) -> None:
    execution = await run_once(executor_of(kind, tmp_path), shell("echo Timeout; exit 124"))
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 124)
