"""The known defects of AutoGen's Docker executor that are mended when `ExecutorRunner` runs it, on a real engine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]
import pytest
from autogen_core.code_executor import CodeBlock, FunctionWithRequirementsStr
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor

from coderoom.errors import SandboxUnavailable
from coderoom.executors import ExecutorRunner
from coderoom.outcome import Outcome
from tests.executors.helpers import DEAF, FOREVER, TREE, python, run, shell, until
from tests.support.docker import client

# The first process of a container is the shell of AutoGen's executor.
ALONE = "/bin/sh"
# It takes off what its processes are known by, as far as they look.
HIDDEN = "env -i setsid sleep 300 >/dev/null 2>&1 &\n"

Make = Callable[..., DockerCommandLineCodeExecutor]


@pytest.fixture
def engine(docker_host: str) -> Iterator[Any]:
    with contextlib.closing(client(docker_host)) as engine:
        yield engine


@pytest.fixture
async def make(docker_image: str, engine: Any, tmp_path: Path) -> AsyncIterator[Make]:
    """Makes executors; what they leave behind fails the test, and is removed."""
    before = {container["Id"] for container in engine.containers(all=True)}

    def make(**arguments: Any) -> DockerCommandLineCodeExecutor:
        return DockerCommandLineCodeExecutor(docker_image, **{"work_dir": tmp_path, "timeout": 20, **arguments})

    yield make
    with contextlib.suppress(AssertionError):  # The engine may still be at it.
        await until(lambda: {container["Id"] for container in engine.containers(all=True)} <= before)
    left = {container["Id"] for container in engine.containers(all=True)} - before
    for identity in left:
        engine.remove_container(identity, force=True)
    assert left == set()


def processes(engine: Any, executor: DockerCommandLineCodeExecutor) -> list[str]:
    table = engine.top(executor.container_name, "-o pid,args")
    # AutoGen's shell does not look after the orphans that have ended.
    return sorted(row[-1] for row in table["Processes"] if "<defunct>" not in row[-1])


async def only(engine: Any, executor: DockerCommandLineCodeExecutor, *expected: str) -> None:
    """Wait until nothing else runs in the container."""
    await until(lambda: processes(engine, executor) == sorted(expected), 5)


@pytest.fixture
def named(engine: Any) -> Callable[[str], list[str]]:
    def named(name: str) -> list[str]:
        found = engine.containers(all=True, filters={"name": name})
        return sorted(container["Names"][0].lstrip("/") for container in found)

    return named


async def test_it_runs_in_order_and_stays_as_its_owner_made_it(make: Make, tmp_path: Path) -> None:
    executor = make()
    dumped = executor.dump_component()
    runner = ExecutorRunner(executor)
    execution = await run(runner, shell("echo one"), python("print(2)"), shell("exit 3"), shell("echo never"))
    assert (execution.outcome, execution.exit_code, execution.output) == (Outcome.ERROR, 3, "one\n2\n")
    assert runner.work_dir == tmp_path
    assert (await run(runner, python("import sys; sys.exit(124)"))).outcome is Outcome.ERROR
    await runner.stop()
    assert executor.dump_component() == dumped
    assert (await run(runner, python("print('again')"))).output == "again\n"
    await runner.stop()


async def test_dk1_two_loads_of_one_config_do_not_meet(make: Make, named: Callable[[str], list[str]]) -> None:
    dumped = make().dump_component()
    runners = [ExecutorRunner(DockerCommandLineCodeExecutor.load_component(dumped)) for _ in range(2)]
    await asyncio.gather(*(runner.start() for runner in runners))
    outputs = [(await run(runner, python(f"print({number})"))).output for number, runner in enumerate(runners)]
    assert outputs == ["0\n", "1\n"]
    for runner in runners:
        await runner.stop()


async def test_dk1_a_name_that_is_in_use_is_left_to_its_user(
    make: Make, engine: Any, named: Callable[[str], list[str]]
) -> None:
    runners = [ExecutorRunner(make(container_name="coderoom-taken")) for _ in range(2)]
    for runner in runners:
        await runner.start()
    assert len(named("coderoom-taken")) == 2
    assert (await run(runners[0], python("print(1)"))).output == "1\n"
    for runner in runners:
        await runner.stop()
    assert named("coderoom-taken") == []


async def test_dk3_a_cancel_ends_the_code(make: Make, engine: Any, tmp_path: Path) -> None:
    executor = make()
    runner = ExecutorRunner(executor)
    for code in (FOREVER, TREE + DEAF):
        task = asyncio.create_task(runner.run([python(code)]))
        await until((tmp_path / "ready").exists, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await only(engine, executor, ALONE)
        (tmp_path / "ready").unlink()
    await runner.stop()


async def test_dk3_a_cancel_while_the_code_starts_ends_it_too(make: Make, engine: Any) -> None:
    executor = make()
    runner = ExecutorRunner(executor)
    await runner.start()
    for steps in range(40):
        task = asyncio.create_task(runner.run([shell("sleep 300")]))
        await asyncio.sleep(0.001 * steps)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await only(engine, executor, ALONE)
    await runner.stop()


async def test_dk3_nothing_outlives_its_run(make: Make, engine: Any) -> None:
    executor = make()
    runner = ExecutorRunner(executor)
    assert (await run(runner, shell(HIDDEN + "echo done"), python(TREE))).outcome is Outcome.OK
    await only(engine, executor, ALONE)
    await runner.stop()


async def test_dk3_a_run_ends_and_leaves_another_one_alone(make: Make, engine: Any, tmp_path: Path) -> None:
    executor = make()
    runner = ExecutorRunner(executor)
    slow = asyncio.create_task(run(runner, shell("while [ ! -e go ]; do sleep 0.1; done; echo slow")))
    executions = await asyncio.gather(*(run(runner, python(f"print({n})\n{TREE}")) for n in range(4)))
    assert [execution.output for execution in executions] == ["0\n", "1\n", "2\n", "3\n"]
    await until(lambda: not any("300" in process for process in processes(engine, executor)))
    (tmp_path / "go").touch()
    assert (await slow).output == "slow\n"
    await runner.stop()


@pytest.mark.parametrize("how", ["init command", "started before"])
async def test_dk3_what_the_owner_started_goes_on(make: Make, engine: Any, tmp_path: Path, how: str) -> None:
    command = f"{'sleep 400 & true' if how == 'init command' else 'true'}"
    executor = make(init_command=command)
    if how == "started before":
        await executor.start()
        identity = engine.exec_create(executor.container_name, ["sleep", "400"])["Id"]
        engine.exec_start(identity, detach=True)
    runner = ExecutorRunner(executor)
    assert (await run(runner, python(TREE))).outcome is Outcome.OK
    await only(engine, executor, ALONE, "sleep 400")
    await runner.stop()


async def test_dk4_the_deadline_is_kept_whatever_the_code_does(make: Make, engine: Any) -> None:
    executor = make(timeout=2)
    runner = ExecutorRunner(executor)
    for code in (DEAF, TREE + DEAF):
        execution = await run(runner, python(code))
        assert (execution.outcome, execution.exit_code, execution.output) == (Outcome.TIMEOUT, 124, "begun\n")
        await only(engine, executor, ALONE)
    await runner.stop()


async def test_dk4_code_without_an_output_is_waited_for(make: Make) -> None:
    runner = ExecutorRunner(make())
    execution = await run(runner, shell("echo begun; exec >/dev/null 2>&1; sleep 1; exit 7"))
    assert (execution.outcome, execution.exit_code, execution.output) == (Outcome.ERROR, 7, "begun\n")
    closed = "import os, time, sys\nos.close(1); os.close(2)\ntime.sleep(1)\nos._exit(5)"
    assert (await run(runner, python(closed))).exit_code == 5
    await runner.stop()


async def test_dk4_a_child_that_holds_the_output_is_not_waited_for(make: Make, engine: Any) -> None:
    executor = make(timeout=15)
    runner = ExecutorRunner(executor)
    execution = await run(runner, shell("sleep 300 &\necho x"))
    assert (execution.outcome, execution.output) == (Outcome.OK, "x\n")
    await only(engine, executor, ALONE)
    await runner.stop()


async def test_dk4_code_that_replaces_the_shell_ends_too(make: Make, engine: Any) -> None:
    executor = make(timeout=6)
    runner = ExecutorRunner(executor)
    code = "import os, shutil\nshutil.copy('/bin/true', '/bin/new')\nos.replace('/bin/new', '/bin/sh')\n" + DEAF
    execution = await run(runner, python(code))
    assert (execution.outcome, execution.output) == (Outcome.TIMEOUT, "begun\n")
    # It has not come up again, with a shell that ends at once.
    await until(lambda: engine.containers(filters={"name": executor.container_name}) == [], seconds=60)
    await runner.stop()


async def test_dk5_the_container_goes_before_its_folder(make: Make, engine: Any, tmp_path: Path) -> None:
    executor = make(work_dir=None, extra_volumes={str(tmp_path): {"bind": "/seen", "mode": "rw"}})
    runner = ExecutorRunner(executor)
    await runner.start()
    folder = runner.work_dir
    assert folder is not None
    code = (
        "import os\n"
        "while True:\n"
        "    try:\n"
        "        open('/workspace/file', 'w').close()\n"
        "        open('/seen/begun', 'w').close()\n"
        "    except OSError:\n"
        "        open('/seen/folder went first', 'w').close()\n"
    )
    task = asyncio.create_task(runner.run([python(code)]))
    await until((tmp_path / "begun").exists, 30)
    await runner.stop()
    assert (await task).outcome is Outcome.CANCELLED
    assert not folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]


async def test_dk5_a_container_that_its_owner_wants_to_keep_stays(make: Make, engine: Any) -> None:
    executor = make(auto_remove=False, container_name="coderoom-kept")
    runner = ExecutorRunner(executor)
    await runner.start()
    await runner.stop()
    state = engine.inspect_container("coderoom-kept")["State"]["Status"]
    engine.remove_container("coderoom-kept", force=True)
    assert state == "exited"


async def test_dk6_a_failed_start_leaves_nothing(make: Make) -> None:
    # Its container exits at once; that another one with this address cannot start at all.
    for arguments in ({"init_command": "exit 3"}, {"extra_hosts": {"host": "no address"}}):
        runner = ExecutorRunner(make(**arguments))
        with pytest.raises(SandboxUnavailable, match="could not be started"):
            await runner.start()
        await runner.stop()


async def test_dk7_output_may_be_anything_and_of_any_size(make: Make, tmp_path: Path) -> None:
    runner = ExecutorRunner(make())
    execution = await run(runner, python("import sys\nsys.stdout.buffer.write(b'\\xff\\xfeok')"))
    assert (execution.outcome, execution.output) == (Outcome.OK, "\ufffd\ufffdok")
    execution = await run(runner, python("import sys\nprint('out'); print('error', file=sys.stderr); sys.exit(3)"))
    assert (execution.exit_code, execution.output) == (3, "out\nerror\n")
    execution = await run(runner, python("print('first')"), python("print('é' * 10_000_000); print('last')"))
    assert execution.output.startswith("first\né")
    assert execution.output.endswith("é\nlast\n")
    assert len(execution.output) < 2_000_000
    assert execution.total_chars == 10_000_012
    assert execution.whole_output is not None
    assert execution.whole_output.is_relative_to(tmp_path)
    assert execution.whole_output.read_text("utf-8") == "first\n" + "é" * 10_000_000 + "\nlast\n"
    await runner.stop()


async def test_dk7_the_first_words_are_never_lost(make: Make) -> None:
    runner = ExecutorRunner(make())
    for number in range(20):
        assert (await run(runner, shell(f"echo {number}"))).output == f"{number}\n"
    await runner.stop()


async def test_dk8_an_unknown_language_is_an_error_of_the_code(make: Make) -> None:
    runner = ExecutorRunner(make())
    execution = await run(runner, shell("echo before"), CodeBlock(code="1", language="cobol"), shell("echo after"))
    assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
    assert execution.output.startswith("before\nUnknown language 'cobol'")
    for language in ("Python", "py", " bash"):
        block = CodeBlock(code="echo = 1" if "y" in language else "echo 1", language=language)
        assert (await run(runner, block)).outcome is Outcome.OK
    await runner.stop()


@pytest.mark.parametrize("language", ["pwsh", "powershell", "ps1"])
async def test_dk8_powershell_is_looked_for_in_the_container(make: Make, tmp_path: Path, language: str) -> None:
    runner = ExecutorRunner(make(work_dir=tmp_path / "without"))
    execution = await run(runner, CodeBlock(code="echo 1", language=language))
    assert execution.outcome is Outcome.ERROR
    assert "pwsh" in execution.output
    await runner.stop()
    # It takes files with this ending only.
    program = tmp_path / "pwsh"
    program.write_text('#!/bin/sh\ncase $1 in *.ps1) cat "$1" ;; *) exit 64 ;; esac\n')
    program.chmod(0o755)
    volumes = {str(program): {"bind": "/usr/bin/pwsh", "mode": "ro"}}
    runner = ExecutorRunner(make(work_dir=tmp_path / "with", extra_volumes=volumes))
    execution = await run(runner, CodeBlock(code="Write-Output 1", language=language))
    assert execution.outcome is Outcome.OK
    assert execution.output.endswith("Write-Output 1")
    await runner.stop()


async def test_dk8_what_autogens_executor_refuses_is_an_error_of_the_code(make: Make, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    runner = ExecutorRunner(make())
    execution = await run(runner, python("# filename: sub/folder/mine.py\nprint(1)"))
    assert execution.output == "1\n"
    for name, words in (("../mine.py", "not in the workspace"), ("folder", "cannot be written")):
        execution = await run(runner, python(f"# filename: {name}\nprint(1)"))
        assert (execution.outcome, execution.exit_code) == (Outcome.ERROR, 1)
        assert words in execution.output
    await runner.stop()


async def test_a_link_in_place_of_the_next_file_leads_nowhere(make: Make, tmp_path: Path) -> None:
    work, victim = tmp_path / "work", tmp_path / "victim"
    victim.write_text("mine")
    runner = ExecutorRunner(make(work_dir=work))
    assert (await run(runner, python("print(1)"))).output == "1\n"
    (link,) = work.iterdir()
    await run(runner, shell(f"ln -sf {victim} {link.name}"))
    assert (await run(runner, python("print(1)"))).output == "1\n"
    await run(runner, shell(f"mkdir -p {tmp_path}; ln -s {tmp_path} .coderoom"))
    execution = await run(runner, python("print('x' * 3_000_000)"))
    assert (execution.outcome, execution.whole_output) == (Outcome.OK, None)
    await runner.stop()
    assert victim.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["victim", "work"]


async def test_dk9_a_restart_is_at_once_and_replaces_a_container_that_is_gone(make: Make, engine: Any) -> None:
    executor = make()
    runner = ExecutorRunner(executor)
    await run(runner, shell("touch /state"))
    async with asyncio.timeout(8):  # Docker's own patience with the shell is 10 s.
        await runner.restart()
    assert (await run(runner, python("print(1)"))).output == "1\n"
    engine.remove_container(executor.container_name, force=True)
    with pytest.raises(SandboxUnavailable):
        await run(runner, python("print(1)"))
    await runner.restart()
    assert (await run(runner, python("print(2)"))).output == "2\n"
    await runner.stop()


async def test_dk12_a_stop_is_at_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    runner = ExecutorRunner(make())
    await run(runner, python("print(1)"))
    async with asyncio.timeout(8):
        await runner.stop()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_functions_are_set_up_under_our_deadline_and_again_after_a_stop(make: Make) -> None:
    function = FunctionWithRequirementsStr("def add(a: int, b: int) -> int:\n    return a + b\n")
    executor = make(work_dir=None, functions=[function])
    runner = ExecutorRunner(executor)
    code = "from functions import add; print(add(40, 2))"
    executions = await asyncio.gather(*(run(runner, python(f"{code} # {n}")) for n in range(3)))
    assert [execution.output for execution in executions] == ["42\n"] * 3
    await runner.stop()
    assert (await run(runner, python(code))).output == "42\n"
    await runner.stop()


async def test_a_runner_serves_one_loop_after_the_other(make: Make) -> None:
    runner = ExecutorRunner(make())
    for _ in range(2):
        output = await asyncio.to_thread(lambda: asyncio.run(runner.run([python("print(1)")])).output)
        assert output == "1\n"
    await runner.stop()


HOST = """
import asyncio, sys
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from coderoom.executors import ExecutorRunner


