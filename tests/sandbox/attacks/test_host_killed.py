# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""The host's end in the middle of its work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .conftest import Caged

HOST = """
import asyncio, sys
from coderoom.sandbox import Sandbox
async def main():
    async with Sandbox(sys.argv[1]) as sandbox, Sandbox(sys.argv[1], workspace=sys.argv[2]) as other, other.session() as session:
        await session.run("import os\\nif not os.fork():\\n    os.setsid()\\n    if os.fork(): os._exit(0)\\n    while True: pass")
        mark = await session.checkpoint(files=True)
        runs = [asyncio.ensure_future(sandbox.run("while True: pass")) for _ in range(20)]
        await asyncio.sleep(1)
        print("running", flush=True)
        await asyncio.gather(*runs)
asyncio.run(main())
"""


def others() -> set[int]:
    """The processes here that live; the dead come to the driver, which waits for nobody."""
    found = set()
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit() and (path / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(int(path.name))
    return found


async def kill(wall: str, workspace: str) -> dict[str, Any]:
    temporary = Path(os.environ["TMPDIR"])
    before, files = others(), set(temporary.iterdir())
    host = await asyncio.create_subprocess_exec(sys.executable, "-c", HOST, wall, workspace, stdout=subprocess.PIPE)
    assert host.stdout is not None
    assert (await host.stdout.readline()) == b"running\n"
    during = len(others() - before)
    os.kill(host.pid, signal.SIGKILL)
    await host.wait()
    end = time.monotonic() + 5
    while others() - before and time.monotonic() < end:
        await asyncio.sleep(0.1)
    left = [Path(f"/proc/{pid}/cmdline").read_text()[:100] for pid in others() - before]
    return {
        "during": during,
        "processes": left,
        "files": sorted(path.name for path in set(temporary.iterdir()) - files),
    }


def test_nothing_is_left_when_the_host_is_killed(caged: Caged, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    found = caged(kill, str(tmp_path))
    assert found["during"] > 20
    assert found["processes"] == []
    assert found["files"] == []
