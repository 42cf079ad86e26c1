"""Artifacts whose names lead out of the workspace."""

from __future__ import annotations

import asyncio
from pathlib import Path

from coderoom.sandbox import Sandbox

from .conftest import Caged
from .hostside import still_works
from .inside import CHANNEL

NAMES = {
    "absolute": "{canary}",
    "upwards": "../outside/secret.txt",
    "upwards in the middle": "d/../../outside/secret.txt",
    "a link": "link.txt",
    "a linked folder": "linked/secret.txt",
    "slashes": "//{canary}",
    "the workspace itself": ".",
    "nothing": "",
    "a zero": "a\0b",
    "too long": "x" * 5000,
    "a surrogate": "\udcff",
    "a new line": "a\nb",
    "a pipe": "fifo",
}


async def name_it(wall: str, folder: str) -> list[bool]:
    return await asyncio.gather(*(_name_it(wall, Path(folder, str(n)), name) for n, name in enumerate(NAMES.values())))


async def _name_it(wall: str, workspace: Path, name: str) -> bool:
    outside = workspace.parent / "outside"
    canary = outside / "secret.txt"
    code = f"""{CHANNEL}
os.makedirs("d", exist_ok=True)
os.symlink({str(canary)!r}, "link.txt")
os.symlink({str(outside)!r}, "linked")
os.mkfifo("fifo")
done(artifacts=[{{"name": {name.replace("{canary}", str(canary))!r}, "size": 1}}])
time.sleep(0.2)
"""
    async with Sandbox(wall, workspace=workspace) as sandbox:
        result = await sandbox.run(code, timeout=10)
        for artifact in result.artifacts:
            assert artifact.path is not None
            assert artifact.path.resolve().is_relative_to(workspace.resolve()), artifact
            repr(artifact).encode()
        return await still_works(sandbox)


def test_no_artifact_is_outside(caged: Caged, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("canary")
    assert caged(name_it, str(tmp_path)) == [True] * len(NAMES)
