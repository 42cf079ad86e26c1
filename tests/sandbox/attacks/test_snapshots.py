# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""The workspace's files while the host copies them, and while it puts them back."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox import Sandbox
from coderoom.sandbox.snapshots import Snapshot

from . import cage
from .conftest import Caged
from .hostside import attempt, still_works

SWAPPER = """
import ctypes, os
libc = ctypes.CDLL(None)
def swap():
    while True:
        for one, other in PAIRS:
            libc.renameat2(-100, one, -100, other, 2)
swap()
"""


async def race(wall: str, folder: str) -> dict[str, Any]:
    """One session swaps folders and links while the other one's checkpoints are taken and put back."""
    top = Path(folder)
    workspace, outside = top / "workspace", top / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("canary")
    pairs = [(f"d{n}".encode(), f"l{n}".encode()) for n in range(8)]
    prepare = f"""
import os, shutil
for name in os.listdir("."):
    shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.unlink(name)
for one, other in {pairs!r}:
    os.mkdir(one)
    for n in range(20): open(one + b"/mine%d.txt" % n, "w").write("mine")
    os.symlink({str(outside)!r}, other)
"""
    found: dict[str, Any] = {"read": 0, "written": 0, "raised": []}
    async with Sandbox(wall, workspace=workspace) as sandbox, sandbox.session() as one, sandbox.session() as other:
        for _ in range(12):
            assert (await one.run(prepare)).success
            task = asyncio.ensure_future(other.run(f"PAIRS = {pairs!r}\n{SWAPPER}", timeout=30))
            await asyncio.sleep(0.05)
            try:
                mark = await one.checkpoint(files=True)
                assert isinstance(mark.files, Snapshot)
                found["read"] += any(path.name == "secret.txt" for path in mark.files.folder.rglob("*"))
                await one.rollback(mark)
            except (RequestError, SandboxUnavailable):
                pass
            except OSError as error:
                found["raised"].append(type(error).__name__)
            await other.cancel()
            await task
            found["written"] += sorted(path.name for path in outside.iterdir()) != ["secret.txt"]
            for path in outside.glob("mine*"):
                path.unlink()
    return {**found, "raised": sorted(set(found["raised"]))}


def test_links_that_change_lead_nowhere(caged: Caged, tmp_path: Path) -> None:
    found = caged(race, str(tmp_path), seconds=110)
    assert found == {"read": 0, "written": 0, "raised": []}


TREES = {
    "links": "os.symlink('/etc', 'etc')\nos.symlink('..', 'up')\nos.symlink('x' * 4000, 'long')\nos.symlink('self', 'self')",
    "names": "open(b'\\xff\\n\\x01', 'w').write('x')\nos.mkdir(b'\\xfe')\nopen(b'\\xfe/-rf', 'w').write('x')\nopen('n' * 255, 'w')",
    "pipes and sockets": "os.mkfifo('fifo')\nimport socket\ntry: socket.socket(socket.AF_UNIX).bind('sock')\nexcept OSError: pass",
    "hard links": "open('one', 'w').write('x')\nfor n in range(100): os.link('one', 'link%d' % n)",
    "an unreadable folder": "os.mkdir('shut')\nopen('shut/a', 'w').write('x')\nos.chmod('shut', 0)",
    "an unreadable file": "open('shut', 'w').write('x')\nos.chmod('shut', 0)",
    "a folder that may not be written": "os.mkdir('fixed')\nopen('fixed/a', 'w').write('x')\nos.chmod('fixed', 0o555)",
    "a deep tree": "for _ in range(1500): os.mkdir('d' * 10); os.chdir('d' * 10)\nopen('end', 'w').write('x')\nos.chdir('/workspace')",
    "holes": "for n in range(3):\n    f = open('hole%d' % n, 'wb'); f.truncate(100_000_000); f.close()",
    "very many": "for n in range(25_000): open('f%d' % n, 'w').close()",
}


async def keep(wall: str, folder: str, code: str) -> dict[str, Any]:
    raised = ""
    # The interpreter that runs this may lie in root's home.
    python = None if os.geteuid() == 0 else "/usr/bin/python3"
    async with Sandbox(wall, workspace=Path(folder) / "workspace", python=python) as sandbox:
        async with sandbox.session() as session:
            made = await attempt(session, f"import os\n{code}", 20)
            try:
                mark = await session.checkpoint(files=True)
                await attempt(session, "open('later', 'w').write('x')")
                await session.rollback(mark)
            except (RequestError, SandboxUnavailable) as error:
                raised = str(error)
            after = await attempt(session, "import os\nos.path.exists('later')")
        return {"made": made, "after": after, "raised": raised, "works": await still_works(sandbox)}


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A folder that every user gets to; what is in it may be deeper than `shutil` can remove."""
    folder = Path(tempfile.mkdtemp(prefix="attack-tree-"))
    folder.chmod(0o777)
    yield folder
    subprocess.run(["rm", "-rf", "--", folder], check=True)


@pytest.mark.parametrize(
    ("name", "user"),
    [
        *((name, 0) for name in TREES),
        # What root's rights make no difference to is not done again.
        *((name, cage.ordinary_user()) for name in TREES if name.startswith(("links", "hard", "an un", "a folder"))),
    ],
)
def test_every_tree_can_be_kept_or_is_refused(caged: Caged, anybodys: Path, name: str, user: int) -> None:
    found = caged(keep, str(anybodys), TREES[name], user=user, seconds=100)
    assert found["made"]["outcome"] == "ok", found
    assert found["works"], found
    assert found["raised"] or found["after"]["value"] is False, found
