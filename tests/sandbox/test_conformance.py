"""What every engine behind every wall promises; run on each that this machine has."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from coderoom.errors import MissingDependencyError, RequestError
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Limits, OutputChunk, Sandbox, Session

from .places import Place


async def test_a_run_prints_and_has_a_value(sandbox: Sandbox) -> None:
    result = await sandbox.run("print(sum(range(10)))\n6 * 7")
    assert (result.outcome, result.exit_code) == (Outcome.OK, 0)
    assert (result.stdout, result.stderr, result.output) == ("45\n", "", "45\n")
    assert (result.value, result.value_repr, result.result, result.success) == (42, "42", 42, True)
    assert result.error is None
    assert result.duration > 0


async def test_each_run_starts_fresh(sandbox: Sandbox) -> None:
    assert (await sandbox.run("x = 1")).success
    result = await sandbox.run("x")
    assert result.outcome is Outcome.ERROR
    assert result.error is not None
    assert result.error.type == "NameError"


async def test_a_session_keeps_its_state_over_a_failing_cell(session: Session) -> None:
    await session.run("x = 40\ndef add(a, b):\n    return a + b")
    failed = await session.run("y = 2\nx / 0")
    assert failed.outcome is Outcome.ERROR
    assert not failed.state_lost
    assert (await session.run("add(x, y)")).value == 42


async def test_sessions_do_not_see_each_other(sandbox: Sandbox) -> None:
    async with sandbox.session() as one, sandbox.session() as other:
        await one.run("x = 1")
        assert (await other.run("x")).outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("None", None),
        ("True", True),
        ("1.5", 1.5),
        ("'ä\\ud800'[0]", "ä"),
        ("[1, 'a', None, {'b': [2.5]}]", [1, "a", None, {"b": [2.5]}]),
        ("{'a': {}}", {"a": {}}),
        ("x = 3", None),
        ("{1, 2}", "{1, 2}"),
        ("{1: 2}", "{1: 2}"),
        ("b'x'", "b'x'"),
    ],
)
async def test_values_come_back_as_data_or_as_repr(sandbox: Sandbox, code: str, value: object) -> None:
    result = await sandbox.run(code)
    assert result.value == value
    assert type(result.value) is type(value)


async def test_a_traceback_shows_the_lines_of_the_code_only(place: Place, session: Session) -> None:
    await session.run("def half(x):\n    return x / 0")
    result = await session.run("y = 1\nhalf(y)")
    assert result.error is not None
    assert (result.error.type, result.error.line) == ("ZeroDivisionError", 2)
    assert "half(y)" in result.error.traceback
    assert "return x / 0" in result.error.traceback
    assert "_inside" not in result.error.traceback
    assert result.error.message in result.output


async def test_a_syntax_error_is_the_codes_failure(sandbox: Sandbox) -> None:
    result = await sandbox.run("x = 1\nif x\n    pass")
    assert result.outcome is Outcome.ERROR
    assert result.error is not None
    assert (result.error.type, result.error.line) == ("SyntaxError", 2)


async def test_await_at_top_level(sandbox: Sandbox) -> None:
    result = await sandbox.run("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3\nawait f()")
    assert result.value == 3


async def test_input_has_a_clear_error_at_once(sandbox: Sandbox) -> None:
    result = await sandbox.run("input('name? ')")
    assert result.outcome is Outcome.ERROR
    assert result.error is not None
    assert "input()" in result.error.message


async def test_output_arrives_while_the_cell_runs(session: Session) -> None:
    seen: list[OutputChunk | ExecutionResult] = []
    first_at = last_at = 0.0
    loop = asyncio.get_running_loop()
    async for item in session.stream("print('a')\nfor i in range(6_000_000): pass\nprint('b')"):
        seen.append(item)
        if len(seen) == 1:
            first_at = loop.time()
        last_at = loop.time()
    assert isinstance(seen[-1], ExecutionResult)
    assert "".join(item.text for item in seen if isinstance(item, OutputChunk)) == "a\nb\n"
    assert last_at - first_at > seen[-1].duration / 3


async def test_output_is_bounded_and_counted(place: Place) -> None:
    async with place.sandbox(limits=Limits(output_bytes=4096)) as sandbox:
        result = await sandbox.run("for i in range(20_000):\n    print(i)\nprint('end')")
    assert result.outcome is Outcome.OK
    assert result.truncated
    assert result.output_size == sum(len(f"{i}\n") for i in range(20_000)) + 4
    assert len(result.output) < 4096 + 200
    assert result.output.startswith("0\n1\n2\n")
    assert result.output.endswith("19999\nend\n")
    assert "left out" in result.output


async def test_a_deadline_ends_the_cell_and_keeps_its_output(session: Session) -> None:
    await session.run("x = 1")
    result = await session.run("print('before')\nwhile True: pass", timeout=0.5)
    assert (result.outcome, result.exit_code, result.limit) == (Outcome.TIMEOUT, 124, "wall")
    assert result.stdout == "before\n"
    assert result.error is not None
    assert "0.5 seconds" in result.error.message
    again = await session.run("1 + 1")
    assert again.value == 2


async def test_what_a_deadline_costs_is_said(session: Session) -> None:
    await session.run("x = 1")
    result = await session.run("while True: pass", timeout=0.3)
    assert result.error is not None
    if result.state_lost:
        assert "variables are gone" in result.error.message
        assert not (await session.run("x")).success
    else:
        assert (await session.run("x")).value == 1


async def test_cancelling_keeps_the_output(session: Session) -> None:
    task = asyncio.ensure_future(session.run("print('before')\nwhile True: pass"))
    await asyncio.sleep(0.3)
    await session.cancel()
    result = await task
    assert (result.outcome, result.exit_code) == (Outcome.CANCELLED, 125)
    assert result.stdout == "before\n"


async def test_a_cancelled_task_ends_the_code(session: Session) -> None:
    task = asyncio.ensure_future(session.run("while True: pass"))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await session.run("1 + 1")).value == 2


async def test_a_left_stream_ends_the_code(session: Session) -> None:
    async for item in session.stream("while True: print('x')"):
        assert isinstance(item, OutputChunk)
        break
    assert (await session.run("1 + 1")).value == 2


async def test_too_much_memory(place: Place) -> None:
    async with place.sandbox(limits=Limits(memory_bytes=256 * 1024 * 1024)) as sandbox:
        result = await sandbox.run("x = []\nwhile True: x.append('a' * 10_000_000)")
        assert result.outcome is Outcome.MEMORY, result
        assert result.exit_code == 137
        assert result.limit == "memory"
        assert (await sandbox.run("1")).value == 1


async def test_deep_recursion_is_an_error(sandbox: Sandbox) -> None:
    result = await sandbox.run("def f(n):\n    return f(n + 1)\nf(0)")
    assert result.outcome is Outcome.ERROR
    assert result.error is not None
    assert result.error.type == "RecursionError"


async def test_rolling_back_undoes_everything_since(session: Session) -> None:
    await session.run("x = 40\ny = [1]")
    mark = await session.checkpoint()
    await session.run("x = None\ny.append(2)\nz = 1")
    await session.rollback(mark)
    result = await session.run("try:\n    z\n    seen = True\nexcept NameError:\n    seen = False\n[x + 2, y, seen]")
    assert result.value == [42, [1], False], result


async def test_checkpoints_nest_and_last(session: Session) -> None:
    await session.run("x = 1")
    one = await session.checkpoint()
    await session.run("x = 2")
    two = await session.checkpoint()
    await session.run("x = 3")
    await session.rollback(two)
    assert (await session.run("x")).value == 2
    await session.run("x = 4")
    await session.rollback(two)
    assert (await session.run("x")).value == 2
    await session.rollback(one)
    assert (await session.run("x")).value == 1
    with pytest.raises(RequestError, match="checkpoint is gone"):
        await session.rollback(two)
    await session.rollback(one)
    assert (await session.run("x")).value == 1


async def test_a_checkpoint_outlives_a_deadline(session: Session) -> None:
    await session.run("x = 1")
    mark = await session.checkpoint()
    await session.run("x = 2\nwhile True: pass", timeout=0.3)
    await session.rollback(mark)
    assert (await session.run("x")).value == 1


async def test_many_at_once(sandbox: Sandbox) -> None:
    results = await asyncio.gather(*(sandbox.run(f"print({i})\n{i} * 2") for i in range(100)))
    assert [result.value for result in results] == [2 * i for i in range(100)]
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(100)]


async def test_a_language_that_nobody_runs(sandbox: Sandbox) -> None:
    with pytest.raises(RequestError, match="'cobol'"):
        await sandbox.run("DISPLAY 'HI'", language="cobol")


async def test_closing_twice_and_using_again(place: Place) -> None:
    sandbox = place.sandbox()
    assert (await sandbox.run("1")).value == 1
    await sandbox.close()
    await sandbox.close()
    assert (await sandbox.run("2")).value == 2
    await sandbox.close()


async def test_a_closed_session_says_so(sandbox: Sandbox) -> None:
    session = sandbox.session()
    await session.close()
    with pytest.raises(RequestError, match="session is closed"):
        await session.run("1")


class TestCPython:
    """What the engine `cpython` promises besides, behind every wall."""

    @pytest.fixture(autouse=True)
    def only_cpython(self, place: Place) -> None:
        if place.engine != "cpython":
            pytest.skip(f"the engine {place.engine} is not CPython")

    async def test_both_streams_in_the_order_written(self, sandbox: Sandbox) -> None:
        code = """\
            import os, subprocess, sys
            print("1")
            print("2", file=sys.stderr)
            print("3", end="")
            print("4", file=sys.stderr)
            subprocess.run(["sh", "-c", "echo 5; echo 6 >&2"])
            print("7")
            os.write(2, b"8\\n")
            sys.stdout.buffer.write(b"9\\n")
        """
        result = await sandbox.run("\n".join(line.strip() for line in code.splitlines()))
        assert result.output == "1\n2\n34\n5\n6\n7\n8\n9\n"
        assert result.stdout == "1\n35\n7\n9\n"
        assert result.stderr == "2\n4\n6\n8\n"

    async def test_exit_codes(self, sandbox: Sandbox, session: Session) -> None:
        assert (await sandbox.run("import sys; sys.exit(3)")).exit_code == 3
        assert (await sandbox.run("import sys; sys.exit()")).outcome is Outcome.OK
        result = await sandbox.run("raise SystemExit('because')")
        assert (result.exit_code, result.stderr) == (1, "because\n")
        await session.run("x = 1")
        assert (await session.run("exit(2)")).exit_code == 2
        assert (await session.run("x")).value == 1

    async def test_a_process_that_dies_loses_its_state_and_says_so(self, session: Session) -> None:
        await session.run("x = 1")
        result = await session.run("import os\nprint('here', flush=True)\nos._exit(7)")
        assert (result.outcome, result.exit_code, result.state_lost) == (Outcome.ERROR, 7, True)
        assert result.stdout == "here\n"
        assert result.error is not None
        assert "variables are gone" in result.error.message
        result = await session.run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
        assert result.exit_code == 137
        assert result.error is not None
        assert "SIGKILL" in result.error.message

    async def test_shell_cells_share_the_workspace(self, session: Session) -> None:
        assert (await session.run("open('a.txt', 'w').write('from python')")).success
        result = await session.run("cat a.txt; echo; echo oops >&2; exit 3", language="bash")
        assert (result.exit_code, result.stdout, result.stderr) == (3, "from python\n", "oops\n")
        assert (await session.run("echo b > b.txt", language="sh")).success
        assert (await session.run("open('b.txt').read()")).value == "b\n"
        result = await session.run("echo before; sleep 60", language="sh", timeout=0.4)
        assert (result.outcome, result.stdout, result.state_lost) == (Outcome.TIMEOUT, "before\n", False)

    async def test_javascript_cells(self, place: Place, session: Session) -> None:
        if not place.has_node:
            pytest.skip("node is not installed here")
        result = await session.run("console.log([1, 2].map(x => x * 2).join()); process.exit(4)", language="js")
        assert (result.exit_code, result.stdout) == (4, "2,4\n"), result

    async def test_artifacts(self, place: Place, tmp_path: Path) -> None:
        async with place.sandbox() as sandbox:
            result = await sandbox.run("open('a.txt', 'w').write('hello')")
            (artifact,) = result.artifacts
            assert (artifact.name, artifact.size, artifact.media_type) == ("a.txt", 5, "text/plain")
            assert artifact.data == b"hello"
        async with place.sandbox(workspace=tmp_path) as sandbox:
            result = await sandbox.run("import os\nos.mkdir('d')\nopen('d/b.json', 'w').write('{}')")
            (artifact,) = result.artifacts
            assert artifact.name == "d/b.json"
            assert artifact.path is not None
            assert artifact.path.read_text() == "{}"
            assert (await sandbox.run("1")).artifacts == ()

    async def test_files_can_be_rolled_back(self, place: Place, tmp_path: Path) -> None:
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "a.txt").write_text("before")
        async with place.sandbox(workspace=tmp_path) as sandbox, sandbox.session() as session:
            mark = await session.checkpoint(files=True)
            code = "import shutil\nshutil.rmtree('kept')\nopen('new.txt', 'w').write('x')"
            assert (await session.run(code)).success
            await session.rollback(mark)
            assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.txt")] == ["kept/a.txt"]
            assert (await session.run("open('kept/a.txt').read()")).value == "before"
            assert (await session.run("open('kept/a.txt', 'a').write('!')")).success

    async def test_what_is_preloaded_is_there_and_what_cannot_be_is_said(self, place: Place) -> None:
        async with place.sandbox(preload=["decimal"]) as sandbox:
            assert (await sandbox.run("import sys\n'decimal' in sys.modules")).value is True
        with pytest.raises(MissingDependencyError, match="'no_such_module'"):
            await place.sandbox(preload=["no_such_module"]).start()

    async def test_threads_are_waited_for_and_exit_functions_called(self, sandbox: Sandbox) -> None:
        code = (
            "import atexit, threading, time\natexit.register(print, 'exit')\n"
            "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('main')"
        )
        assert (await sandbox.run(code)).stdout == "main\nthread\nexit\n"

    async def test_a_fork_that_runs_on_is_no_second_cell(self, session: Session) -> None:
        result = await session.run("import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('x')\npid > 0")
        assert result.value is True
        assert (await session.run("1")).value == 1

    async def test_ordinary_programs_work(self, sandbox: Sandbox) -> None:
        code = """
