"""AutoGen's Docker executor through `ExecutorRunner`, on a real engine."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor

from coderoom.errors import SandboxUnavailable
from coderoom.executors import ExecutorRunner
from coderoom.outcome import Outcome
from tests.executors.helpers import python, run, shell, until
from tests.support.docker import client

pytestmark = pytest.mark.docker

# The shell of AutoGen's container is deaf to Docker's request to end, and would be killed ten seconds later.
HEARS = "trap exit TERM; while :; do sleep 0.1; done"


async def test_it_runs_in_order_and_its_container_goes_with_the_stop(
    docker_host: str, docker_image: str, tmp_path: Path
) -> None:
    executor = DockerCommandLineCodeExecutor(docker_image, work_dir=tmp_path, timeout=20, init_command=HEARS)
    dumped = executor.dump_component()
    runner = ExecutorRunner(executor)
    result = await run(runner, shell("echo one"), python("print('two'); exit(3)"), shell("echo never"))
    assert (result.outcome, result.exit_code, result.output) == (Outcome.ERROR, 3, "one\ntwo\n")
    assert runner.work_dir == tmp_path
    assert executor.dump_component() == dumped
    await runner.stop()
    with contextlib.closing(client(docker_host)) as engine:
        await until(lambda: engine.containers(all=True, filters={"name": executor.container_name}) == [], 20)


async def test_a_cancelled_run_is_not_waited_for(docker_host: str, docker_image: str, tmp_path: Path) -> None:
    runner = ExecutorRunner(
        DockerCommandLineCodeExecutor(docker_image, work_dir=tmp_path, timeout=20, init_command=HEARS)
    )
    task = asyncio.create_task(runner.run([shell("touch ready; sleep 15")]))
    await until((tmp_path / "ready").exists, 30)
    task.cancel()
    async with asyncio.timeout(10):
        with pytest.raises(asyncio.CancelledError):
            await task
    await runner.stop()


async def test_an_engine_that_is_not_there_is_our_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, docker_host: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(SandboxUnavailable, match="could not be started"):
        await run(ExecutorRunner(DockerCommandLineCodeExecutor(work_dir=tmp_path)), shell("true"))
