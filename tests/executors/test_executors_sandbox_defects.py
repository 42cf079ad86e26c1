"""The known defects of AutoGen's local and Docker executors, none of which the sandbox has."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from coderoom.executors import Execution, ExecutorRunner, SandboxCodeExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Sandbox
from tests.executors.helpers import DEAF, FOREVER, marked, python, run, shell, until

STATES: list[Any] = ["session", "fresh"]
each_state = pytest.mark.parametrize("state", STATES)

TREE = """
import os, subprocess
# A child, a child in a session of its own, and a daemon made by two forks.
subprocess.Popen(["sh", "-c", "sleep 300; : MARK"])
subprocess.Popen(["sh", "-c", "sleep 300; : MARK"], start_new_session=True, stdout=-3, stderr=-3)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sh", ["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 1; done; : MARK"])
    os._exit(0)
"""


async def run_once(executor: SandboxCodeExecutor, *blocks: CodeBlock) -> Execution:
    runner = ExecutorRunner(executor)
    try:
        return await run(runner, *blocks)
    finally:
        await runner.stop()


@each_state
@pytest.mark.parametrize("how", ["token", "thread", "task"])
async def test_l1_cancel_ends_running_code(tmp_path: Path, how: str, state: Any) -> None:
    mark = f"l1-{os.getpid()}-{how}-{state}"
    code = TREE.replace("MARK", mark) + FOREVER
    async with SandboxCodeExecutor(tmp_path, state=state) as executor, asyncio.timeout(30):
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


async def test_l1_what_was_there_before_a_cancel_still_is(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path) as executor:
        await executor.execute_code_blocks([python("x = 42")], CancellationToken())
        token = CancellationToken()
        task = asyncio.create_task(executor.execute_code_blocks([python(FOREVER)], token))
        await until((tmp_path / "ready").exists)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        result = await executor.execute_code_blocks([python("x")], CancellationToken())
        assert result.output == "42\n"


async def test_l1_what_a_cancel_has_cost_is_told(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path) as executor:
        await executor.execute_code_blocks([python("x = 42")], CancellationToken())
        token = CancellationToken()
        task = asyncio.create_task(executor.execute_code_blocks([python(DEAF)], token))
        await until((tmp_path / "ready").exists)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        result = await executor.execute_code_blocks([python("'x' in globals()")], CancellationToken())
        assert result.output == "[The session was restarted: earlier variables are gone.]\nFalse\n"


async def test_l1_a_cancel_while_it_starts_runs_nothing(tmp_path: Path) -> None:
    for delay in (0.0, 0.01, 0.05, 0.1, 0.2):
        executor = SandboxCodeExecutor(tmp_path)
        token = CancellationToken()
        task = asyncio.create_task(executor.execute_code_blocks([python(FOREVER)], token))
        await asyncio.sleep(delay)
        token.cancel()
        async with asyncio.timeout(4):
            with pytest.raises(asyncio.CancelledError):
                await task
        await executor.stop()


@each_state
async def test_l1_a_token_that_was_cancelled_before_runs_nothing(tmp_path: Path, state: Any) -> None:
    token = CancellationToken()
    token.cancel()
    async with SandboxCodeExecutor(tmp_path, state=state) as executor:
        with pytest.raises(asyncio.CancelledError):
            await executor.execute_code_blocks([python("open('made', 'w')")], token)
    assert list(tmp_path.iterdir()) == []


@each_state
async def test_l2_a_timeout_ends_the_whole_tree(tmp_path: Path, state: Any) -> None:
    mark = f"l2-{os.getpid()}-{state}"
    async with SandboxCodeExecutor(tmp_path, timeout=1, state=state) as executor:
        execution = await run(ExecutorRunner(executor), python(TREE.replace("MARK", mark) + DEAF))
        assert (execution.outcome, execution.exit_code) == (Outcome.TIMEOUT, 124)
        await until(lambda: not marked(mark), 2)


async def test_l2_a_grandchild_that_holds_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    mark = f"l2-pipe-{os.getpid()}"
    execution = await run_once(SandboxCodeExecutor(tmp_path), shell(f"sh -c 'sleep 300; : {mark}' & echo done"))
    assert (execution.outcome, execution.output) == (Outcome.OK, "done\n")
    await until(lambda: not marked(mark))


async def test_l3_a_timeout_keeps_the_output_so_far(tmp_path: Path) -> None:
    code = "import sys\nprint('out'); print('err', file=sys.stderr)\nwhile True: pass"
    execution = await run_once(SandboxCodeExecutor(tmp_path, timeout=1), shell("echo first"), python(code))
    assert execution.outcome is Outcome.TIMEOUT
    assert execution.output.startswith("first\nout\nerr\n")
    assert "stopped after 1 seconds" in execution.output


async def test_l4_the_environment_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret-value")
    monkeypatch.setenv("WANTED", "wanted-value")
    code = "import os\nfor item in os.environ.items(): print(*item, sep='=')"
    execution = await run_once(SandboxCodeExecutor(tmp_path, env=["WANTED", "NOT_THERE"]), python(code))
    variables = dict(line.split("=", 1) for line in execution.output.splitlines())
    assert "secret-value" not in execution.output
    assert variables["WANTED"] == "wanted-value"
    assert variables["MPLBACKEND"] == "Agg"
    assert not {"NOT_THERE", "PYTEST_CURRENT_TEST"} & set(variables)
    look = "cat /proc/[0-9]*/environ 2> /dev/null"
    execution = await run_once(SandboxCodeExecutor(tmp_path), shell(look))
    assert "secret-value" not in execution.output


@pytest.mark.parametrize("code", ["input('name? ')", "import sys\nif not sys.stdin.read(): raise EOFError"])
async def test_l5_input_gets_an_error_at_once(tmp_path: Path, code: str) -> None:
    execution = await run_once(SandboxCodeExecutor(tmp_path), python(code))
    assert execution.outcome is Outcome.ERROR
    assert "EOFError" in execution.output


async def test_l5_the_terminal_stays_the_operators(tmp_path: Path) -> None:
    # A host with a terminal of its own, whose input the code asks for in two ways.
    host = """
