"""The known defects of AutoGen's executors that neither of ours has."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from coderoom.executors import LocalCodeExecutor, SandboxCodeExecutor
from coderoom.outcome import Outcome
from tests.executors.helpers import (
    DEAF,
    FOREVER,
    MARKED_TREE,
    all_gone,
    executor_of,
    marked,
    python,
    run_in,
    run_once,
    shell,
    until,
)

Executor = SandboxCodeExecutor | LocalCodeExecutor

each_kind = pytest.mark.parametrize("kind", ["session", "local"])


@each_kind
async def test_l1_cancel_ends_running_code(tmp_path: Path, kind: str) -> None:
    async with executor_of(kind, tmp_path) as executor, asyncio.timeout(60):
        for how in ("token", "thread", "task"):
            mark = f"l1-{os.getpid()}-{how}-{kind}"
            token = CancellationToken()
            code = MARKED_TREE.replace("MARK", mark) + FOREVER
            task = asyncio.create_task(executor.execute_code_blocks([python(code)], token))
            await until((tmp_path / "ready").exists)
            await until(partial(lambda mark: len(marked(mark)) >= 3, mark))
            if how == "token":
                token.cancel()
            elif how == "thread":
                threading.Thread(target=token.cancel).start()
            else:
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(partial(lambda mark: not marked(mark), mark), 2)
            (tmp_path / "ready").unlink()
    assert list(tmp_path.iterdir()) == []


@each_kind
async def test_l1_a_token_that_was_cancelled_before_runs_nothing(tmp_path: Path, kind: str) -> None:
    token = CancellationToken()
    token.cancel()
    executor = executor_of(kind, tmp_path / "work")
    with pytest.raises(asyncio.CancelledError):
        await executor.execute_code_blocks([python("open('made', 'w')")], token)
    assert list(tmp_path.iterdir()) == []


@each_kind
async def test_l2_l3_a_timeout_ends_the_whole_tree_and_keeps_the_output(tmp_path: Path, kind: str) -> None:
    mark = f"l2-{os.getpid()}-{kind}"
    code = MARKED_TREE.replace("MARK", mark) + "import sys\nprint('out'); print('err', file=sys.stderr)\n" + DEAF
    result = await run_once(executor_of(kind, tmp_path, timeout=1), shell("echo first"), python(code))
    assert (result.outcome, result.exit_code) == (Outcome.TIMEOUT, 124)
    assert result.output.startswith("first\nout\nerr\nbegun\n")
    assert "stopped after 1 seconds" in result.output
    await until(lambda: not marked(mark), 2)
    await all_gone(tmp_path)


async def test_l2_a_grandchild_that_holds_the_pipe_is_not_waited_for(executor: Executor) -> None:
    mark = f"l2-pipe-{os.getpid()}"
    result = await run_in(executor, shell(f"sh -c 'sleep 300; : {mark}' & echo done"))
    assert (result.execution.outcome, result.output) == (Outcome.OK, "done\n")
    await executor.restart()  # In a session it may run as long as that.
    await until(lambda: not marked(mark))


@each_kind
async def test_l4_the_environment_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret-value")
    monkeypatch.setenv("WANTED", "wanted-value")
    code = "import os\nfor item in os.environ.items(): print(*item, sep='=')"
    result = await run_once(executor_of(kind, tmp_path, env=["WANTED", "NOT_THERE"]), python(code))
    variables = dict(line.split("=", 1) for line in result.output.splitlines())
    assert "secret-value" not in result.output
    assert variables["WANTED"] == "wanted-value"
    assert variables["MPLBACKEND"] == "Agg"
    assert not {"NOT_THERE", "PYTEST_CURRENT_TEST"} & set(variables)


async def test_l5_input_gets_an_error_at_once(executor: Executor) -> None:
    for code in ("input('name? ')", "import sys\nif not sys.stdin.read(): raise EOFError"):
        result = await run_in(executor, code)
        assert result.exit_code == 1
        assert "EOFError" in result.output


# A host with a terminal of its own, whose input the code asks for in two ways.
HOST = """
import asyncio, sys
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from coderoom.executors import LocalCodeExecutor
code = "cat; (exec < /dev/tty) 2> /dev/null || echo none"
async def main():
    async with LocalCodeExecutor(sys.argv[1]) as executor:
        result = await executor.execute_code_blocks([CodeBlock(code=code, language="sh")], CancellationToken())
    open(sys.argv[1] + "/seen", "w").write(result.output)
