from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor
from pydantic import ValidationError

from coderoom.errors import SandboxUnavailable
from coderoom.executors import ExecutorRunner, LocalCodeExecutor, SandboxCodeExecutor
from coderoom.outcome import Outcome
from tests.executors.helpers import FOREVER, TREE, all_gone, processes, python, shell, until


async def test_blocks_run_in_order_until_one_fails(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path) as executor:
        blocks = [python("print(1)"), shell("echo 2; exit 4"), python("print(3)")]
        result = await executor.execute_code_blocks(blocks, CancellationToken())
    assert (result.exit_code, result.output) == (4, "1\n2\n")
    assert result.execution.outcome is Outcome.ERROR


async def test_no_blocks_are_no_failure(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path) as executor:
        result = await executor.execute_code_blocks([], CancellationToken())
    assert (result.exit_code, result.output) == (0, "")


async def test_constructing_and_dumping_touch_nothing(tmp_path: Path) -> None:
    executor = LocalCodeExecutor(tmp_path / "later")
    executor.dump_component()
    assert executor.work_dir == tmp_path / "later"
    assert list(tmp_path.iterdir()) == []
    assert LocalCodeExecutor().work_dir is None


async def test_a_config_loads_and_dumps_without_loss(tmp_path: Path) -> None:
    executor = LocalCodeExecutor(tmp_path, 2.5, ["TOKEN"], "python3")
    dumped = executor.dump_component()
    assert dumped.provider == "coderoom.executors.LocalCodeExecutor"
    assert dumped.component_type == "code_executor"
    assert dumped.config == {"work_dir": str(tmp_path), "timeout": 2.5, "env": ["TOKEN"], "python": "python3"}
    loaded = CodeExecutor.load_component(dumped.model_dump())
    assert isinstance(loaded, LocalCodeExecutor)
    assert loaded.dump_component() == dumped
    assert LocalCodeExecutor.load_component(LocalCodeExecutor().dump_component()).timeout == 60


def test_an_unknown_key_in_a_config_is_refused() -> None:
    dumped = LocalCodeExecutor().dump_component().model_dump()
    dumped["config"]["time_out"] = 3
    with pytest.raises(ValidationError, match="time_out"):
        LocalCodeExecutor.load_component(dumped)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(ValidationError, match="timeout"):
        LocalCodeExecutor(timeout=timeout)


@pytest.mark.parametrize("env", ["HOME", ["A=B"], [""]])
def test_names_that_are_none_are_refused(env: str | list[str]) -> None:
    with pytest.raises(ValueError, match="env"):
        LocalCodeExecutor(env=env)


async def test_a_temporary_folder_lives_from_start_to_stop() -> None:
    executor = LocalCodeExecutor()
    await executor.start()
    first = executor.work_dir
    await executor.start()
    assert first is not None
    assert first.is_dir()
    assert executor.work_dir == first
    await executor.execute_code_blocks([shell("mkdir -p a/b; chmod 0 a/b; touch kept")], CancellationToken())
    assert (first / "kept").exists()
    await executor.restart()
    second = executor.work_dir
    assert second is not None
    assert second != first
    assert not first.parent.exists()
    assert list(second.iterdir()) == []
    await executor.stop()
    await executor.stop()
    assert not second.parent.exists()


async def test_a_temporary_folder_is_unknown_after_the_stop() -> None:
    executor = LocalCodeExecutor()
    async with executor:
        pass
    assert executor.work_dir is None


@pytest.mark.parametrize("kind", [LocalCodeExecutor, SandboxCodeExecutor])
async def test_restarting_what_was_never_started_does_nothing(
    kind: type[LocalCodeExecutor | SandboxCodeExecutor],
) -> None:
    executor = kind()
    await executor.restart()
    assert executor.work_dir is None


class OwnLocalCodeExecutor(LocalCodeExecutor):
    """A user's subclass."""

    component_provider_override = f"{__name__}.OwnLocalCodeExecutor"


class UnnamedLocalCodeExecutor(LocalCodeExecutor):
    """A user's subclass that says nothing about its provider."""


@pytest.mark.parametrize("kind", [OwnLocalCodeExecutor, UnnamedLocalCodeExecutor])
def test_a_subclass_comes_back_as_itself(kind: type[LocalCodeExecutor]) -> None:
    assert type(CodeExecutor.load_component(kind(timeout=3).dump_component())) is kind


async def test_a_given_folder_is_kept_and_code_can_import_what_earlier_code_wrote(tmp_path: Path) -> None:
    executor = LocalCodeExecutor(tmp_path)
    await executor.execute_code_blocks([python("open('tool.py', 'w').write('value = 5')")], CancellationToken())
    await executor.restart()
    result = await executor.execute_code_blocks([python("import tool; print(tool.value)")], CancellationToken())
    await executor.stop()
    assert result.output == "5\n"
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"tool.py"}