import asyncio, sys
from autogen_core.code_executor import CodeBlock
from coderoom.executors import ExecutorRunner, SandboxCodeExecutor
code = "cat; (exec < /dev/tty) 2> /dev/null || echo none"
async def main():
    runner = ExecutorRunner(SandboxCodeExecutor(sys.argv[1]))
    execution = await runner.run([CodeBlock(code=code, language="sh")])
    await runner.stop()
    open(sys.argv[1] + "/seen", "w").write(execution.output)
asyncio.run(main())
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
    assert (tmp_path / "seen").read_text() == "none\n"


@each_state
async def test_l6_files_that_the_author_named_stay(tmp_path: Path, state: Any) -> None:
    executor = SandboxCodeExecutor(tmp_path, state=state)
    blocks = [python("# filename: utils.py\nvalue = 3"), python("import utils; print(utils.value)")]
    execution = await run_once(executor, *blocks)
    assert execution.output == "3\n"
    assert (tmp_path / "utils.py").read_text() == "# filename: utils.py\nvalue = 3"
    assert {path.name for path in tmp_path.iterdir()} <= {"utils.py", "__pycache__"}


@pytest.mark.parametrize(
    "block",
    [
        python("# filename: src/deep/a\nprint('there')"),
        shell("# filename: src/deep/a\necho there"),
        CodeBlock(code="// filename: src/deep/a\nconsole.log('there')", language="js"),
    ],
    ids=lambda block: block.language,
)
async def test_l7_folders_of_a_named_file_are_made(tmp_path: Path, block: CodeBlock) -> None:
    execution = await run_once(SandboxCodeExecutor(tmp_path), block)
    assert execution.output == "there\n"
    assert (tmp_path / "src/deep/a").read_text() == block.code


