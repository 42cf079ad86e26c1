"""What a shell keeps from cell to cell of a session: a script that restores it, which the shell itself has written.

The host only stores it and gives it back to a shell in the same room; it is never run or read here.
"""

from __future__ import annotations

import asyncio
import os

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
