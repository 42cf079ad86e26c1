"""The sandbox as an AutoGen executor: its life, and going back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import CodeExecutorAgent as AutoGensAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_ext.tools.code_execution import PythonCodeExecutionTool

from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.executors import Checkpoints, ExecutorRunner, SandboxCodeExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import Sandbox, probe_walls
from tests.executors.helpers import marked, python, shell, until
from tests.executors.helpers import run_in as run

# No engine listens there, so that this wall cannot be built on any machine.
NO_DOCKER = "unix:///nowhere/docker.sock"


def test_making_one_does_nothing(tmp_path: Path) -> None:
    before = set(Path("/proc").iterdir())
    executor = SandboxCodeExecutor(tmp_path / "work", preload=["no_such_module"], wall="docker")
    assert SandboxCodeExecutor.load_component(executor.dump_component()).dump_component() == executor.dump_component()
    assert list(tmp_path.iterdir()) == []
    assert SandboxCodeExecutor().work_dir is None
    assert executor.wall == "docker"
    assert {path for path in Path("/proc").iterdir() if path.name.isdigit()} >= {
        path for path in before if path.name.isdigit() and path.exists()
    }


async def test_it_starts_and_stops_and_starts_again() -> None:
    executor = SandboxCodeExecutor()
    await executor.stop()
    folders = []
    for _ in range(2):
        assert (await run(executor, "6 * 7")).output == "42\n"
        assert executor.work_dir is not None
        folders.append(executor.work_dir)
        await executor.start()
        await executor.stop()
        await executor.stop()
        assert executor.work_dir is None
    assert not any(folder.exists() for folder in folders)


LOOPS = """
import asyncio
from autogen_core.code_executor import CodeBlock
from coderoom.executors import ExecutorRunner, SandboxCodeExecutor

executor = SandboxCodeExecutor()
runner = ExecutorRunner(executor)
blocks = [CodeBlock(code=code, language="python") for code in ("'x' in globals()", "x = 1")]
folders = []
for _ in range(2):
    assert asyncio.run(runner.run(blocks)).output == "False\\n"
    folders.append(executor.work_dir)
asyncio.run(runner.stop())
assert not any(folder.exists() for folder in folders)
"""


@pytest.mark.slow
def test_it_can_be_used_in_one_event_loop_after_another() -> None:
    # In a process of its own: sockets of a loop that is closed are left to the garbage collector, which warns of them.
    subprocess.run([sys.executable, "-c", LOOPS], check=True, timeout=60)


async def test_what_is_preloaded_is_there_and_what_cannot_be_is_said(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(preload=["decimal"]) as executor:
        assert (await run(executor, "import sys\n'decimal' in sys.modules")).output == "True\n"
    executor = SandboxCodeExecutor(preload=["no_such_module"])
    with pytest.raises(MissingDependencyError, match="'no_such_module'"):
        await run(executor, "1")
    await executor.stop()


async def test_where_no_wall_can_be_built_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NO_DOCKER)
    executor = SandboxCodeExecutor(tmp_path, wall="docker")
    for _ in range(2):
        with pytest.raises(SandboxUnavailable, match="nowhere"):
            await ExecutorRunner(executor).run([python("open('made.txt', 'w')")])
    await executor.stop()
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_code_must_not_have_is_refused() -> None:
    with pytest.raises(RequestError, match="home or system folder"):
        await ExecutorRunner(SandboxCodeExecutor("/etc")).run([python("1")])
    # It is no result of the code either, by whatever way it is asked.
    executor = SandboxCodeExecutor("/etc")
    with pytest.raises(RequestError, match="home or system folder"):
        await executor.execute_code_blocks([python("1")], CancellationToken())
    await executor.stop()


async def test_a_folder_that_cannot_be_is_our_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxUnavailable, match="work directory"):
        await SandboxCodeExecutor(tmp_path / "file" / "folder").start()


async def test_without_a_wall_it_is_the_same(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path, wall="none", timeout=1) as executor:
        assert executor.wall == "none"
        assert (await run(executor, "x = 6", shell("echo hi"), "x * 7")).output == "hi\n42\n"
        assert (await run(executor, "while True: pass")).execution.outcome is Outcome.TIMEOUT


async def test_the_wall_has_a_name_once_it_stands() -> None:
    executor = SandboxCodeExecutor()
    assert executor.wall == "auto"
    async with executor:
        assert executor.wall in {report.name for report in await probe_walls() if report.available}
    assert executor.wall == "auto"


HOST = """
import asyncio, sys
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from coderoom.executors import SandboxCodeExecutor

