# ruff: noqa: E501 (pieces of hostile code, one to a line)
"""Trees that are hard to remove, in the folders that the next one gets."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coderoom.sandbox import Limits, Sandbox

from .conftest import Caged
from .hostside import attempt, still_works

TREES = {
    "deep": "for _ in range(3000): os.mkdir('d' * 10); os.chdir('d' * 10)\nopen('end', 'w').write('x')",
    "very deep": """
for n in range(10_000):
    os.mkdir('d'); os.chdir('d')
""",
    "wide": "for n in range(200_000): os.mknod('f%d' % n)",
    "shut": """
os.mkdir('a'); os.mkdir('a/b'); open('a/b/c', 'w').write('x')
os.chmod('a/b/c', 0); os.chmod('a/b', 0); os.chmod('a', 0); os.chmod('.', 0)""",
    "strange": "os.mkfifo('p')\nos.symlink('/usr', 'l')\nopen(b'\\xff\\n', 'w')\nimport socket\nsocket.socket(1).bind('s')\nos.mkdir(' ')",
    "open files": "keep = [open(str(n), 'w') for n in range(200)]",
}


async def leave(wall: str, code: str) -> dict[str, Any]:
    async with Sandbox(wall, limits=Limits(wall_seconds=20), concurrency=1) as sandbox:
        return {where: await _leave(sandbox, where, code) for where in ("/tmp", "/dev/shm", "/workspace")}


async def _leave(sandbox: Sandbox, where: str, code: str) -> dict[str, Any]:
    # An interpreter below /tmp is shown there.
    look = f"import os\nsorted(os.listdir({where!r}))[:10], os.access({where!r}, os.W_OK)"
    fresh = (await attempt(sandbox, look))["value"]
    found = await attempt(sandbox, f"import os\nos.chdir({where!r})\n{code}\nos._exit(0)")
    begin = time.monotonic()
    later = [(await attempt(sandbox, look))["value"] for _ in range(3)]
    seconds = time.monotonic() - begin
    return {"found": found, "fresh": fresh, "later": later, "seconds": seconds, "works": await still_works(sandbox)}


@pytest.mark.parametrize("name", TREES)
def test_the_next_one_finds_nothing_at_once(caged_once: Caged, name: str) -> None:
    for where, found in caged_once(leave, TREES[name], seconds=110).items():
        assert found["works"]
        assert found["fresh"][1] is True
        assert len(found["fresh"][0]) <= (where == "/tmp")
        assert found["later"] == [found["fresh"]] * 3, found
        assert found["seconds"] < 30, found