async def test_a_folder_that_the_code_removed_is_made_again(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path / "work") as executor:
        await executor.execute_code_blocks([shell('rm -rf "$PWD"')], CancellationToken())
        result = await executor.execute_code_blocks([python("print('here')")], CancellationToken())
    assert result.output == "here\n"


async def test_a_folder_that_cannot_be_made_is_our_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxUnavailable, match="file/below"):
        await LocalCodeExecutor(tmp_path / "file" / "below").start()


@pytest.mark.parametrize("cleared", ["", "requests"])
@pytest.mark.parametrize("given", [True, False])
async def test_a_private_folder_that_was_cleared_away_is_our_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool, cleared: str
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    async with LocalCodeExecutor(tmp_path / "work" if given else None) as executor:
        (private,) = (tmp_path / "temporary").iterdir()
        shutil.rmtree(private / cleared)
        with pytest.raises(SandboxUnavailable):
            await executor.execute_code_blocks([python("x")], CancellationToken())
        await executor.restart()
        assert (await executor.execute_code_blocks([python("")], CancellationToken())).exit_code == 0


async def test_an_interpreter_that_is_not_there_is_our_failure(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="no-such-python"):
        await LocalCodeExecutor(tmp_path, python="no-such-python").start()


async def test_an_interpreter_that_went_away_is_our_failure(tmp_path: Path) -> None:
    chosen = tmp_path / "bin" / "python"
    chosen.parent.mkdir()
    chosen.symlink_to(sys.executable)
    async with LocalCodeExecutor(tmp_path / "work", python=str(chosen)) as executor:
        chosen.unlink()
        with pytest.raises(SandboxUnavailable, match="cannot be started"):
            await executor.execute_code_blocks([python("print(1)")], CancellationToken())


async def test_the_interpreter_can_be_chosen_and_shells_find_the_same(tmp_path: Path) -> None:
    chosen = tmp_path / "bin" / "python"
    chosen.parent.mkdir()
    chosen.write_text(f'#!/bin/sh\nexport CHOSEN=yes\nexec {sys.executable} "$@"\n')
    chosen.chmod(0o700)
    async with LocalCodeExecutor(tmp_path / "work", python=str(chosen)) as executor:
        code = "import os; print(os.environ['CHOSEN'])"
        for block in (python(code), shell(f'python -c "{code}"')):
            result = await executor.execute_code_blocks([block], CancellationToken())
            assert result.output == "yes\n"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
async def test_javascript_runs_where_node_is(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path) as executor:
        block = python("// filename: app/main.js\nconsole.log(6 * 7)")
        block.language = "javascript"
        result = await executor.execute_code_blocks([block], CancellationToken())
    assert result.output == "42\n"
    assert (tmp_path / "app" / "main.js").exists()


async def test_tracebacks_name_a_readable_file_and_show_the_line(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path) as executor:
        blocks = [python("print()"), python("x = 1\nx / 0")]
        result = await executor.execute_code_blocks(blocks, CancellationToken())
    assert f'File "{tmp_path}/cell_2.py", line 2' in result.output
    assert "    x / 0\n" in result.output


async def test_a_file_of_the_author_is_not_taken_for_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "cell_1.py").write_text("mine = 1\n")
    async with LocalCodeExecutor(tmp_path) as executor:
        result = await executor.execute_code_blocks([python("import cell_1; print(cell_1.mine)")], CancellationToken())
    assert result.output == "1\n"
    assert (tmp_path / "cell_1.py").read_text() == "mine = 1\n"