import concurrent.futures, dataclasses, json, multiprocessing, subprocess, sys, tempfile, inspect

@dataclasses.dataclass
class Point:
    x: int

def double(p):
    return p.x * 2

def main():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(double, [Point(1), Point(2)]))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print(list(pool.map(double, [Point(3)])))
    print(subprocess.run([sys.executable, "-c", "print(5)"], capture_output=True, text=True).stdout.strip())
    with tempfile.TemporaryDirectory() as folder:
        print(folder.startswith("/tmp"))
    print(inspect.getsource(double).strip().splitlines()[0])

if __name__ == "__main__":
    main()
"""
        result = await sandbox.run(code)
        assert result.stdout == "[2, 4]\n[6]\n5\nTrue\ndef double(p):\n", result.output

    @pytest.mark.parametrize(
        ("limits", "code", "limit"),
        [
            (Limits(open_files=64), "files = [open('/dev/null') for _ in range(100)]", "open_files"),
            (Limits(file_bytes=65536), "open('x', 'wb').write(b'x' * 100_000)", "file_size"),
            (Limits(disk_bytes=1 << 20), "for i in range(9): open(str(i), 'wb').write(b'x' * 200_000)", "disk"),
            (Limits(cpu_seconds=0.5), "while True: pass", "cpu"),
        ],
    )
    async def test_each_limit_has_a_clear_outcome(self, place: Place, limits: Limits, code: str, limit: str) -> None:
        if limit == "disk" and not place.has_mounts:
            return  # There it is watched, and noticed a little later: see below.
        async with place.sandbox(limits=limits) as sandbox:
            result = await sandbox.run(code, timeout=20)
            assert not result.success
            assert result.limit == limit, result
            assert (await sandbox.run("1")).value == 1

    async def test_processes_are_limited(self, place: Place) -> None:
        async with place.sandbox(limits=Limits(processes=20)) as sandbox:
            result = await sandbox.run("import os, time\nfor i in range(100):\n    if not os.fork(): time.sleep(30)")
            assert result.limit == "processes", result
            assert (await sandbox.run("1")).value == 1

    async def test_what_is_written_to_the_workspace_is_limited(self, place: Place, tmp_path: Path) -> None:
        limits = Limits(disk_bytes=32 << 20, file_bytes=8 << 20)
        async with place.sandbox(workspace=tmp_path, limits=limits) as sandbox:
            code = "import time\nfor i in range(200):\n    open(f'{i}.bin', 'wb').write(b'x' * (4 << 20))\n    time.sleep(0.02)"
            result = await sandbox.run(code, timeout=30)
            assert result.limit == "disk", result
            assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 400 << 20
