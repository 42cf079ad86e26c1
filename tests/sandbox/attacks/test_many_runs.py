"""Very many runs, one after the other: nothing is left of any of them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from coderoom.sandbox import Limits, Sandbox

from .conftest import Caged
from .hostside import living, open_files, resident

CODES = [
    "print('x')",
    "1 / 0",
    "import os\nos.fork()",
    "import os\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n        while True: pass\n    os._exit(0)",
    "open('/tmp/a', 'w').write('x' * 10000)",
    "import os\nos._exit(3)",
    "raise SystemExit(4)",
    "import threading, time\nthreading.Thread(target=time.sleep, args=(0.001,)).start()",
    "open('a.txt', 'w').write('x')",
    "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
]


def facts(sandbox_files: Path) -> dict[str, int]:
    gc.collect()
    return {
        "processes": len(living()),
        "descriptors": open_files(),
        "memory": resident(),
        "files": len(list(sandbox_files.iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "objects": len(gc.get_objects()),
    }


async def repeat(wall: str, count: int) -> list[dict[str, int]]:
    temporary = Path(os.environ["TMPDIR"])
    async with Sandbox(wall, limits=Limits(wall_seconds=10), concurrency=1) as sandbox:
        for number in range(100):
            await sandbox.run(CODES[number % len(CODES)])
        await sandbox.run("1")
        found = [facts(temporary)]
        for number in range(count):
            await sandbox.run(CODES[number % len(CODES)])
        await sandbox.run("1")
        found.append(facts(temporary))
    return [*found, facts(temporary)]


def test_hundreds_of_runs_leave_nothing(caged_once: Caged) -> None:
    before, after, closed = caged_once(repeat, 500, seconds=110)
    assert abs(after["processes"] - before["processes"]) <= 4, (before, after)
    assert abs(after["descriptors"] - before["descriptors"]) <= 12, (before, after)
    assert after["memory"] - before["memory"] < 16, (before, after)  # MiB
    assert after["objects"] - before["objects"] < 3000, (before, after)
    assert after["files"] == before["files"], (before, after)
    assert closed["processes"] == 0, closed
    assert closed["files"] <= before["files"], (before, closed)
