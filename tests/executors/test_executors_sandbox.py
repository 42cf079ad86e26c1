"""The sandbox as an AutoGen executor: state, outcomes, folders, its life, and its config."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from autogen_agentchat.agents import CodeExecutorAgent as AutoGensAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_ext.tools.code_execution import PythonCodeExecutionTool
from pydantic import ValidationError

from coderoom.configs import check_team
from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.executors import Checkpoints, ExecutorRunner, SandboxCodeExecutor, SandboxCodeResult
from coderoom.executors._sandbox_config import WallName
from coderoom.outcome import Outcome
from coderoom.sandbox import Limits, probe_walls
from tests.executors.helpers import marked, python, shell, until

# No engine listens there, so that this wall cannot be built on any machine.
NO_DOCKER = "unix:///nowhere/docker.sock"


async def run(executor: CodeExecutor, *blocks: CodeBlock | str) -> SandboxCodeResult:
    async with asyncio.timeout(60):
        wanted = [python(block) if isinstance(block, str) else block for block in blocks]
        result = await executor.execute_code_blocks(wanted, CancellationToken())
    assert isinstance(result, SandboxCodeResult)
    assert (result.exit_code, result.output) == (result.execution.exit_code, result.execution.output)
    return result


# --- What a model reads ---


async def test_the_output_is_what_was_printed_and_the_last_value() -> None:
    async with SandboxCodeExecutor() as executor:
        assert (await run(executor, "print('a')\n[1, 'b']")).output == "a\n[1, 'b']\n"
        assert (await run(executor, "print('a', end='')\n'b'")).output == "a\n'b'\n"
        assert (await run(executor, "print('a')\nNone")).output == "a\n"
        assert (await run(executor, "x = 3")).output == ""
        assert (await run(executor, "print(1)\n2", shell("echo 3"), "4")).output == "1\n2\n3\n4\n"


async def test_a_last_value_of_any_kind_is_shown_as_its_repr() -> None:
    async with SandboxCodeExecutor() as executor:
        code = "class Table:\n    def __repr__(self): return 'a  b\\n1  2'\nTable()"
        assert (await run(executor, code)).output == "a  b\n1  2\n"
        assert (await run(executor, "'\\ud800'")).output == "'\\ud800'\n"


async def test_a_failure_shows_the_lines_of_the_code_only() -> None:
    async with SandboxCodeExecutor() as executor:
        result = await run(executor, "def half(x):\n    return x / 0\nhalf(1)")
    assert (result.execution.outcome, result.exit_code) == (Outcome.ERROR, 1)
    assert result.output.endswith("ZeroDivisionError: division by zero\n")
    assert "return x / 0" in result.output
    assert "_inside" not in result.output


async def test_the_first_block_that_fails_is_the_last_that_runs() -> None:
    async with SandboxCodeExecutor() as executor:
        result = await run(executor, "print(1)", shell("echo 2; exit 3"), "print('never')")
    assert (result.execution.outcome, result.exit_code, result.output) == (Outcome.ERROR, 3, "1\n2\n")


@pytest.mark.parametrize("language", ["python", "py", "Python3", "sh", "shell", "bash", "javascript", "js", "node"])
async def test_the_languages_and_their_names(language: str) -> None:
    code = {"p": "print('hi')", "P": "print('hi')", "s": "echo hi", "b": "echo hi"}.get(
        language[0], "console.log('hi')"
    )
    async with SandboxCodeExecutor() as executor:
        assert (await run(executor, CodeBlock(code=code, language=language))).output == "hi\n"


# --- State ---


async def test_a_session_lasts_from_block_to_block_and_from_call_to_call() -> None:
    async with SandboxCodeExecutor() as executor:
        assert (await run(executor, "import math\nx = 40", "x += 1")).output == ""
        assert (await run(executor, "x + math.floor(1.5)")).output == "42\n"
        await run(executor, "y = 1\n1 / 0")
        assert (await run(executor, "x + y")).output == "42\n"


async def test_a_fresh_state_has_nothing_but_the_files() -> None:
    async with SandboxCodeExecutor(state="fresh") as executor:
        result = await run(executor, "x = 1\nopen('a.txt', 'w').write('kept')\nNone", "open('a.txt').read()", "x")
    assert result.output.startswith("'kept'\n")
    assert "NameError" in result.output


async def test_lost_variables_are_told_of() -> None:
    async with SandboxCodeExecutor() as executor:
        await run(executor, "x = 1")
        result = await run(executor, "import os\nprint('here', flush=True)\nos._exit(7)")
        assert result.exit_code == 7
        assert result.output == "here\n[The session was restarted: earlier variables are gone.]\n"
        assert "NameError" in (await run(executor, "x")).output


async def test_calls_at_the_same_time_do_not_mix_their_blocks() -> None:
    async with SandboxCodeExecutor() as executor:
        await run(executor, "import time\nseen = []")
        blocks = [[f"seen.append({n})\ntime.sleep(0.01)", f"seen.append({n})"] for n in range(5)]
        await asyncio.gather(*(run(executor, *pair) for pair in blocks))
        result = await run(executor, "[seen[i] == seen[i + 1] for i in range(0, 10, 2)]")
    assert result.output == "[True, True, True, True, True]\n"


async def test_restarting_is_a_fresh_state_in_an_empty_folder(tmp_path: Path) -> None:
    for folder, left in ((None, "[]"), (tmp_path, "['kept.txt', 'locked']")):
        async with SandboxCodeExecutor(folder) as executor:
            await run(
                executor, "x = 1\nopen('kept.txt', 'w').close()\nimport os; os.mkdir('locked'); os.chmod('locked', 0)"
            )
            await executor.restart()
            assert (await run(executor, "import os\nsorted(os.listdir())")).output == f"{left}\n"
            assert "NameError" in (await run(executor, "x")).output


async def test_a_restart_ends_what_runs() -> None:
    async with SandboxCodeExecutor() as executor:
        task = asyncio.create_task(run(executor, "x = 1\nprint('begun')\nopen('ready', 'w')\nwhile True: pass"))
        await until(lambda: executor.work_dir is not None and (executor.work_dir / "ready").exists())
        await executor.restart()
        assert (await task).execution.outcome is Outcome.CANCELLED
        assert (await run(executor, "6 * 7")).output == "42\n"


# --- Outcomes ---


async def test_a_timeout_says_what_happened_and_what_is_left() -> None:
    async with SandboxCodeExecutor(timeout=0.5, limits={"wall_seconds": 50}) as executor:
        await run(executor, "x = 1")
        result = await run(executor, "print('before')\nwhile True: pass", "print('never')")
        assert (result.execution.outcome, result.exit_code) == (Outcome.TIMEOUT, 124)
        assert result.output.startswith("before\n")
        assert result.output.endswith(
            "[The code was stopped after 0.5 seconds. Variables that were set before are still there.]\n"
        )
        assert (await run(executor, "x")).output == "1\n"


async def test_of_a_fresh_state_no_variables_are_promised() -> None:
    async with SandboxCodeExecutor(timeout=0.5, state="fresh") as executor:
        result = await run(executor, "while True: pass")
    assert result.output.endswith("[The code was stopped after 0.5 seconds.]\n")


async def test_too_much_memory() -> None:
    async with SandboxCodeExecutor(limits=Limits(memory_bytes=256 << 20)) as executor:
        await run(executor, "x = 1")
        result = await run(executor, "print('before')\ny = bytearray(1 << 30)")
        assert (result.execution.outcome, result.exit_code) == (Outcome.MEMORY, 137)
        assert result.output.startswith("before\n")
        assert "wanted more memory than the 256 MiB that it may have." in result.output.splitlines()[-1]
        assert (await run(executor, "1")).output == "1\n"


@pytest.mark.parametrize(
    ("limits", "code", "words"),
    [
        ({"open_files": 64}, "files = [open('/dev/null') for _ in range(99)]", "may have 64 files open"),
        ({"file_bytes": 65_536}, "open('x', 'wb').write(b'x' * 100_000)", "files of up to 65,536 bytes"),
    ],
)
async def test_a_limit_is_named(limits: dict[str, Any], code: str, words: str) -> None:
    async with SandboxCodeExecutor(limits=limits, timeout=20) as executor:
        result = await run(executor, code)
    assert result.execution.outcome is not Outcome.OK
    assert words in result.output.splitlines()[-1]


async def test_an_exception_by_the_name_of_a_limit_is_an_exception() -> None:
    async with SandboxCodeExecutor() as executor:
        result = await run(executor, "class Limit(Exception): pass\nraise Limit('of my own')")
    assert result.output.endswith("Limit: of my own\n")
    assert "[of my own]" not in result.output


async def test_what_the_policy_refuses_is_rejected_before_anything_runs(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path, policy="restricted") as executor:
        assert (await run(executor, "result = 6 * 7")).output == "42\n"
        result = await run(executor, "print('never')", "# filename: a.py\nimport subprocess", "print('never')")
        assert (result.execution.outcome, result.exit_code) == (Outcome.REJECTED, 126)
        assert "Block 2 of 3 is not allowed, so none was run." in result.output
        assert "subprocess" in result.output
        assert "never" not in result.output
        result = await run(executor, shell("echo never"))
        assert result.execution.outcome is Outcome.REJECTED
    assert list(tmp_path.iterdir()) == []


async def test_a_broken_sandbox_is_no_outcome_and_the_next_code_has_a_new_one() -> None:
    async with SandboxCodeExecutor() as executor:
        await run(executor, "x = 1")
        mark = f"sandbox-broken-{os.getpid()}"
        task = asyncio.create_task(
            run(executor, f"import subprocess\nsubprocess.run(['sh', '-c', 'sleep 300 # {mark}'])")
        )
        await until(lambda: bool(marked(mark)))
        os.kill(child_above(int(marked(mark)[0].split()[0])), signal.SIGKILL)
        with pytest.raises(SandboxUnavailable):
            await task
        result = await run(executor, "print('x' in globals())")
        assert result.output == "[The session was restarted: earlier variables are gone.]\nFalse\n"
        assert (await run(executor, "1")).output == "1\n"


def child_above(pid: int) -> int:
    """The child of this process that another one descends from."""
    while True:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if parent == os.getpid():
            return pid
        pid = parent


# --- Files ---


async def test_the_work_directory_is_a_folder_of_this_machine(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path / "work") as executor:
        assert (await run(executor, "open('a.txt', 'w').write('from inside')\nNone")).output == ""
        assert (tmp_path / "work" / "a.txt").read_text() == "from inside"
        (tmp_path / "work" / "b.txt").write_text("from outside")
        assert (await run(executor, "open('b.txt').read()")).output == "'from outside'\n"
        assert executor.work_dir == tmp_path / "work"
    assert (tmp_path / "work" / "a.txt").exists()


async def test_artifacts_are_files_of_this_machine(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path) as executor:
        first = "import os\nos.mkdir('d')\nopen('d/a.png', 'wb').write(b'x')\nNone"
        result = await run(
            executor, first, "open('b.txt', 'w').write('y')\nNone", "open('b.txt', 'a').write('z')\nNone"
        )
        assert [(found.name, found.size, found.path) for found in result.artifacts] == [
            ("d/a.png", 1, tmp_path / "d" / "a.png"),
            ("b.txt", 2, tmp_path / "b.txt"),
        ]
        assert (await run(executor, "1")).artifacts == ()


async def test_a_named_file_may_be_named_by_its_place_inside(tmp_path: Path) -> None:
    async with SandboxCodeExecutor(tmp_path) as executor:
        assert (await run(executor, "# filename: /workspace/src/../src/a.py\nx = 1", "x")).output == "1\n"
    assert (tmp_path / "src" / "a.py").read_text() == "# filename: /workspace/src/../src/a.py\nx = 1"


async def test_files_of_a_folder_that_is_somebody_elses_are_theirs(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can work for somebody else")
    work = tmp_path / "work"
    work.mkdir()
    os.chown(work, 4321, 4321)
    async with SandboxCodeExecutor(work) as executor:
        await run(executor, "# filename: src/a.py\nopen('src/b.txt', 'w').close()\nopen('src/a.py', 'a').write('#')")
    assert {(path.name, path.stat().st_uid) for path in work.rglob("*")} == {
        ("src", 4321),
        ("a.py", 4321),
        ("b.txt", 4321),
    }


# --- Life ---


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


# --- Config ---


def every_argument(folder: Path) -> dict[str, Any]:
    """A value that is not the default for each argument."""
    return {
        "work_dir": str(folder),
        "timeout": 7.5,
        "state": "fresh",
        "wall": "docker",
        "preload": ["json"],
        "network": True,
        "policy": "restricted",
        "limits": {"memory_bytes": 1 << 28},
        "env": ["LANG"],
        "python": "/usr/bin/python3",
        "readable": ["/srv/data"],
        "options": {"image": "python:3.12-slim"},
    }


def test_f6_every_argument_survives_a_round_trip(tmp_path: Path) -> None:
    given = every_argument(tmp_path)
    dumped = SandboxCodeExecutor(**given).dump_component()
    assert dumped.provider == "coderoom.executors.SandboxCodeExecutor"
    assert dumped.config == given
    again = SandboxCodeExecutor.load_component(json.loads(dumped.model_dump_json()))
    assert again.dump_component() == dumped
    defaults = SandboxCodeExecutor().dump_component().config
    assert [name for name in given if defaults.get(name) == given[name]] == []
    with_objects = given | {
        "limits": Limits(memory_bytes=1 << 28),
        "work_dir": tmp_path,
        "readable": [Path("/srv/data")],
    }
    assert SandboxCodeExecutor(**with_objects).dump_component() == dumped


async def test_f6_nothing_of_this_machine_gets_into_a_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret-value")
    executor = SandboxCodeExecutor(env=["SOME_KEY"])
    before = executor.dump_component()
    async with executor:
        assert (await run(executor, "import os\nos.environ['SOME_KEY']")).output == "'secret-value'\n"
        assert executor.dump_component() == before
    assert "secret-value" not in before.model_dump_json()


def test_f1_an_unknown_key_is_refused() -> None:
    for config in (
        {"work_dri": "x"},
        {"limits": {"memory": 1}},
        {"wall": "paper"},
        {"policy": "strict"},
        {"timeout": 0},
    ):
        with pytest.raises(ValidationError):
            SandboxCodeExecutor.load_component({"provider": "coderoom.executors.SandboxCodeExecutor", "config": config})


class OwnExecutor(SandboxCodeExecutor):
    """A user's own executor."""


