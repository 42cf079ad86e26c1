"""A container with a worker in it, from its making to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import select
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from coderoom.sandbox.walls.docker.engine import Engine, is_missing, reason

__all__ = ["Container", "DockerWorker", "EngineStream"]

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


_log = logging.getLogger(__name__)

_TAIL = 4096
_KILLED = 137
_PATIENCE = 2.0
# What the engine answers for a container that is being removed already, or is not running.
_ON_ITS_WAY = 409


class Container:
    """A container that removes itself when its first process ends.

    Args:
        engine: Its engine.
        id: Its id.
    """

    @classmethod
    def create(cls, engine: Engine, config: Mapping[str, Any]) -> Self:
        """Make one that is not started yet.

        Args:
            engine: The engine that makes it.
            config: The arguments of docker-py's `create_container`.
        """
        made = engine.client.create_container(**config)["Id"]
        try:
            return cls(engine, made)
        except BaseException:
            engine.client.remove_container(made, force=True, v=True)
            raise

    def __init__(self, engine: Engine, id: str) -> None:
        self.id = id
        self._client = engine.client
        target = f"/v{engine.client.api_version}/containers/{id}"
        # Once it is gone the engine knows nothing of it any more, so both are asked for beforehand.
        self._output = EngineStream(engine.path, f"{target}/attach?stream=1&stdout=1&stderr=1", 4 * _TAIL)
        try:
            self._exit = EngineStream(engine.path, f"{target}/wait?condition=next-exit", _TAIL)
        except BaseException:
            self._output.close()
            raise

    def fileno(self) -> int:
        """What becomes readable when it writes something, and when it ends."""
        return self._output.fileno()

    def start(self) -> None:
        """Start it."""
        self._client.start(self.id)

    def ended(self) -> bool:
        """Take in what it has written; whether it has ended."""
        self._output.take_in()
        return self._output.ended

    def written(self) -> str:
        """The end of what it has written."""
        self._output.take_in()
        return _without_heads(self._output.data).decode(errors="replace").strip()[-_TAIL:]

    def exit_code(self, patience: float = 0) -> int | None:
        """Its exit code, if it has ended.

        Args:
            patience: How many seconds the engine may take to notice that.
        """
        if not self._exit.ended:
            select.select([self._exit], [], [], patience)
            self._exit.take_in()
        found = re.search(rb'"StatusCode":\s*(\d+)', self._exit.data)
        return int(found[1]) if found else None

    def remove(self) -> None:
        """End it at once and remove it; nothing is left of it when this returns."""
        try:
            self._client.remove_container(self.id, force=True, v=True)
        except Exception as error:  # The engine's errors and the connection's.
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status == _ON_ITS_WAY:
                with contextlib.suppress(Exception):
                    self._client.wait(self.id, timeout=10, condition="removed")
            elif not is_missing(error):
                _log.warning("The container %s could not be removed: %s", self.id[:12], reason(error))

    def close(self) -> None:
        """Close the connections to it."""
        self._exit.close()
        self._output.close()


@dataclass(eq=False)
class DockerWorker:
    """A worker in a container.

    Attributes:
        control: This side of its control channel.
        boot: What it has to be told.
        container: The container.
        memory: How much memory the container may have.
        undo: Ends and removes it, and whatever else was made for it.
    """

    control: socket.socket
    boot: Mapping[str, Any]
    container: Container
    memory: int
    undo: Callable[[], object]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        # Nobody may ever close it.
        self._end = weakref.finalize(self, _undo, os.getpid(), self.control, self.undo)

    async def end(self) -> None:
        """End the container and remove it."""
        await asyncio.shield(asyncio.to_thread(self.kill))

    def kill(self) -> None:
        """The same, for when there is no event loop any more."""
        with self._lock:
            self._end()

    def describe_death(self) -> str:
        """What is known of why it ended by itself."""
        if not self._end.alive:
            return "It was ended."
        written, ended = self.container.written(), self.container.ended()
        code = self.container.exit_code(_PATIENCE if ended else 0)
        why = f"Its container ended with exit code {code}."
        if code is None:
            why = "The Docker engine has ended, or forgotten it." if ended else "It is still running."
        if code == _KILLED:
            why += f" It was killed, most likely for needing more memory than its {self.memory >> 20} MiB."
        return f"{why} It wrote: {written}" if written else why


def _undo(host: int, control: socket.socket, undo: Callable[[], object]) -> None:
    control.close()
    if os.getpid() == host:  # And not a fork of it that ends.
        undo()


def _without_heads(data: bytes) -> bytes:
    """What a container wrote, of which every piece has a head of eight bytes: its stream, and its length."""
    return re.sub(rb"[\0-\2]\0\0\0[\0-\xff]{4}", b"", data, flags=re.DOTALL)
