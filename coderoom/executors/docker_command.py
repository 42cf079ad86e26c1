"""A command that runs in a Docker container, and what ends it with all that it has started."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from typing import Any

import docker  # type: ignore[import-untyped]

from coderoom.executors.launch import Output

__all__ = ["Attached"]

_KILL_PATIENCE = 3.0
_DEATH_PATIENCE = 8.0
_KILL_LOOK = 0.5
# An image may have no `ps` and no `pkill`. Whoever runs it cannot fork faster than `kill -1`, which is one step.
_KILL_ALL = "kill -9 -1"
_KILL_MARKED = """
for round in 1 2 3 4 5 6 7 8 9 10; do
    left=
    for process in /proc/[0-9]*; do
        grep -qs {mark} "$process/environ" && kill -9 "${{process#/proc/}}" 2>/dev/null && left=1
    done
    [ "$left" ] || break
done
"""


class Attached:
    """A command that runs in a container, and its output.

    Args:
        container: The container.
        command: The command.
        mark: The value of `CODEROOM_RUN` in its environment.
        output: Takes what it writes.
        loop: The loop that `closed` belongs to.

    Attributes:
        closed: Done when no more output can come.
    """

    def __init__(
        self, container: Any, command: list[str], mark: str, output: Output, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._api = container.client.api
        self._container: str = container.id
        environment = {"CODEROOM_RUN": mark, "PYTHONUNBUFFERED": "1"}
        # Both streams in one: the engine reads two, and nobody could tell their order.
        whole = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *command]
        self._id: str = self._api.exec_create(self._container, whole, environment=environment)["Id"]
        stream = self._api.exec_start(self._id, socket=True)
        self._response = stream._response
        self._socket = getattr(stream, "_sock", stream)
        self._socket.settimeout(None)
        self._deaf = False
        self.closed: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._read, args=(output, loop), daemon=True)
        self._thread.start()

    def exit_code(self) -> int | None:
        """Return the exit code, or `None` if the command has not ended."""
        facts = self._api.exec_inspect(self._id)
        # Before it runs, it has no exit code either.
        return None if facts["Running"] or facts["ExitCode"] is None else int(facts["ExitCode"])

    def kill(self, mark: str | None) -> None:
        """End what has the mark, or without one all that runs in the container. It is not listened to any more."""
        self._deaf = True  # A shell would say that its children were killed.
        if mark is None:
            # Root can end everybody's. Its `kill` is the shell's own.
            script, user = _KILL_ALL, "0"
        else:
            # Nobody may look at the environment of other users' processes.
            script, user = _KILL_MARKED.format(mark=mark), ""
        with contextlib.suppress(docker.errors.APIError):  # The container is gone, or is going.
            end = time.monotonic() + _DEATH_PATIENCE
            # The engine may be about to start it, and then there was nothing to end.
            while time.monotonic() < end:
                self._say(script, user)
                if self._ends():
                    return
            # Code may have put another shell in the place of that one.
            self._api.restart(self._container, timeout=0)

    def close(self) -> None:
        """Stop reading."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._response.close()

    def _say(self, script: str, user: str) -> None:
        """Run a script in the container and wait for its end, in bounds."""
        identity = self._api.exec_create(self._container, ["/bin/sh", "-c", script], user=user)["Id"]
        stream = self._api.exec_start(identity, socket=True)
        with contextlib.closing(stream._response), contextlib.suppress(OSError):
            getattr(stream, "_sock", stream).settimeout(_KILL_PATIENCE)
            stream._response.raw._fp.fp.read(4096)

    def _ends(self) -> bool:
        end = time.monotonic() + _KILL_LOOK
        # The engine tells the end of a command late while children of others hold their output open.
        while self._thread.is_alive() and self.exit_code() is None:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def _read(self, output: Output, loop: asyncio.AbstractEventLoop) -> None:
        # As docker-py gets at it, but with what has come together with the head of the answer.
        stream = self._response.raw._fp.fp
        with contextlib.suppress(OSError, ValueError):
            while len(head := stream.read(8)) == 8:
                (left,) = struct.unpack(">4xI", head)
                while left and (data := stream.read1(min(left, 65536))):
                    if not self._deaf:
                        output.feed(data)
                    left -= len(data)
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(self._set_closed)

    def _set_closed(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
