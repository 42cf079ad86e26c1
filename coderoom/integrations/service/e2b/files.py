"""The files of a session: `guest.py`, which runs inside, answers one request after the other."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from importlib.resources import files as resources
from typing import Any, Final

from coderoom.integrations.http import is_overfull
from coderoom.integrations.service.boxes import KeptSession
from coderoom.integrations.service.e2b.connect import Facts, RpcError
from coderoom.sandbox import Process

_SOURCE: Final = resources(__package__).joinpath("guest.py").read_text("utf-8")
_MOST_FREE: Final = 2
_LOOK_SECONDS: Final = 0.5
_LONGEST: Final = 64 * 1024 * 1024
_BROKEN: Final = "What reads and writes files has ended: the session was restarted, or a limit was met. Try again."


class Helper:
    """A process that answers requests. `lock`: for those who use it at the same time."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lock = asyncio.Lock()
        self._output = aiter(process)
        self._arrived = bytearray()

    async def ask(self, op: str, **facts: Any) -> Facts:
        """Send a request, and wait for the answer.

        Raises:
            RpcError: It was refused, or the process has ended.
        """
        await self.send(json.dumps({"op": op, **facts}).encode())
        return await self.answer()

    async def send(self, data: bytes) -> None:
        """Send a frame."""
        try:
            await self.process.write(struct.pack("<I", len(data)) + data)
        except BrokenPipeError:
            raise RpcError("unavailable", _BROKEN) from None

    async def receive(self) -> bytes:
        """Wait for a frame."""
        (size,) = struct.unpack("<I", await self._exactly(4))
        if size > _LONGEST:
            raise RpcError("unavailable", _BROKEN)
        return await self._exactly(size)

    async def answer(self) -> Facts:
        """Wait for an answer."""
        return self._read(await self.receive())

    async def whole_answer(self) -> bytes:
        """Wait for an answer that nobody here reads, since it can be long."""
        data = await self.receive()
        if data.startswith(b'{"error"'):
            self._read(data)
        return data

    def _read(self, data: bytes) -> Facts:
        try:
            found = None if is_overfull(data) else json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RpcError("unavailable", _BROKEN)
        if "error" in found:
            raise RpcError(str(found["error"]), str(found.get("message")))
        return found

    async def _exactly(self, size: int) -> bytes:
        while len(self._arrived) < size:
            piece = await anext(self._output, None)
            if piece is None:
                raise RpcError("unavailable", _BROKEN)
            if piece.stream == "stdout":
                self._arrived += piece.data
        data = bytes(self._arrived[:size])
        del self._arrived[:size]
        return data


async def use_of(kept: KeptSession) -> tuple[int, float, int]:
    """What the processes of a session use now: bytes of memory, how much of a processor, and bytes of its files."""
    helper = await Files(kept).start()
    try:
        before = await helper.ask("use", files=kept.box.apart)
        await asyncio.sleep(_LOOK_SECONDS)
        after = await helper.ask("use")
        seconds = float(after["seconds"] - before["seconds"])
        return int(after["memory"]), seconds / _LOOK_SECONDS, int(before["files"])
    except (KeyError, TypeError, ValueError):
        raise RpcError("unavailable", _BROKEN) from None
    finally:
        await helper.process.kill()


class Files:
    """The files of a session."""

    def __init__(self, kept: KeptSession) -> None:
        self._kept = kept
        self._free: list[Helper] = []

    async def start(self) -> Helper:
        """A new helper."""
        argv = ["python", "-I", "-S", "-c", _SOURCE]
        return Helper(await self._kept.session.start(argv, wait_for_reader=True))

    @asynccontextmanager
    async def _helper(self) -> AsyncIterator[Helper]:
        """A helper for one request; it is used again if the request was answered."""
        self._free = [each for each in self._free if each.process.exit_code is None]
        found = self._free.pop() if self._free else await self.start()
        is_free = False
        try:
            yield found
            is_free = True
        except RpcError as error:
            is_free = str(error) != _BROKEN
            raise
        finally:
            if is_free and len(self._free) < _MOST_FREE:
                self._free.append(found)
            else:
                await found.process.kill()

    async def ask(self, op: str, **facts: Any) -> Facts:
        """The answer to a request.

        Raises:
            RpcError: It was refused.
        """
        async with self._helper() as helper:
            return await helper.ask(op, **facts)

    async def list(self, **facts: Any) -> bytes:
        """What is in a folder, as JSON.

        Raises:
            RpcError: It was refused.
        """
        async with self._helper() as helper:
            await helper.send(json.dumps({"op": "list", **facts}).encode())
            return await helper.whole_answer()

    async def read(self, path: str) -> AsyncGenerator[bytes]:
        """An empty part once the file is found, then its parts.

        Raises:
            RpcError: There is none.
        """
        async with self._helper() as helper:
            await helper.ask("read", path=path)
            yield b""
            while part := await helper.receive():
                yield part

    async def write(self, path: str, parts: AsyncGenerator[bytes], metadata: dict[str, str]) -> Facts:
        """Write a file and describe it.

        Raises:
            RpcError: It cannot be written.
        """
        async with self._helper() as helper, aclosing(parts):
            await helper.send(json.dumps({"op": "write", "path": path, "metadata": metadata}).encode())
            async for part in parts:
                if part:
                    await helper.send(part)
            await helper.send(b"")
            found: Facts = (await helper.answer())["entry"]
            return found
