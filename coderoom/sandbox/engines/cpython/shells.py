"""What other languages than Python keep from cell to cell of a session.

A shell writes a script that restores its state. The host only stores it and gives it back to a shell in the same room;
it is never run or read here. Node is one process, which gets the cells one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Mapping

from coderoom.sandbox.engines.cpython.cells import Ending, RunningCell
from coderoom.sandbox.engines.cpython.processes import Runner

_MOST = 1024 * 1024
_END = b"# all\n"


class Saving:
    """A pipe into which a shell writes its state.

    Attributes:
        writer: The shell's end.
        too_large: Whether the shell has written more than is kept.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        self._taken = bytearray()
        self.too_large = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._read)

    def _read(self) -> bool:
        """Read a piece; return whether more may follow at once."""
        try:
            data = os.read(self._reader, 65_536)
        except BlockingIOError:
            return False
        self.too_large = self.too_large or len(self._taken) + len(data) > _MOST
        if self.too_large:
            self._taken.clear()
        else:
            self._taken += data
        if not data:
            self._loop.remove_reader(self._reader)
        return bool(data) and not self.too_large

    def finish(self) -> bytes | None:
        """Return the state, after the shell has ended; `None` if it has saved none."""
        while self._read():
            pass
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
        return bytes(self._taken) if self._taken.endswith(_END) else None


class CellsRunner(Runner):
    """The host's connection to a process that runs all cells of a language in a session."""

    def __init__(self) -> None:
        super().__init__()
        self._said = b""
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        self.remote_fds.append(theirs.detach())
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._on_answer)

    async def send(self, cell: RunningCell, code: str, env: Mapping[str, str]) -> None:
        """Send a cell, with variables of the environment to set; the process ends it by its number and a status."""
        given, data = json.dumps(env).encode(), code.encode("utf-8", "surrogatepass")
        head = struct.pack(">III", cell.number & 0xFFFF_FFFF, len(given), len(data))
        with contextlib.suppress(ConnectionError):  # The process has ended, which its parent will report.
            await self._loop.sock_sendall(self._socket, head + given + data)

    def close(self) -> None:
        """Close everything, whereupon the process ends; a second time does nothing."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
        super().close()

    def _on_answer(self) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = self._socket.recv(4096)
        if not data:
            self._loop.remove_reader(self._socket)
        *lines, self._said = (self._said + data)[-4096:].split(b"\n")
        cell = self._cell
        for line in lines:
            number, _, status = line.partition(b" ")
            if cell is not None and number == b"%d" % (cell.number & 0xFFFF_FFFF):
                self._pipes.drain()
                cell.ended = {"status": int(status) if status.isdigit() and len(status) < 4 else 1}
                cell.finish(Ending.BY_ITSELF)
