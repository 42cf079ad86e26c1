"""What others do to a run through its journal while it goes on: see what it does, stop it, and talk to its team.

A page of `coderoom runs serve` is in another process than the run, which looks into the journal now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from coderoom.errors import JournalError
from coderoom.runs.writer import Writer

POLL_SECONDS: Final = 0.5
"""How often a run looks into the journal."""


@asynccontextmanager
async def stoppable(writer: Writer, stop: Callable[[], None]) -> AsyncIterator[None]:
    """While this lasts, the journal has what the run does, and `stop` is called once somebody has asked to end it.

    What somebody says to the team waits in the writer.
    """
    watching = asyncio.create_task(_watch(writer, stop))
    try:
        yield
    finally:
        watching.cancel()


async def _watch(writer: Writer, stop: Callable[[], None]) -> None:
    with suppress(JournalError):  # The run goes on without it.
        while writer.journal is not None and writer.run is not None:
            await asyncio.sleep(POLL_SECONDS)
            await asyncio.to_thread(writer.write_doings)
            writer.take_said()
            if writer.journal.take_stop(writer.run):
                stop()
                return
