"""Code that computes for long lets others go first."""

from __future__ import annotations

import pytest

from coderoom.sandbox import Limits, Sandbox

from .places import Place, on_both_shapes

PRIORITY = "import os\nos.getpriority(os.PRIO_PROCESS, 0)"
COMPUTES = """\
import os, subprocess, threading, time
threads = [threading.Thread(target=lambda: [None for _ in iter(lambda: over, True)]) for _ in range(2)]
over = False
for thread in threads:
    thread.start()
child = subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True)
ids = [thread.native_id for thread in threads] + [os.getpid(), child.pid]
end = time.monotonic() + 20
while min(os.getpriority(os.PRIO_PROCESS, each) for each in ids) < 10 and time.monotonic() < end:
    pass
found = min(os.getpriority(os.PRIO_PROCESS, each) for each in ids)
over = True
child.kill()
found
"""


@pytest.mark.slow
@on_both_shapes
async def test_a_cell_that_computes_for_long_gets_a_lower_priority_and_others_keep_theirs(place: Place) -> None:
    limits = Limits(yield_seconds=1)
    async with Sandbox(engine=place.engine, wall=place.wall, limits=limits, **place.arguments) as sandbox:
        async with sandbox.session() as session, sandbox.session() as other:
            waited = await session.run(f"import time\ntime.sleep(1)\n{PRIORITY}")
            assert waited.value == 0
            computed = await session.run(COMPUTES)
            assert isinstance(computed.value, int), computed
            assert computed.value >= 10
            assert (await other.run(PRIORITY)).value == 0
            await session.restart()
            assert (await session.run(PRIORITY)).value == 0
        assert (await sandbox.run(PRIORITY)).value == 0


@pytest.mark.slow
@on_both_shapes
async def test_that_of_a_fork_is_its_own(place: Place) -> None:
    async with place.sandbox(limits=Limits(yield_seconds=1)) as sandbox, sandbox.session() as session:
        (fork,) = await session.fork()
        assert (await session.run(COMPUTES)).value >= 10
        assert (await fork.run(PRIORITY)).value == 0
        await session.restart()
        assert (await fork.run(COMPUTES)).value >= 10
        assert (await session.run(PRIORITY)).value == 0


@on_both_shapes
async def test_output_that_is_not_kept_is_counted_as_ever(place: Place) -> None:
    limits = Limits(yield_seconds=0.2, output_bytes=10_000)
    code = "for number in range(100): print(str(number) * 20_000)\nimport os\nos.system('echo from sh')\n'the value'"
    sandbox = Sandbox(engine=place.engine, wall=place.wall, limits=limits, **place.arguments)
    async with sandbox, sandbox.session() as session:
        for _ in range(2):
            result = await session.run(code)
            assert result.value == "the value"
            assert result.stdout.endswith("9\nfrom sh\n")
            assert result.truncated
            assert result.stdout.startswith("0" * 1_000)
        pieces = [piece async for piece in session.stream(code)]
        assert sum(len(getattr(piece, "text", "")) for piece in pieces) == 10 * 20_000 + 90 * 40_000 + 100 + 8