asyncio.run(main())
"""


async def test_l5_the_terminal_stays_the_operators(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"typed\n")
    try:
        command = [sys.executable, "-c", HOST, str(tmp_path)]
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, start_new_session=True)
        await asyncio.to_thread(process.wait, 30)
    finally:
        os.close(theirs)
        os.close(ours)
    assert (tmp_path / "seen").read_text() == "none\n"


async def test_l6_files_that_the_author_named_stay(executor: Executor) -> None:
    result = await run_in(executor, "# filename: utils.py\nvalue = 3", "import utils; print(utils.value)")
    assert result.output == "3\n"
    assert executor.work_dir is not None
    assert (executor.work_dir / "utils.py").read_text() == "# filename: utils.py\nvalue = 3"
    assert {path.name for path in executor.work_dir.iterdir()} <= {"utils.py", "__pycache__"}


@pytest.mark.parametrize(
    "block",
    [
        python("# filename: src/deep/a\nprint('there')"),
        shell("# filename: src/deep/a\necho there"),
        CodeBlock(code="// filename: src/deep/a\nconsole.log('there')", language="js"),
    ],
    ids=lambda block: block.language,
)
async def test_l7_folders_of_a_named_file_are_made(sandbox_executor: SandboxCodeExecutor, block: CodeBlock) -> None:
    assert (await run_in(sandbox_executor, block)).output == "there\n"
    assert sandbox_executor.work_dir is not None
    assert (sandbox_executor.work_dir / "src/deep/a").read_text() == block.code


@each_kind
async def test_l8_the_same_named_file_in_parallel(tmp_path: Path, kind: str) -> None:
    code = "# filename: same.py\nimport time; time.sleep(0.1); print('whole')\n" + "#" * 100_000
    async with executor_of(kind, tmp_path) as one, executor_of(kind, tmp_path) as other:
        results = await asyncio.gather(*(run_in(executor, code) for executor in (one, other) for _ in range(4)))
    assert {result.output for result in results} == {"whole\n"}
    assert [path.name for path in tmp_path.iterdir()] == ["same.py"]


async def test_l9_output_is_text_in_the_order_written(executor: Executor) -> None:
    result = await run_in(executor, "import sys; sys.stdout.buffer.write(bytes(range(256))); None")
    assert result.exit_code == 0
    assert result.output.startswith("\0\1\2")
    assert result.output.endswith("\ufffd")
    code = "import sys\nprint(1)\nprint(2, file=sys.stderr)\nprint(3)"
    assert (await run_in(executor, code, shell("echo 4; echo 5"))).output == "1\n2\n3\n4\n5\n"
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done\n"
    result = await run_in(executor, shell(script))
    assert result.output.split("\n")[:-1] == [f"{stream} {i}" for i in range(1, 10) for stream in ("out", "err")]


async def test_l10_dk8_a_language_that_is_not_there_is_an_error_result(executor: Executor) -> None:
    for language in ("fortran", "cobol", ""):
        block = CodeBlock(code="# filename: a.txt\nx", language=language)
        result = await run_in(executor, shell("echo before"), block, shell("echo never"))
        assert (result.execution.outcome, result.exit_code) == (Outcome.ERROR, 1)
        assert result.output.startswith("before\n")
        assert repr(language) in result.output
        assert all(known in result.output for known in ("python", "sh", "bash", "javascript"))
        assert "never" not in result.output
    assert executor.work_dir is not None
    assert list(executor.work_dir.iterdir()) == []


NAMES = ["../out.py", "/etc/out.py", "a/../../out.py", ".", "", "folder", "link/out.py", "x" * 5000, "nul\0.py"]


async def test_l11_a_bad_name_keeps_the_earlier_output(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    (work / "link").symlink_to(tmp_path)
    async with SandboxCodeExecutor(work) as executor:
        for name in [*NAMES, "/workspace/../out.py", "/workspace"]:
            bad = f"# filename: {name}\nprint('never')"
            result = await run_in(executor, shell("echo before"), bad, shell("echo never"))
            assert (result.execution.outcome, result.exit_code) == (Outcome.ERROR, 1), name
            assert result.output.startswith("before\nFilename is not in the workspace"), name
            assert "never" not in result.output, name
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


@each_kind
async def test_l12_l14_in_a_new_folder_and_the_loop_of_another_thread(tmp_path: Path, kind: str) -> None:
    executor = executor_of(kind, tmp_path / "a" / "b")
    result = await asyncio.to_thread(lambda: asyncio.run(run_once(executor, shell("echo here | tee c"))))
    assert result.output == "here\n"
    assert (tmp_path / "a" / "b" / "c").read_text() == "here\n"


async def test_l15_output_is_bounded_while_it_is_read(executor: Executor) -> None:
    code = "import os\nfor _ in range(50): os.write(1, b'x' * 99_999 + b'\\n')\nprint('end')"
    result = await run_in(executor, "print('begin')", code)
    assert len(result.output) < 1_100_000
    assert result.execution.output_size == 5_000_000 + len("begin\nend\n")
    assert result.execution.truncated
    assert result.output.startswith("begin\nx")
    assert result.output.endswith("x\nend\n")
    assert "characters left out" in result.output


async def test_dk4_an_exit_code_of_124_is_no_timeout(executor: Executor) -> None:
    result = await run_in(executor, shell("echo Timeout; exit 124"))
    assert (result.execution.outcome, result.exit_code) == (Outcome.ERROR, 124)
