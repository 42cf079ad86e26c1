"""A process inside a sandbox that answers requests for files; what is asked is in `files.py`."""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from coderoom.integrations.service.e2b.connect import RpcError
from coderoom.sandbox import Process

_LONGEST: Final = 64 * 1024 * 1024
BROKEN: Final = "What reads and writes files has ended: the session was restarted, or a limit was met. Try again."


class Helper:
    """A process in a sandbox that answers one request after the other."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._output = aiter(process)
        self._arrived = bytearray()

    async def send(self, data: bytes) -> None:
        """Send a frame."""
        try:
            await self.process.write(struct.pack("<I", len(data)) + data)
        except BrokenPipeError:
            raise RpcError("unavailable", BROKEN) from None

    async def receive(self) -> bytes:
        """Wait for a frame.

        Raises:
            RpcError: The process has ended, or has sent something else.
        """
        (size,) = struct.unpack("<I", await self._exactly(4))
        if size > _LONGEST:
            raise RpcError("internal", BROKEN)
        return await self._exactly(size)

    async def answer(self) -> dict[str, Any]:
        """Wait for an answer.

        Raises:
            RpcError: It is a refusal, or none.
        """
        try:
            found = json.loads(await self.receive())
        except ValueError:
            raise RpcError("internal", BROKEN) from None
        if not isinstance(found, dict):
            raise RpcError("internal", BROKEN)
        if "error" in found:
            raise RpcError(str(found["error"]), str(found.get("message")))
        return found

    async def _exactly(self, size: int) -> bytes:
        while len(self._arrived) < size:
            piece = await anext(self._output, None)
            if piece is None:
                raise RpcError("unavailable", BROKEN)
            if piece.stream == "stdout":
                self._arrived += piece.data
        data = bytes(self._arrived[:size])
        del self._arrived[:size]
        return data
