"""A command of a sandbox, and the clients that follow it; the calls are in `process.py`."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import AsyncGenerator
from typing import Final

from coderoom.integrations.service.boxes import Box
from coderoom.integrations.service.e2b.connect import Facts
from coderoom.sandbox import Process

_QUEUED: Final = 64
_LAST_OUTPUT_SECONDS: Final = 0.25


class Command:
    """A command and the clients that follow it.

    Attributes:
        number: What clients call its PID.
        process: The process.
        facts: How a list of commands describes it.
    """

    def __init__(self, number: int, process: Process, facts: Facts, pty: bool) -> None:
        self.number = number
        self.process = process
        self.facts = {"pid": number, **facts}
        self._pty = pty
        self._followers: list[asyncio.Queue[Facts]] = []
        self._killed = False

    async def follow(self) -> AsyncGenerator[Facts]:
        """The number of the command, then its output, and how it ends."""
        queue: asyncio.Queue[Facts] = asyncio.Queue(_QUEUED)
        self._followers.append(queue)
        try:
            yield {"event": {"start": {"pid": self.number}}}
            while True:
                event = await queue.get()
                yield {"event": event}
                if "end" in event:
                    return
        finally:
            self._followers.remove(queue)
            while not queue.empty():  # Somebody may wait for room in it.
                queue.get_nowait()

    async def attend(self, box: Box, seconds: float | None) -> None:
        """Pass its output on until it has ended, and kill it after so many seconds; the box is in use meanwhile."""
        reading = asyncio.ensure_future(self._read())
        with box:
            try:
                async with asyncio.timeout(seconds):
                    await self.process.wait()
            except TimeoutError:
                await self.kill()
            code = self.process.exit_code
            await asyncio.wait((reading,), timeout=_LAST_OUTPUT_SECONDS)  # What it has started may go on writing.
            status = "signal: killed" if self._killed else f"exit status {code}"
            end: Facts = {"exitCode": code, "exited": not self._killed, "status": status}
            if self.process.limit is not None:
                end["error"] = f"It was ended at the limit of the sandbox: {self.process.limit}."
            elif self._killed:
                end["error"] = status
            await self._tell({"end": end})

    async def _read(self) -> None:
        async for piece in self.process:
            name = "pty" if self._pty else piece.stream
            await self._tell({"data": {name: base64.b64encode(piece.data).decode()}})

    async def _tell(self, event: Facts) -> None:
        for queue in list(self._followers):
            await queue.put(event)

    async def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal that ends it."""
        if number == signal.SIGKILL:
            self._killed = True
            await self.process.kill()
        else:
            await self.process.send_signal(number)