async def main() -> None:
    runners = [
        ExecutorRunner(DockerCommandLineCodeExecutor(sys.argv[1], **more))
        for more in ({}, {"auto_remove": False}, {"stop_container": False}, {"container_name": "coderoom-chosen"})
    ]
    for runner in runners:
        await runner.start()
        print(runner.executor.container_name, flush=True)
    await asyncio.sleep(100)


asyncio.run(main())
"""


async def test_the_next_start_removes_what_the_dead_left(make: Make, engine: Any, docker_image: str) -> None:
    def there() -> set[str]:
        return {name.lstrip("/") for found in engine.containers(all=True) for name in found["Names"]}

    with subprocess.Popen([sys.executable, "-c", HOST, docker_image], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        names = [host.stdout.readline().strip() for _ in range(4)]
        try:
            runner = ExecutorRunner(make())
            await runner.start()
            await runner.stop()
            assert set(names) <= there()  # The living keep theirs.
            host.kill()
            host.wait()
            await runner.start()
            await runner.stop()
            assert set(names) & there() == set(names[1:3])
            kept, going = (engine.inspect_container(name)["State"]["Running"] for name in names[1:3])
            assert (kept, going) == (False, True)
        finally:
            host.kill()
            for name in names:
                with contextlib.suppress(docker.errors.NotFound):
                    engine.remove_container(name, force=True)


async def test_a_runner_that_nobody_stops_takes_its_container_along(make: Make, engine: Any) -> None:
    def forget() -> str:
        executor = make()
        asyncio.run(ExecutorRunner(executor).start())
        return executor.container_name

    name = await asyncio.to_thread(forget)
    gc.collect()
    assert engine.containers(all=True, filters={"name": name}) == []
