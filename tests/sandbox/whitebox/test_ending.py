"""How a worker ends: on request, by itself, and with its host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from coderoom._util.temporary import janitor_pid
from coderoom.errors import SandboxUnavailable
from coderoom.sandbox import Limits, SandboxConfig
from coderoom.sandbox.guest.isolation.boot import descendants
from coderoom.sandbox.walls import make_wall
from coderoom.sandbox.walls.local import Facts, NoWall, Start

from ..places import STRONGEST
from .behind import Inside, start_stub

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these walls are Linux's")

# Where root's own interpreter is out of others' reach, the system's may not be.
SYSTEM = next((Path(name) for name in ("/usr/bin/python3", "/usr/local/bin/python3") if os.access(name, os.X_OK)), None)
SPEC = SandboxConfig(workspace=None, network=False, env={}, limits=Limits(), python=SYSTEM)
# A child of a child that has gone, in a session of its own, with a name that tells whose it is.
ESCAPE = (
    "import os, time\n"
    "if not os.fork():\n"
    "    os.setsid()\n"
    "    if not os.fork():\n"
    "        time.sleep(600)\n"
    "    os._exit(0)\n"
    "os.wait()"
)
HOST = """
import asyncio, os, sys
from tests.sandbox.whitebox.behind import start_stub
from tests.sandbox.whitebox.test_ending import ESCAPE, SPEC
from coderoom.sandbox.guest.isolation.boot import descendants

async def main():
    inside = await start_stub(sys.argv[1], SPEC)
    await inside.boot()
    await inside.ask(ESCAPE)
    print(inside.worker.boot.get("private", "/nowhere"), *descendants(os.getpid()), flush=True)
    await inside.ask("import time; time.sleep(600)")  # It looks at nothing that the host says.

asyncio.run(main())
"""


_BEFORE: set[int] = set()


@pytest.fixture(autouse=True)
def before() -> None:
    _BEFORE.update(descendants(os.getpid()))


@pytest.fixture(
    params=[
        pytest.param(wall, marks=[] if wall in (STRONGEST.wall, "none") else pytest.mark.allwalls)
        for wall in ("bubblewrap", "namespaces", "landlock", "none")
    ]
)
async def wall(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    try:
        worker = await make_wall(name).start(SPEC)
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    await worker.end()
    return name


async def start(wall: str) -> Inside:
    inside = await start_stub(wall, SPEC)
    assert await inside.boot() is True
    await inside.ask(ESCAPE)
    return inside


async def test_nothing_is_left_when_it_is_ended(wall: str) -> None:
    inside = await start(wall)
    assert len(children()) >= 3
    await inside.worker.end()
    assert children() == []
    await inside.worker.end()
    inside.worker.kill()
    how = inside.worker.describe_death()
    assert "SIGKILL" in how or "exit code 0" in how  # It may notice that its socket was closed before it is killed.


async def test_ended_before_it_was_told_anything(wall: str) -> None:
    inside = await start_stub(wall, SPEC)
    await inside.worker.end()
    assert children() == []


async def test_killed_without_an_event_loop(wall: str) -> None:
    inside = await start(wall)
    inside.worker.kill()
    assert children() == []


async def test_what_is_known_of_its_death(wall: str) -> None:
    inside = await start(wall)
    with pytest.raises(AssertionError, match=r"exit code 7\. It said: farewell"):
        await inside.ask("import os; os.write(2, b'farewell'); os._exit(7)")
    await inside.worker.end()
    assert children() == []


async def test_much_said_on_standard_error_does_not_stop_it(wall: str) -> None:
    inside = await start(wall)
    assert await inside.ask("import os; r = sum(os.write(2, b'much' * 1024) for _ in range(1024))") == 4 << 20
    await inside.worker.end()
    assert len(inside.worker.describe_death()) < 10_000


async def test_it_ends_with_its_host(wall: str) -> None:
    root = Path(__file__).parents[3]
    host = subprocess.Popen([sys.executable, "-c", HOST, wall], stdout=subprocess.PIPE, text=True, cwd=root)
    assert host.stdout is not None
    with host, host.stdout:
        private, *words = host.stdout.readline().split()
        host.kill()
    pids = [int(word) for word in words]
    assert len(pids) >= 3
    deadline = time.monotonic() + 20
    while (left := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert left == []
    assert not Path(private).exists()


async def test_it_outlives_the_thread_that_it_was_started_in(wall: str) -> None:
    started: list[Inside] = []
    thread = threading.Thread(target=lambda: started.append(asyncio.run(start(wall))))
    thread.start()
    await asyncio.to_thread(thread.join)
    (inside,) = started
    assert await inside.ask("r = 'alive'") == "alive"
    inside.worker.kill()
    assert children() == []


async def test_cancelled_while_it_starts(wall: str) -> None:
    starting = asyncio.ensure_future(start_stub(wall, SPEC))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    for _ in range(1000):  # A probe that was under way is ended in the background.
        if not children():
            break
        await asyncio.sleep(0.01)
    assert children() == []


async def test_no_descriptor_is_left(wall: str) -> None:
    await (await start(wall)).worker.end()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        await (await start(wall)).worker.end()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_no_folder_is_left(wall: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await (await start(wall)).worker.end()
    assert list(tmp_path.iterdir()) == []


class Nowhere(NoWall):
    async def prepare(self, spec: SandboxConfig, program: str, facts: Facts, tidying: contextlib.ExitStack) -> Start:
        return Start(argv=["/nowhere/python"], boot={})


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(SandboxUnavailable, match="'/nowhere/python'"):
        await Nowhere()._launch(SPEC, "", Facts())


def children() -> list[int]:
    """What descends from this process and is not other tests'."""
    # The janitor goes when this process does.
    return [pid for pid in descendants(os.getpid()) if pid not in {*_BEFORE, janitor_pid()} and is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_signals_that_the_supervisor_gets_end_everything() -> None:
    async def main() -> None:
        others = set(children())  # Of sandboxes that tests share, which may have more at any time.
        inside = await start("none")
        supervisor = min(set(children()) - others)
        family = {supervisor, *descendants(supervisor)}
        os.kill(supervisor, signal.SIGTERM)
        await asyncio.to_thread(inside.worker.describe_death)
        assert not any(map(is_alive, family))
        await inside.worker.end()

    asyncio.run(main())