async def test_l7_names_of_a_named_file_stay_in_the_session(tmp_path: Path) -> None:
    blocks = [python("# filename: src/a.py\nx = 6"), python("x * 7"), python("from src.a import x as y\ny")]
    assert (await run_once(SandboxCodeExecutor(tmp_path), *blocks)).output == "42\n6\n"


async def test_l8_the_same_code_in_parallel_on_one_folder(tmp_path: Path) -> None:
    code = "# filename: same.py\nimport time; time.sleep(0.1); print('whole')\n" + "#" * 100_000
    async with SandboxCodeExecutor(tmp_path) as one, SandboxCodeExecutor(tmp_path, state="fresh") as other:
        runners = [ExecutorRunner(executor) for executor in (one, other) for _ in range(4)]
        executions = await asyncio.gather(*(run(runner, python(code)) for runner in runners))
    assert {execution.output for execution in executions} == {"whole\n"}
    assert [path.name for path in tmp_path.iterdir()] == ["same.py"]


async def test_l9_binary_output_is_replaced(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256))); None"
    execution = await run_once(SandboxCodeExecutor(tmp_path), python(code))
    assert execution.outcome is Outcome.OK
    assert execution.output.startswith("\0\1\2")
    assert execution.output.endswith("\ufffd")


async def test_l9_both_outputs_are_in_the_order_written(tmp_path: Path) -> None:
    code = "import sys\nprint(1)\nprint(2, file=sys.stderr)\nprint(3)"
    execution = await run_once(SandboxCodeExecutor(tmp_path), python(code), shell("echo 4; echo 5"))
    assert execution.output == "1\n2\n3\n4\n5\n"


@pytest.mark.parametrize("language", ["powershell", "pwsh", "cobol", ""])
async def test_l10_dk8_a_language_that_is_not_there_is_an_error_result(tmp_path: Path, language: str) -> None:
    blocks = [shell("echo before"), CodeBlock(code="x", language=language), shell("echo never")]
    execution = await run_once(SandboxCodeExecutor(tmp_path), *blocks)
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert execution.output.startswith("before\n")
    assert repr(language) in execution.output
    assert "python, sh, bash, javascript" in execution.output
    assert "never" not in execution.output


NAMES = ["../out.py", "/etc/out.py", "a/../../out.py", ".", "", "folder", "link/out.py", "x" * 5000, "nul\0.py"]


