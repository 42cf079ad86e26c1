"""A command of a sandbox, and the clients that follow it; the calls are in `process.py`."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from coderoom.sandbox import Process

Facts = dict[str, Any]
_QUEUED: Final = 64
_LAST_OUTPUT_SECONDS: Final = 0.25


class Command:
    """A command and the clients that follow it.

    Attributes:
        number: What clients call its PID.
        process: The process.
        config: What its client has asked for.
        tag: Its other name.
    """

    def __init__(self, number: int, process: Process, config: Mapping[str, Any], tag: str | None, pty: bool) -> None:
        self.number = number
        self.process = process
        self.config = config
        self.tag = tag
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

    async def attend(self) -> None:
        """Pass its output on until it has ended."""
        reading = asyncio.ensure_future(self._read())
        try:
            code = await self.process.wait()
            await asyncio.wait((reading,), timeout=_LAST_OUTPUT_SECONDS)  # What it has started may go on writing.
        except BaseException:
            reading.cancel()
            raise
        status = "signal: killed" if self._killed else f"exit status {code}"
        end: Facts = {"exitCode": code, "exited": not self._killed, "status": status}
        if self.process.limit is not None:
            end["error"] = f"It was ended at the limit of the sandbox: {self.process.limit}."
        elif self._killed:
            end["error"] = status
        await self._tell({"end": end})
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _read(self) -> None:
        async for piece in self.process:
            name = "pty" if self._pty else piece.stream
            await self._tell({"data": {name: base64.b64encode(piece.data).decode()}})

    async def _tell(self, event: Facts) -> None:
        for queue in list(self._followers):
            await queue.put(event)

    async def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal."""
        if number == signal.SIGKILL:
            self._killed = True
            await self.process.kill()
        else:
            await self.process.send_signal(number)

    async def suspend(self, suspended: bool) -> None:
        """Let it stop, or go on."""
        await self.process.send_signal(signal.SIGSTOP if suspended else signal.SIGCONT)
