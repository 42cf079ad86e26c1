"""Programs that stay in a session at a server, as `Process` has them: what they read and write goes over HTTP."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import fcntl
import os
import struct
import termios
import tty
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from coderoom._util.tasks import cancel_and_wait, resolve
from coderoom.errors import CodeRoomError
from coderoom.sandbox.engines.remote.client import MOST_BYTES, Client, id_of
from coderoom.sandbox.processes import Process

_CHUNK: Final = 65_536
_LOST: Final = {"lost": True}


class Bridge:
    """Carries what a process reads and writes between its descriptors here and the server."""

    def __init__(self, client: Client, process: Process) -> None:
        self._client = client
        self._process = process
        self._path = ""
        self._loop = asyncio.get_running_loop()
        self._fds = [*process.remote_fds]
        process.remote_fds.clear()
        self._resizing: asyncio.Task[Any] | None = None
        for fd in self._fds:
            os.set_blocking(fd, False)

    async def start(self, path: str, *, cwd: str, env: dict[str, str], terminal: bool) -> None:
        """Start the program.

        Raises:
            OSError: It cannot be started.
        """
        process, size = self._process, None
        if terminal:
            size = struct.unpack("HHHH", fcntl.ioctl(self._fds[0], termios.TIOCGWINSZ, bytes(8)))[:2]
            tty.setraw(self._fds[0])  # The terminal at the server does what a terminal does.
        body = {"argv": process.argv, "cwd": cwd, "env": env, "size": size}
        facts = await self._client.ask("POST", path, body)
        if "errno" in facts:
            number = facts["errno"] if isinstance(facts["errno"], int) else errno.EIO
            raise OSError(number, os.strerror(number), str(facts.get("filename") or process.argv[0]))
        self._path = f"{path}/{id_of(facts)}"
        process.send_number = self._send_number
        process.on_resize = self._resize

    async def carry(self) -> None:
        """Carry until the program has ended; `close` follows."""
        feeding = asyncio.ensure_future(self._feed())
        gate = asyncio.Event()
        gate.set()
        try:
            sent = self._client.events(f"{self._path}/output", {}, most=MOST_BYTES, patience=0, gate=gate)
            async with sent as events, aclosing(events):
                async for name, facts in events:
                    if name == "end":
                        self._end(facts)
                        return
                    await self._write(facts)
        except CodeRoomError:  # The server or the session is gone; `close` says so.
            pass
        finally:
            await cancel_and_wait(feeding)

    def close(self) -> None:
        """Close the descriptors; if the end of the program is not known, it is lost."""
        while self._fds:
            os.close(self._fds.pop())
        self._process.note_end(_LOST)  # What is left in a pipe is read at once.

    def _end(self, facts: dict[str, Any]) -> None:
        self._process.limit = facts.get("limit")
        self._process.note_end({"status": facts.get("exit_code")})

    async def _feed(self) -> None:
        with contextlib.suppress(CodeRoomError, OSError):  # The program does not read any more.
            async with aclosing(self._inputs()) as inputs:
                async for data in inputs:
                    body = {"data": base64.b64encode(data).decode(), "end": not data}
                    await self._client.ask("POST", f"{self._path}/input", body, seconds=86_400.0)

    async def _inputs(self) -> AsyncGenerator[bytes]:
        fd = self._fds[0]
        while True:
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                await self._ready(fd, self._loop.add_reader, self._loop.remove_reader)
                continue
            yield data
            if not data:
                return

    async def _write(self, facts: dict[str, Any]) -> None:
        fd = self._fds[-1 if facts.get("stream") == "stderr" else min(1, len(self._fds) - 1)]
        try:
            left = memoryview(base64.b64decode(facts["data"]))
        except (KeyError, TypeError, ValueError):
            return
        while left:
            try:
                left = left[os.write(fd, left) :]
            except BlockingIOError:
                await self._ready(fd, self._loop.add_writer, self._loop.remove_writer)
            except OSError:  # Nobody reads it here any more.
                return

    async def _ready(self, fd: int, add: Any, remove: Any) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        add(fd, resolve, ready)
        try:
            await ready
        finally:
            remove(fd)

    async def _send_number(self, number: int) -> None:
        with contextlib.suppress(CodeRoomError):  # It has ended.
            await self._client.ask("POST", f"{self._path}/signal", {"number": int(number)})

    def _resize(self, rows: int, columns: int) -> None:
        async def work() -> None:
            with contextlib.suppress(CodeRoomError):
                await self._client.ask("POST", f"{self._path}/size", {"rows": rows, "columns": columns})

        self._resizing = asyncio.ensure_future(work())
