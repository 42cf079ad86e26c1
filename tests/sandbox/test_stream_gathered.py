"""What code prints while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coderoom.sandbox import OutputChunk, stream_gathered

PIECES = 400


async def test_a_flood_on_both_streams_is_told_while_the_code_runs() -> None:
    """The code ends only when all of it was told; 300 pieces one by one would take a quarter of a minute."""
    everything = asyncio.Event()

    async def run(tell: Callable[[OutputChunk], None]) -> str:
        for number in range(PIECES):
            tell(OutputChunk("stderr" if number % 2 else "stdout", f"{number} "))
        await everything.wait()
        return "done"

    told: list[str] = []
    async with asyncio.timeout(8):
        async for item in stream_gathered(run):
            if isinstance(item, str):
                assert item == "done"
                break
            told += item.text.split()
            if len(told) == PIECES:
                everything.set()
    assert told == [str(number) for number in range(PIECES)]
