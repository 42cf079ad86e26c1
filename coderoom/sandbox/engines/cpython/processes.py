"""The host's connections to processes behind the wall: to those that fork others, and to those that run cells."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import secrets
import signal
import socket
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from coderoom._util.tasks import resolve
from coderoom.errors import SandboxUnavailable
from coderoom.sandbox.cell import StreamName
from coderoom.sandbox.engines.cpython.cells import Ending, RunningCell, describe_end, natural
from coderoom.sandbox.engines.cpython.channel import HostChannel, OutputPipes
from coderoom.sandbox.guest.frames import CONTENT, KEY_SIZE, STDOUT

PATIENCE = 20.0
"""How many seconds a request to a process behind the wall may take."""
numbers = itertools.count(1)
"""Numbers of requests."""
_MOST_CONTENT = 8 * 1024 * 1024


class Fork(Protocol):
    """What a fork server tells of a process that it has forked.

    Attributes:
        key: What is before each of the packets of its channel, if it has one.
        remote_fds: The process's ends of channels and pipes, until it has been sent them.
        limit: The limit that its room has met while it ran.
    """

    key: bytes
    remote_fds: list[int]
    limit: Any

    def close_remote_fds(self) -> None:
        """Close these, after they were sent."""

    def note_end(self, facts: Mapping[str, Any], /) -> None:
        """Record what its parent reports of its end."""


class ForkServerClient:
    """The host's connection to a fork server behind the wall: a room's supervisor, or a checkpoint.

    `limit` is the limit that its room has met last.
    """

    # What forks are said to have ended with if the server ends first. Code can kill a checkpoint that it was in.
    _end_of_forks: Mapping[str, Any] = {"status": -int(signal.SIGKILL)}

    def __init__(self, sock: socket.socket, key: bytes = bytes(KEY_SIZE)) -> None:
        self.lost = False
        self.limit: str | None = None
        self._forks: dict[int, Fork] = {}
        self._events: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._control = HostChannel(sock, self._on_message, self._on_end, key)

    async def expect(self, event: str) -> Mapping[str, Any]:
        """Wait for an event; a process that failed, has ended or does not answer is a `SandboxUnavailable`."""
        future = self.announce(event)
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(future)
        except TimeoutError:
            raise SandboxUnavailable(f"The sandbox did not answer within {PATIENCE:g} seconds ({event!r}).") from None
        finally:
            if self._events.get(event) is future:
                del self._events[event]
            future.cancel()

    async def ask(self, op: str, event: str, **arguments: Any) -> Mapping[str, Any]:
        """Send a request and wait for its answer, as `expect`."""
        self.announce(event)  # The answer may come before `expect` is called.
        await self.send({"op": op, **arguments})
        return await self.expect(event)

    async def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a request."""
        try:
            await self._control.send(message, fds)
        except OSError as error:
            raise SandboxUnavailable(f"The sandbox's process has ended ({error}).") from error

    async def start(self, client: Fork, op: str = "run", **arguments: Any) -> int:
        """Request a fork of the state, to which `client` is connected; return the number of the request."""
        number, request = self._request(client, op, arguments)
        try:
            await self.send(request, client.remote_fds)
        finally:
            client.close_remote_fds()
        return number

    def _request(self, client: Fork, op: str, arguments: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        number = next(numbers)
        self._forks[number] = client
        return number, {"op": op, "id": number, "key": client.key.hex(), **arguments}

    def close(self) -> None:
        """Close the control socket, whereupon the process ends."""
        self._control.close()
        self._on_end()

    def announce(self, event: str) -> asyncio.Future[Mapping[str, Any]]:
        """Keep an event that may come before `expect` is called for it."""
        future = self._events.get(event)
        if future is None:
            future = self._events[event] = asyncio.get_running_loop().create_future()
            if self.lost:
                self._fail(SandboxUnavailable("The sandbox's process has ended."))
        return future

    def _on_message(self, message: dict[str, Any]) -> None:
        event = str(message.get("event"))
        if event == "ended":
            runner = self._forks.pop(natural(message.get("id")), None)
            if runner is not None:
                runner.note_end(message)
        elif event == "limit":
            self.limit = str(message.get("limit"))
            for each in self._forks.values():
                each.limit = self.limit
        elif event == "failed":
            error = SandboxUnavailable(f"The sandbox could not be set up: {message.get('error')}")
            error.errno = natural(message.get("errno")) or None
            self._fail(error)
        else:
            future = self._events.get(event)
            if future is not None and not future.done():
                future.set_result(message)

    def _on_end(self) -> None:
        self.lost = True
        self._fail(SandboxUnavailable("The sandbox's process has ended."))
        forks, self._forks = self._forks, {}
        for fork in forks.values():
            fork.note_end(self._end_of_forks)

    def _fail(self, error: SandboxUnavailable) -> None:
        for future in self._events.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # Retrieved, so that asyncio does not log it if nothing waits for it.


class Runner:
    """The host's connection to a process behind the wall: a channel for messages, and pipes for its output.

    A process that runs a program of another language than Python has only the pipes.

    Args:
        largest: The most bytes that one of its messages may have; 0: without a channel.

    Attributes:
        ready: Done once the process waits for code, or has failed to start; then `pid` is 0.
        pid: The process's number inside the room; 0 until it is ready.
        ended: What its parent reported about its end; `None` while it runs.
        remote_fds: The process's ends of the channel and the pipes, until it has been sent them.
        paused: Whether its output is not being read.
        entered: Its number in the room that it was forked in, if it has entered another one.
    """

    entered = 0

    def __init__(self, largest: int = 0) -> None:
        self.key = secrets.token_bytes(KEY_SIZE)
        self.pid = 0
        self.limit: str | None = None
        self.failure = ""
        self.ended: Mapping[str, Any] | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cell: RunningCell | None = None
        self._channel: HostChannel | None = None
        self.remote_fds: list[int] = []
        self._contents = bytearray()
        self.paused = False
        if largest:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._channel = HostChannel(ours, self._on_message, self._on_end, self.key, self._on_packet, largest)
            self.remote_fds.append(theirs.detach())
        try:
            self._pipes = OutputPipes(self._on_output, self._channel)
        except OSError:  # There are no descriptors left.
            if self._channel is not None:
                self._channel.close()
            self.close_remote_fds()
            raise
        self.remote_fds += self._pipes.writers
        # For a sandbox that is never closed.
        weakref.finalize(self, close_all, self._pipes.readers, self.remote_fds).atexit = False

    def reset(self) -> None:
        """Prepare for the next process, which inherits the remote ends from the supervisor that forks it.

        Only to be called when no other process that has these ends is left.
        """
        self.key = secrets.token_bytes(KEY_SIZE)
        self.channel.reset(self.key)
        self.ready = asyncio.get_running_loop().create_future()
        self.pid, self.failure, self.ended, self._cell = 0, "", None, None
        if self.paused:
            self.pause(False)

    @property
    def channel(self) -> HostChannel:
        """The channel of a process that runs Python."""
        assert self._channel is not None
        return self._channel

    @property
    def closed(self) -> bool:
        """Whether the channel or a pipe is closed, so that no other process can use this connection."""
        return self._channel is None or self._channel.closed or len(self._pipes.readers) < 2

    @property
    def why_not_ready(self) -> str:
        """Why it never got ready."""
        return self.failure or (describe_end(self.ended) if self.ended else "it has ended")

    @property
    def broken(self) -> bool:
        """Whether a message to the process was cut off, so that it cannot understand any later one."""
        return self._channel is not None and self._channel.broken

    def close_remote_fds(self) -> None:
        """Close the process's ends, after they were sent to it."""
        for fd in self.remote_fds:
            os.close(fd)
        self.remote_fds.clear()

    def attach(self, cell: RunningCell) -> None:
        """Give output and answers of the process to this cell from now on."""
        self._cell = cell
        if self.ended is not None:
            cell.ended = self.ended
            cell.finish(Ending.BY_ITSELF)
        self._contents.clear()
        if self._channel is not None:
            self._channel.listening = True
            self._channel.byte_budget = None

    def pause(self, paused: bool) -> None:
        """Stop or continue to read output; the process blocks once its buffers are full."""
        self.paused = paused
        if self._channel is not None:
            self._channel.pause(paused)
        self._pipes.pause(paused)

    def note_end(self, facts: Mapping[str, Any]) -> None:
        """Record that the process has ended, after reading what it had written."""
        if self._channel is not None:
            self._channel.drain(ended=True)
        self._pipes.drain()
        self.ended = facts
        resolve(self.ready)
        if self._cell is not None:
            self._cell.ended = facts
            self._cell.finish(Ending.BY_ITSELF)

    def close(self) -> None:
        """Close everything; a second time does nothing."""
        if self._channel is not None:
            self._channel.close()
        self._pipes.close()
        self.close_remote_fds()

    def _on_message(self, message: dict[str, Any]) -> None:
        event, cell, channel = message.get("event"), self._cell, self.channel
        if event == "ready" and not self.pid:
            self.pid = natural(message.get("pid"))
            resolve(self.ready)
            if cell is None:
                channel.listening = False
                self._pipes.drain()  # Drops what earlier processes have left in the pipes.
        elif event == "entered" and not self.pid:
            self.entered = natural(message.get("pid"))
        elif event == "failed" and not self.ready.done():
            self.failure = str(message.get("error"))
        elif cell is None:
            return
        elif event == "done" and message.get("id") == cell.number:
            message["contents"] = bytes(self._contents)
            cell.answer = message
            cell.finish(Ending.BY_ITSELF)
            channel.listening = False
        elif event == "shown" and isinstance(message.get("name"), str):
            cell.output.mark(message["name"])
        elif event == "bundle" and isinstance(message.get("data"), dict):
            cell.output.show(message["data"], message.get("main") is True)
        elif event == "call" and cell.calls is not None:
            cell.calls.take(message, channel.taken)
        elif event == "left" and cell.calls is not None:
            cell.calls.leave(message.get("call"))

    def _on_end(self) -> None:
        resolve(self.ready)

    def _on_packet(self, tag: bytes, data: bytes) -> None:
        if tag == CONTENT:
            if len(self._contents) + len(data) <= _MOST_CONTENT:
                self._contents += data
        elif self._cell is not None:
            self._cell.output.add("stdout" if tag == STDOUT else "stderr", data)

    def _on_output(self, stream: StreamName, data: bytes) -> None:
        if self._cell is not None:
            self._cell.output.add(stream, data)


class CheckpointHandle(ForkServerClient):
    """A checkpoint of this engine: the host's connection to a process that keeps the state and forks it on request."""

    pid = 0
    released = False
    shell = b""


class Relay(ForkServerClient):
    """The host's connection to the relay of a room, which connects streams to ports at which its code listens."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.key = secrets.token_bytes(KEY_SIZE)
        self.remote_fds = [theirs.detach()]
        super().__init__(ours, self.key)

    async def connect(self, port: int) -> socket.socket:
        """Return a stream to a port; a `ConnectionRefusedError` says that nothing listens there."""
        event = f"connected {next(numbers)}"
        ours, theirs = socket.socketpair()
        try:
            self.announce(event)
            with theirs:
                await self.send({"op": "connect", "event": event, "port": port}, [theirs.fileno()])
            failed = natural((await self.expect(event)).get("errno"))
            if failed:
                what = "nothing in the session listens" if failed == errno.ECONNREFUSED else os.strerror(failed)
                raise OSError(failed, f"{what} at port {port}")
        except BaseException:
            ours.close()
            raise
        return ours

    def close_remote_fds(self) -> None:
        """Close the relay's end, after it was sent to it."""
        close_all(self.remote_fds)
        self.remote_fds.clear()

    def note_end(self, facts: Mapping[str, Any], /) -> None:
        """Nothing can be connected any more."""
        self.close()


async def copy_files(worker: HostChannel, folders: Sequence[int], closing: contextlib.ExitStack) -> list[int]:
    """Have the worker copy folders; descriptors of the copies, which are there until `closing` is closed.

    There are none if the folders are empty.
    """
    if not any(map(_has_entries, folders)):
        return []
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client = ForkServerClient(ours)
    try:
        client.announce("kept")
        receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with theirs, receiver, sender:
            await worker.send({"op": "files"}, [theirs.fileno(), sender.fileno(), *folders])
            theirs.close()
            await client.expect("kept")
            flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            copies = list(socket.recv_fds(receiver, 1, len(folders), flags)[1])
    except BaseException:
        client.close()
        raise
    closing.callback(client.close)  # Where copies are no memory that goes with them, a process waits to remove them.
    closing.callback(close_all, copies)
    return copies


def _has_entries(folder: int) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is not None


def pids_of(checkpoints: Iterable[CheckpointHandle]) -> list[int]:
    """The numbers of the checkpoints' processes; code may have ended some, whose numbers may have been reused."""
    return [each.pid for each in checkpoints if not each.lost]


def close_all(*lists: Iterable[int]) -> None:
    """Close descriptors."""
    for fds in lists:
        for fd in fds:
            os.close(fd)
