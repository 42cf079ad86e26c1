"""The memory of the worker is laid out so that forks are cheap; code must not be able to tell."""

from __future__ import annotations

import asyncio

from coderoom.sandbox import Sandbox

from .places import STRONGEST

_RIGHTS = "[line.split()[1] for line in open('/proc/self/maps')]"

# Objects that the interpreter keeps in its own memory, many more than the worker has left free.
_RESIDENT = """
import gc
def resident():
    gc.collect()
    return int(open('/proc/self/statm').read().split()[1]) * 4096
"""
_USED_AND_FREED = """
used = resident()
many = [[] for _ in range(600_000)]
more = resident() - used
del many
(more, resident() - used)
"""


async def test_nothing_is_both_writable_and_executable(sandbox: Sandbox) -> None:
    rights = (await sandbox.run(_RIGHTS)).value
    assert "r-xp" in rights
    assert not [each for each in rights if "w" in each and "x" in each]


async def test_freed_memory_goes_back_to_the_system() -> None:
    async with STRONGEST.sandbox() as sandbox, sandbox.session() as session:
        await session.run(_RESIDENT)
        for _ in range(2):
            more, left = (await session.run(_USED_AND_FREED)).value
            assert more > 30_000_000
            assert left < more / 2


async def test_code_that_waits_for_a_room_runs_as_any_other() -> None:
    async with STRONGEST.sandbox(concurrency=2) as sandbox:
        code = "import random\nprint(random.random())\n_ = open('/tmp/left', 'w').write('open')\n__name__"
        results = await asyncio.gather(*(sandbox.run(code) for _ in range(12)))
        assert {each.value for each in results} == {"__main__"}
        assert len({each.output for each in results}) == 12
