# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Code that fills the disk: the host's, which lies on a small file system here, and what is in memory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coderoom.sandbox import Limits, Sandbox

from .conftest import Caged
from .hostside import attempt, still_works

MIB = 1 << 20
LIMITS = Limits(disk_bytes=64 * MIB, file_bytes=32 * MIB, wall_seconds=10)
BOMBS = {
    "one file": "with open('big', 'wb') as f:\n    while True: f.write(b'x' * 1_000_000)",
    "many files": "n = 0\nwhile True:\n    open('f%d' % n, 'wb').write(b'x' * 1_000_000); n += 1",
    "many processes": "import os\nfor _ in range(4): os.fork()\nn = 0\nwhile True:\n    open('f%d-%d' % (os.getpid(), n), 'wb').write(b'x' * 1_000_000); n += 1",
    "room that is not written": "import os\nn = 0\nwhile True:\n    f = os.open('f%d' % n, os.O_CREAT | os.O_WRONLY); os.posix_fallocate(f, 0, 32 << 20); os.close(f); n += 1",
    "room behind the end": """
import ctypes, os
libc, n = ctypes.CDLL(None, use_errno=True), 0
while True:
    f = os.open('f%d' % n, os.O_CREAT | os.O_WRONLY); n += 1
    if libc.fallocate64(f, 1, ctypes.c_long(0), ctypes.c_long(32 << 20)): raise OSError(ctypes.get_errno(), 'fallocate')
    os.close(f)""",
    "empty files": "import os\nn = 0\nwhile True: os.mknod('f%d' % n); n += 1",
    "folders": "import os\nn = 0\nwhile True: os.mkdir('d%d' % n); n += 1",
    "links": "import os\nn = 0\nwhile True: os.symlink('x' * 4000, 'l%d' % n); n += 1",
    "attributes": "import os\nn = 0\nwhile True:\n    os.mknod('f%d' % n)\n    os.setxattr('f%d' % n, 'user.x', b'x' * 3000); n += 1",
    "a file without a name": "import os\nkeep = []\nwhile True:\n    f = os.open('f', os.O_CREAT | os.O_WRONLY); os.unlink('f'); keep.append(f)\n    for _ in range(30): os.write(f, b'x' * 1_000_000)",
}


async def fill(wall: str, folder: str, code: str, where: str) -> dict[str, Any]:
    # Only the cage sees this disk; its blocks are never written to the machine's.
    image, disk = Path(folder) / "image", Path(folder) / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(8 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-N", "400000", "-E", "nodiscard,lazy_itable_init=1", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    try:
        free = os.statvfs(disk)
        workspace = disk / "workspace"
        async with Sandbox(wall, workspace=workspace if where == "/workspace" else None, limits=LIMITS) as sandbox:
            result = await attempt(sandbox, f"import os\nos.chdir({where!r})\n{code}")
            left = os.statvfs(disk)
            works = await still_works(sandbox) if where != "/workspace" else True
        used = (free.f_bfree - left.f_bfree) * free.f_frsize // MIB
        written = sum(path.lstat().st_blocks for path in workspace.rglob("*")) * 512 // MIB if workspace.exists() else 0
        return {"result": result, "used": max(used, written), "files": free.f_ffree - left.f_ffree, "works": works}
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


# In memory the kernel keeps the limit: of bytes, of names, and of what it keeps beside them.
IN_MEMORY = ("one file", "empty files", "links", "attributes", "a file without a name")


@pytest.mark.parametrize(
    ("name", "where"), [*((name, "/workspace") for name in BOMBS), *((name, "/tmp") for name in IN_MEMORY)]
)
def test_disks_are_not_filled(caged_once: Caged, tmp_path: Path, name: str, where: str) -> None:
    found = caged_once(fill, str(tmp_path), BOMBS[name], where, seconds=100)
    assert found["works"]
    assert found["result"]["outcome"] != "ok", found
    # The limit, and what can be written between two looks.
    assert found["used"] < 64 + 1500, found
    assert found["files"] < 200_000, found
