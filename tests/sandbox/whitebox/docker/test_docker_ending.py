"""What is left of a container after its end, of whatever kind: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]
import pytest

from coderoom._util.processes import owner_mark
from coderoom.sandbox.walls.docker.wall import DockerWall

from .common import Start, a_spec, gone, ours
from .stub import ask

pytestmark = pytest.mark.docker


async def test_ending_leaves_nothing(start: Start, engine: Any) -> None:
    worker = await start()
    assert ours(engine) == [worker.container.id]
    await ask(worker, "import subprocess; subprocess.Popen(['sleep', '1000'])")
    await worker.end()
    assert ours(engine) == []
    await worker.end()
    worker.kill()


async def test_killing_needs_no_event_loop(start: Start, engine: Any) -> None:
    worker = await start()
    await asyncio.to_thread(worker.kill)
    assert ours(engine) == []


async def test_a_worker_that_ends_says_why_and_removes_itself(start: Start, engine: Any) -> None:
    worker = await start()
    assert worker.describe_death() == "It is still running."
    with pytest.raises(ValueError, match="Expecting value"):
        await ask(worker, "sys.stderr.write('my last words'); sys.stderr.flush(); os._exit(7)")
    await gone(engine, worker.container.id)
    assert worker.describe_death() == "Its container ended with exit code 7. It wrote: my last words"


async def test_a_worker_that_needs_too_much_memory_says_so(start: Start, engine: Any) -> None:
    worker = await start(options={"memory": "64m"})
    with pytest.raises((ValueError, ConnectionError)):
        await ask(worker, "answer = len(b'x' * (256 << 20))")
    await gone(engine, worker.container.id)
    assert (
        "exit code 137. It was killed, most likely for needing more memory than its 64 MiB." in worker.describe_death()
    )


async def test_much_on_standard_error_holds_nothing_up(start: Start) -> None:
    worker = await start()
    assert await ask(worker, "sys.stderr.write('x' * 100_000 + 'end'); sys.stderr.flush(); answer = 1") == 1
    while not worker.describe_death().endswith("xend"):
        await asyncio.sleep(0.05)
    assert len(worker.describe_death()) < 5000


async def test_the_hosts_death_ends_the_container(
    code: Path, docker_image: str, engine: Any, tmp_path: Path, temporary: Path
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    command = [sys.executable, "-m", f"{__package__}.host_process", str(code), docker_image, str(workspace)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as host:
        assert host.stdout is not None
        container = host.stdout.readline().strip()
        assert engine.inspect_container(container)["State"]["Running"]
        host.send_signal(signal.SIGKILL)
    await gone(engine, container)


async def test_the_next_start_removes_what_the_dead_left(start: Start, engine: Any, docker_image: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as alive:
        boot, namespace, pid, began = owner_mark().split()
        living = Path(f"/proc/{alive.pid}/stat").read_text().rpartition(")")[2].split()[19]
        labels = {
            "dead": f"{boot} {namespace} {alive.pid} {int(living) - 1}",
            "other-boot": f"{'0' * 36} {namespace} {pid} {began}",
            "alive": f"{boot} {namespace} {alive.pid} {living}",
            "other-namespace": f"{boot} 1 {pid} 1",
            "not-ours": "something",
            "empty": "",
        }
        made = {
            name: engine.create_container(docker_image, labels={"coderoom": label}) for name, label in labels.items()
        }
        stranger = engine.create_container(docker_image)
        try:
            await start()
            there = {each["Id"] for each in engine.containers(all=True)}
            kept = {name for name, each in made.items() if each["Id"] in there}
            assert kept == {"alive", "other-namespace", "not-ours", "empty"}
            assert stranger["Id"] in there
        finally:
            for each in (*made.values(), stranger):
                with contextlib.suppress(docker.errors.NotFound):
                    engine.remove_container(each["Id"], force=True)


@pytest.mark.usefixtures("code")
async def test_a_start_that_is_cancelled_leaves_nothing(engine: Any, docker_image: str, temporary: Path) -> None:
    for delay in (0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25):
        starting = asyncio.create_task(DockerWall().start(a_spec(options={"image": docker_image})))
        await asyncio.sleep(delay)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await starting).end()
    while ours(engine) or any(temporary.iterdir()):
        await asyncio.sleep(0.05)
