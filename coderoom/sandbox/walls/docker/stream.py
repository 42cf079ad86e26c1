"""Answers of the engine that go on for as long as a container lives."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["EngineStream"]

_HEAD_END = b"\r\n\r\n"


class EngineStream:
    """An answer that has begun, read without waiting: docker-py can neither do that, nor close one for certain.

    Args:
        path: The engine's socket.
        target: What is asked for, by POST.
        keep: How many bytes are kept, the last ones.
        timeout: How many seconds the beginning of the answer may take.

    Attributes:
        data: What has arrived.
        ended: Whether that is all.

    Raises:
        OSError: The engine refused, or is not there.
    """

    def __init__(self, path: str, target: str, keep: int, timeout: float = 60) -> None:
        self._keep = keep
        self.data = b""
        self.ended = False
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.settimeout(timeout)
            self._sock.connect(path)
            self._sock.sendall(f"POST {target} HTTP/1.1\r\nHost: docker\r\nContent-Length: 0\r\n\r\n".encode())
            self._read_head()
            self._sock.setblocking(False)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """What becomes readable when there is more, and at the end."""
        return self._sock.fileno()

    def take_in(self) -> None:
        """Take in what has arrived."""
        with contextlib.suppress(BlockingIOError):
            while not self.ended:
                self._take(65_536)

    def close(self) -> None:
        """Close it; a second time does nothing."""
        self.ended = True
        self._sock.close()

    def _take(self, size: int) -> None:
        try:
            data = self._sock.recv(size)
        except BlockingIOError:
            raise
        except OSError:
            data = b""
        self.ended = not data
        self.data = (self.data + data)[-self._keep :]

    def _read_head(self) -> None:
        while _HEAD_END not in self.data and not self.ended:
            self._take(4096)
        head, _, self.data = self.data.partition(_HEAD_END)
        status = head.split(None, 2)
        if len(status) < 2 or status[1] != b"200":
            raise OSError((head or b"the engine said nothing").decode(errors="replace"))