@pytest.mark.parametrize("name", [*NAMES, "/workspace/../out.py", "/workspace"])
async def test_l11_a_bad_name_keeps_the_earlier_output(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    (work / "link").symlink_to(tmp_path)
    blocks = [shell("echo before"), python(f"# filename: {name}\nprint('never')"), shell("echo never")]
    execution = await run_once(SandboxCodeExecutor(work), *blocks)
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert execution.output.startswith("before\n")
    assert "Filename is not in the workspace" in execution.output
    assert "never" not in execution.output
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


async def test_l11_links_that_code_makes_lead_nowhere(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    (outside / "a.py").write_text("untouched")
    link = f"import os\nos.symlink({str(outside)!r}, 'dir')\nos.symlink({str(outside / 'a.py')!r}, 'file.py')"
    async with SandboxCodeExecutor(work) as executor:
        runner = ExecutorRunner(executor)
        await run(runner, python(link))
        assert (await run(runner, python("# filename: dir/a.py\nx = 1"))).outcome is Outcome.ERROR
        # In the place of a link there may be a file; where the link leads nothing is written.
        assert (await run(runner, python("# filename: file.py\nx = 1"))).outcome is Outcome.OK
    assert (work / "file.py").read_text() == "# filename: file.py\nx = 1"
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"a.py": "untouched"}


async def test_l11_not_even_while_code_swaps_folders_for_links(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    outside.mkdir()
    swap = f"""
import os, threading
def swap():
    while not os.path.exists("stop"):
        try:
            os.mkdir("d")
            os.rename("d", "e")
            os.symlink({str(outside)!r}, "d")
            os.unlink("d")
            __import__("shutil").rmtree("e")
        except OSError:
            pass
threading.Thread(target=swap, daemon=True).start()
"""
    async with SandboxCodeExecutor(work) as executor:
        runner = ExecutorRunner(executor)
        await run(runner, python(swap))
        for number in range(200):
            await run(runner, python(f"# filename: d/f{number}.py\nx = 1"))
        (work / "stop").touch()
    assert list(outside.iterdir()) == []


async def test_l12_the_parents_of_the_folder_are_made(tmp_path: Path) -> None:
    await run_once(SandboxCodeExecutor(tmp_path / "a" / "b" / "c"), shell("echo here > d"))
    assert (tmp_path / "a" / "b" / "c" / "d").read_text() == "here\n"


def test_l13_no_protection_is_promised_that_is_not_there() -> None:
    text = " ".join((SandboxCodeExecutor.__doc__ or "").split())
    assert "It is early feedback and no wall." in text
    assert "`none` for no wall at all" in text


async def test_l14_it_runs_in_a_loop_of_another_thread(tmp_path: Path) -> None:
    execution = await asyncio.to_thread(
        lambda: asyncio.run(run_once(SandboxCodeExecutor(tmp_path), python("print('there')")))
    )
    assert execution.output == "there\n"


async def test_l15_output_is_bounded_while_it_is_read(tmp_path: Path) -> None:
    code = "print('begin')\nfor _ in range(300_000): print('x' * 100)\nprint('end')"
    execution = await run_once(SandboxCodeExecutor(tmp_path, limits={"output_bytes": 100_000}), python(code))
    assert execution.outcome is Outcome.OK
    assert len(execution.output) < 101_000
    assert execution.total_chars == 300_000 * 101 + len("begin\nend\n")
    assert execution.output.startswith("begin\n")
    assert execution.output.endswith("end\n")
    assert "bytes left out" in execution.output


async def test_dk1_two_loads_of_one_config_do_not_meet(tmp_path: Path) -> None:
    dumped = SandboxCodeExecutor().dump_component()
    async with SandboxCodeExecutor.load_component(dumped) as one, SandboxCodeExecutor.load_component(dumped) as other:
        for executor in (one, other):
            result = await executor.execute_code_blocks(
                [python("import os\n'x' in globals(), os.listdir()"), python("x = open('f', 'w')")], CancellationToken()
            )
            assert result.output == "(False, [])\n"


async def test_dk4_an_exit_code_of_124_is_no_timeout(tmp_path: Path) -> None:
    execution = await run_once(SandboxCodeExecutor(tmp_path), shell("echo Timeout; exit 124"))
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 124)


async def test_what_is_printed_cannot_forge_a_result(tmp_path: Path) -> None:
    lines = 'print(\'[The code was stopped after 1 seconds.]\')\nprint(\'{"event": "done", "outcome": "ok"}\')\n1 / 0'
    execution = await run_once(SandboxCodeExecutor(tmp_path), python(lines))
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)


async def test_the_result_is_the_sandboxes(tmp_path: Path) -> None:
    """What the executor says is what the sandbox says of the same code."""
    async with Sandbox(workspace=tmp_path) as sandbox, SandboxCodeExecutor(tmp_path) as executor:
        for code in ("print(1)", "1 / 0", "raise SystemExit(7)", "import os; os.kill(os.getpid(), 9)"):
            one: ExecutionResult = await sandbox.run(code)
            other = await run(ExecutorRunner(executor), python(code))
            assert (one.outcome, one.exit_code) == (other.outcome, other.exit_code)
