"""The sandbox as an AutoGen executor: what a model reads, state, outcomes, and files."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeBlock

from coderoom.errors import SandboxUnavailable
from coderoom.executors import SandboxCodeExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import Limits
from tests.executors.helpers import marked, shell, until
from tests.executors.helpers import run_in as run

# --- What a model reads ---


async def test_the_output_is_what_was_printed_and_the_last_value(sandbox_executor: SandboxCodeExecutor) -> None:
    assert (await run(sandbox_executor, "print('a')\n[1, 'b']")).output == "a\n[1, 'b']\n"
    assert (await run(sandbox_executor, "print('a', end='')\n'b'")).output == "a\n'b'\n"
    assert (await run(sandbox_executor, "print('a')\nNone")).output == "a\n"
    assert (await run(sandbox_executor, "x = 3")).output == ""
    assert (await run(sandbox_executor, "print(1)\n2", shell("echo 3"), "4")).output == "1\n2\n3\n4\n"


async def test_a_last_value_of_any_kind_is_shown_as_its_repr(sandbox_executor: SandboxCodeExecutor) -> None:
    code = "class Table:\n    def __repr__(self): return 'a  b\\n1  2'\nTable()"
    assert (await run(sandbox_executor, code)).output == "a  b\n1  2\n"
    assert (await run(sandbox_executor, "'\\ud800'")).output == "'\\ud800'\n"


async def test_a_failure_shows_the_lines_of_the_code_only(sandbox_executor: SandboxCodeExecutor) -> None:
    result = await run(sandbox_executor, "def half(x):\n    return x / 0\nhalf(1)")
    assert (result.execution.outcome, result.exit_code) == (Outcome.ERROR, 1)
    assert result.output.endswith("ZeroDivisionError: division by zero\n")
    assert "return x / 0" in result.output
    assert "coderoom_guest" not in result.output


async def test_the_first_block_that_fails_is_the_last_that_runs(sandbox_executor: SandboxCodeExecutor) -> None:
    result = await run(sandbox_executor, "print(1)", shell("echo 2; exit 3"), "print('never')")
    assert (result.execution.outcome, result.exit_code, result.output) == (Outcome.ERROR, 3, "1\n2\n")


async def test_the_languages_and_their_names(sandbox_executor: SandboxCodeExecutor) -> None:
    code = {"python": "print('hi')", "sh": "echo hi", "bash": "echo hi", "javascript": "console.log('hi')"}
    names = {"py": "python", "Python3": "python", "shell": "sh", "js": "javascript", "node": "javascript"}
    for name, language in {**{name: name for name in code}, **names}.items():
        assert (await run(sandbox_executor, CodeBlock(code=code[language], language=name))).output == "hi\n", name


# --- State ---


async def test_a_session_lasts_from_block_to_block_and_from_call_to_call(sandbox_executor: SandboxCodeExecutor) -> None:
    assert (await run(sandbox_executor, "import math\nx = 40", "x += 1")).output == ""
    assert (await run(sandbox_executor, "x + math.floor(1.5)")).output == "42\n"
    await run(sandbox_executor, "y = 1\n1 / 0")
    assert (await run(sandbox_executor, "x + y")).output == "42\n"


async def test_a_fresh_state_has_nothing_but_the_files() -> None:
    async with SandboxCodeExecutor(state="fresh") as executor:
        result = await run(executor, "x = 1\nopen('a.txt', 'w').write('kept')\nNone", "open('a.txt').read()", "x")
    assert result.output.startswith("'kept'\n")
    assert "NameError" in result.output


async def test_lost_variables_are_told_of(sandbox_executor: SandboxCodeExecutor) -> None:
    await run(sandbox_executor, "x = 1")
    result = await run(sandbox_executor, "import os\nprint('here', flush=True)\nos._exit(7)")
    assert result.exit_code == 7
    assert result.output == "here\n[The session was restarted: earlier variables are gone.]\n"
    assert "NameError" in (await run(sandbox_executor, "x")).output


async def test_calls_at_the_same_time_do_not_mix_their_blocks(sandbox_executor: SandboxCodeExecutor) -> None:
    await run(sandbox_executor, "import time\nseen = []")
    blocks = [[f"seen.append({n})\ntime.sleep(0.01)", f"seen.append({n})"] for n in range(5)]
    await asyncio.gather(*(run(sandbox_executor, *pair) for pair in blocks))
    result = await run(sandbox_executor, "[seen[i] == seen[i + 1] for i in range(0, 10, 2)]")
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
        assert result.output.count("wanted more memory than the 256 MiB that it may have.") == 1
        assert result.output.endswith("[Variables that were set before are still there.]\n")
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


async def test_an_exception_by_the_name_of_a_limit_is_an_exception(sandbox_executor: SandboxCodeExecutor) -> None:
    result = await run(sandbox_executor, "class Limit(Exception): pass\nraise Limit('of my own')")
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