async def main():
    executor = SandboxCodeExecutor()
    code = "import os, subprocess\\nos.mkdir('locked')\\nopen('locked/a', 'w').close()\\nos.chmod('locked', 0)"
    await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
    print(executor.work_dir, flush=True)
    if sys.argv[2] == "end":
        return
    code = f"subprocess.run(['sh', '-c', 'while :; do mkdir -p d; echo > d/$$; sleep 0.01; done # {sys.argv[1]}'])"
    await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "end"])
async def test_nothing_is_left_of_a_host_that_never_stopped_it(how: str) -> None:
    mark = f"sandbox-host-{os.getpid()}-{how}"
    process = subprocess.Popen([sys.executable, "-c", HOST, mark, how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        folder = Path(await asyncio.to_thread(process.stdout.readline)).parent
        assert folder.name.startswith("coderoom-")
        if how == "kill":
            await until(lambda: bool([line for line in marked(mark) if "while" in line]), 20)
            process.kill()
        await asyncio.to_thread(process.wait, 20)
    await until(lambda: not folder.exists() and not marked(mark), 20)


@pytest.mark.filterwarnings("ignore:No approval function set:UserWarning")
async def test_autogens_own_agent_and_tool_take_it() -> None:
    async with SandboxCodeExecutor() as executor:
        task = TextMessage(content="```python\nx = 40\nprint(x)\n```", source="user")
        response = await AutoGensAgent("terminal", executor).on_messages([task], CancellationToken())
        assert response.chat_message.to_text() == "40\n"
        tool = PythonCodeExecutionTool(executor)
        result = await tool.run_json({"code": "x + 2"}, CancellationToken())
        assert tool.return_value_as_string(result) == "42\n"


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


# --- Going back ---


async def test_going_back_undoes_variables_and_files(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path) as executor:
        assert isinstance(executor, Checkpoints)
        await run(executor, "x = 1\nopen('a.txt', 'w').write('1')\nNone")
        mark = await executor.checkpoint()
        for _ in range(2):
            await run(executor, "x = y = 2\nopen('a.txt', 'w').write('2')\nopen('b.txt', 'w').close()")
            assert await executor.rollback(mark) == "variables and files"
            result = await run(executor, "import os\nx, 'y' in globals(), open('a.txt').read(), os.listdir()")
            assert result.output == "(1, False, '1', ['a.txt'])\n"
        await executor.release(mark)
        assert (await run(executor, "x")).output == "1\n"


async def test_marks_that_are_released_leave_no_process_behind(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path, limits={"processes": 12}) as executor:
        await run(executor, "x = 0")
        for number in range(40):
            mark = await executor.checkpoint()
            assert (await run(executor, "x += 1\nx")).output == f"{(number + 2) // 3 + 1}\n"
            if number % 3:
                await executor.rollback(mark)
            await executor.release(mark)


async def test_in_a_fresh_state_files_are_what_goes_back(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path, state="fresh") as executor:
        mark = await executor.checkpoint()
        await run(executor, "open('a.txt', 'w').close()")
        assert await executor.rollback(mark) == "files"
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", ["session", "fresh"])
async def test_too_many_files_to_be_kept(tmp_path: Path, state: Any) -> None:
    (tmp_path / "large").write_bytes(bytes(100_000))
    async with SandboxCodeExecutor(tmp_path, state=state, limits={"disk_bytes": 65_536}) as executor:
        if state == "fresh":
            with pytest.raises(RequestError, match="too large"):
                await executor.checkpoint()
            return
        await run(executor, "x = 1")
        mark = await executor.checkpoint()
        await run(executor, "x = 2")
        assert await executor.rollback(mark) == "variables"
        assert (await run(executor, "x")).output == "1\n"


async def test_a_mark_of_before_a_stop_is_gone(tmp_path: Path) -> None:
    executor = SandboxCodeExecutor(tmp_path)
    mark = await executor.checkpoint()
    await executor.stop()
    with pytest.raises(RequestError, match="checkpoint is gone"):
        await executor.rollback(mark)
    await executor.release(mark)