def test_f4_a_subclass_is_dumped_as_itself() -> None:
    assert OwnExecutor().dump_component().provider.endswith("test_executors_sandbox.OwnExecutor")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"env": "HOME"}, "must be a list"),
        ({"preload": "numpy"}, "must be a list"),
        ({"readable": "/srv"}, "must be a list"),
        ({"env": ["A=B"]}, "'A=B'"),
        ({"timeout": float("inf")}, "timeout"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SandboxCodeExecutor(**arguments)


TEAM = """\
provider: coderoom.teams.CodingTeam
config:
  participants:
    - provider: coderoom.agents.CodeExecutorAgent
      config:
        name: runner
        code_executor:
          provider: coderoom.executors.SandboxCodeExecutor
          config:
            {key}: {value}
"""


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("tiemout", "5", "'timeout'"), ("wall", "bubblewarp", "'bubblewrap'"), ("limits", "{memory: 1}", "memory_bytes")],
)
def test_a_mistake_in_a_file_has_its_line(tmp_path: Path, key: str, value: str, words: str) -> None:
    (tmp_path / "team.yaml").write_text(TEAM.format(key=key, value=value))
    [problem] = check_team(tmp_path / "team.yaml")
    assert (problem.line, words in problem.message) == (10, True), problem


async def test_the_names_of_the_walls_are_those_of_the_sandbox() -> None:
    assert set(get_args(WallName)) == {"auto", "none", *(report.name for report in await probe_walls())}
