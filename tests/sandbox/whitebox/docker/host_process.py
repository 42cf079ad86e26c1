"""A process with a worker in a container, for tests that kill it: `python -m ... CODE IMAGE WORKSPACE`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from coderoom.sandbox import SandboxConfig
from coderoom.sandbox.walls.docker.wall import DockerWall


async def _main(code: str, image: str, workspace: str) -> None:
    DockerWall.code = Path(code)
    worker = await DockerWall().start(SandboxConfig(workspace=Path(workspace), options={"image": image}))
    sys.stdout.write(f"{worker.container.id}\n")
    sys.stdout.flush()
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