async def test_a_named_file_that_cannot_be_written_is_an_error_result(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with LocalCodeExecutor(tmp_path) as executor:
        blocks = [shell("echo before"), python("# filename: file/a.py\nprint(1)")]
        result = await executor.execute_code_blocks(blocks, CancellationToken())
    assert result.exit_code == 1
    assert result.output.startswith(f"before\nThe file '{tmp_path}/file/a.py' cannot be written")


async def test_processes_can_be_spawned_from_a_cell(tmp_path: Path) -> None:
    code = """
import multiprocessing
def double(x): return 2 * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [21]))
"""
    async with LocalCodeExecutor(tmp_path, timeout=30) as executor:
        result = await executor.execute_code_blocks([python(code)], CancellationToken())
    assert result.output == "[42]\n"


async def test_fifty_megabytes_of_output_stay_out_of_this_process(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path) as executor:
        runner = ExecutorRunner(executor)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        code = "line = 'x' * 999\nfor _ in range(50_000): print(line)\nprint('the end')"
        execution = await runner.run([python("print('the start')"), python(code), python("print('more')")])
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert execution.outcome is Outcome.OK
    assert execution.total_chars == 50_000_000 + len("the start\nthe end\nmore\n")
    assert len(execution.output) < 1_100_000
    assert execution.output.startswith("the start\nx")
    assert execution.output.endswith("x\nthe end\nmore\n")
    assert (after - before) * 1024 < 30_000_000
    assert execution.whole_output is not None
    assert execution.whole_output.parent == tmp_path / ".coderoom"
    assert execution.whole_output.stat().st_size == execution.total_chars


async def test_stop_ends_what_runs(tmp_path: Path) -> None:
    executor = LocalCodeExecutor(tmp_path)
    task = asyncio.create_task(executor.execute_code_blocks([python(FOREVER)], CancellationToken()))
    await until((tmp_path / "ready").exists)
    await executor.stop()
    result = await task
    assert (result.exit_code, result.execution.outcome) == (125, Outcome.CANCELLED)
    await all_gone(tmp_path)
    again = await executor.execute_code_blocks([python("print('again')")], CancellationToken())
    await executor.stop()
    assert again.output == "again\n"


async def test_code_that_freezes_its_keeper_is_ended_all_the_same(tmp_path: Path) -> None:
    code = TREE.replace("'ready'", "'soon'") + "os.kill(os.getppid(), 19)\n" + FOREVER
    async with LocalCodeExecutor(tmp_path) as executor:
        token = CancellationToken()
        task = asyncio.create_task(executor.execute_code_blocks([python(code)], token))
        await until((tmp_path / "ready").exists)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await all_gone(tmp_path)


async def test_code_that_freezes_its_keeper_does_not_outlive_its_time(tmp_path: Path) -> None:
    async with LocalCodeExecutor(tmp_path, timeout=0.5) as executor, asyncio.timeout(30):
        code = "import os, time; print('begun'); time.sleep(0.2); os.kill(os.getppid(), 19)\nwhile True: pass"
        result = await executor.execute_code_blocks([python(code)], CancellationToken())
    assert result.execution.outcome is Outcome.TIMEOUT
    assert result.execution.output == "begun\n"
    await all_gone(tmp_path)


@pytest.mark.parametrize("number", [9, 15])
async def test_code_that_ends_its_keeper_has_failed(tmp_path: Path, number: int) -> None:
    async with LocalCodeExecutor(tmp_path) as executor, asyncio.timeout(30):
        code = f"import os, time; print('begun'); time.sleep(0.2); os.kill(os.getppid(), {number})\nwhile True: pass"
        result = await executor.execute_code_blocks([python(code)], CancellationToken())
    assert result.execution.outcome is Outcome.ERROR
    assert result.exit_code == 128 + number
    assert result.output.startswith("begun\n")
    await all_gone(tmp_path)


HOST = """
import asyncio, sys, warnings
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from coderoom.executors import ExecutorRunner, LocalCodeExecutor, SandboxCodeExecutor
warnings.simplefilter("ignore")
folder = sys.argv[2]
executor = LocalCodeExecutor(folder) if sys.argv[1] == "ours" else LocalCommandLineCodeExecutor(work_dir=folder)
code = open(sys.argv[3]).read()
asyncio.run(ExecutorRunner(executor).run([CodeBlock(code=code, language="python")]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ["ours"])
async def test_a_host_that_ends_takes_the_code_with_it(tmp_path: Path, kind: str, number: signal.Signals) -> None:
    work, temporary, code = tmp_path / "work", tmp_path / "temporary", tmp_path / "code.py"
    temporary.mkdir()
    code.write_text(TREE + "time.sleep(300)")
    command = [sys.executable, "-c", HOST, kind, str(work), str(code)]
    host = subprocess.Popen(command, env=os.environ | {"TMPDIR": str(temporary)}, stderr=subprocess.DEVNULL)
    try:
        await until((work / "ready").exists, 30)
        assert len(processes(work)) > 4
        host.send_signal(number)
        await asyncio.to_thread(host.wait, 30)
    finally:
        host.kill()
        host.wait()
    await all_gone(work)
    await until(lambda: list(temporary.iterdir()) == [])
    if kind == "ours":
        await until(lambda: [path.name for path in work.iterdir()] == ["ready"])


async def test_code_that_removes_the_launchers_folder_is_ended_and_breaks_only_its_own_run(tmp_path: Path) -> None:
    code = """
import os, shutil
shutil.rmtree(open(f"/proc/{os.getppid()}/cmdline").read().split("\\0")[4])
"""
    async with LocalCodeExecutor(tmp_path) as executor:
        with pytest.raises(SandboxUnavailable, match="launcher broke"):
            await executor.execute_code_blocks([python(TREE + code)], CancellationToken())
        await all_gone(tmp_path)
        result = await executor.execute_code_blocks([python("print('next')")], CancellationToken())
    assert result.output == "next\n"
