"""The host's side of a room and of the processes in it that run cells.

The engine's `Worker` opens rooms and reuses them; a `CPythonSession` runs its cells in one.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import itertools
import os
import secrets
import signal
import socket
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from coderoom._util.tasks import resolve, retrieve_exception, run_uncancellable
from coderoom._util.text import encodable
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.outcome import Outcome
from coderoom.sandbox.cell import STATE_KEPT, STATE_LOST, Collector, StreamName, artifacts_of, stopped
from coderoom.sandbox.config import MIB, MOST_FORKS_IN_A_ROW, Limits, SandboxConfig
from coderoom.sandbox.engines.cpython.channel import (
    HostChannel,
    OutputPipes,
)
from coderoom.sandbox.functions.calls import Calls
from coderoom.sandbox.guest.decoding import Decoder, TaggedError
from coderoom.sandbox.guest.frames import CONTENT, KEY_SIZE, STDOUT
from coderoom.sandbox.proxy.client import Proxy, RoomNetwork
from coderoom.sandbox.result import CodeError, ExecutionResult, FunctionCall, Limit

_PATIENCE = 20.0  # How many seconds a request to a process behind the wall may take.
MOST_CHECKPOINTS = 64
"""How many checkpoints a room may have, each of which is a process."""
FORKS_AT_ONCE = 4
"""How many forks are made at the same time: the kernel limits how many descriptors are on their way."""
MOST_FORKS = 128
"""How many open forks a session may have, whose processes count among its own for the kernel."""

_numbers = itertools.count(1)
_MOMENT = 0.5
_LOOK_AGAIN = 0.2
_LOOKS = 4  # How many times in a row a room has to be seen idle before a process in it counts as stuck.
_FORKING = 30.0
_MOST_CONTENT = 8 * 1024 * 1024
_T = TypeVar("_T")
_LONGEST = 30_000
_MOST_SOCKETS = 64
_MOST_NESTED_SOCKETS = 12  # The kernel allows 16 layers of Landlock, which keep abstract sockets of forks apart.

_LIMIT_OF_ERRNO: dict[int, Limit] = {
    errno.EMFILE: "open_files",
    errno.EFBIG: "file_size",
    errno.ENOSPC: "disk",
    errno.EAGAIN: "processes",
    errno.ENOMEM: "memory",
}
_FIELD_OF_LIMIT: dict[Limit, str] = {
    "open_files": "open_files",
    "file_size": "file_bytes",
    "processes": "processes",
}


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
            async with asyncio.timeout(_PATIENCE):
                return await asyncio.shield(future)
        except TimeoutError:
            raise SandboxUnavailable(f"The sandbox did not answer within {_PATIENCE:g} seconds ({event!r}).") from None
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
        number = next(_numbers)
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
        return self.failure or describe_end(self.ended or {})

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
        if not self.pid:
            self.failure = self.failure or "it has ended"
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
        event = f"connected {next(_numbers)}"
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


class Room(ForkServerClient):
    """The host's connection to a room's supervisor, which forks runners from the fresh state.

    Attributes:
        spare: A runner with a fresh state that has run nothing yet.
        parent: The room of whose session this is a fork.
        entered: The number there of the process that has entered this one.
        forks: The rooms of the forks of its session, which are inside of its namespaces, so that it outlives them; and
            those forks that have no rooms yet.
        held: The checkpoints that the latter are made of.
        has_forked: Whether it has had such.
        left: Whether its session has ended, and only they keep it.
    """

    _end_of_forks: Mapping[str, Any] = {"lost": True}

    def __init__(self, sock: socket.socket, largest: int) -> None:
        super().__init__(sock)
        self.largest = largest
        self._pid = 0  # As the worker has it.
        self._worker: HostChannel | None = None
        self.network: RoomNetwork | None = None
        self.overlay: tuple[int, ...] = ()  # Descriptors of what code writes, and of the workspace with it.
        self.spare: Runner | None = None
        self.parent: Room | None = None
        self.forks: set[object] = set()
        self.held: set[CheckpointHandle] = set()
        self.left = self.has_forked = False
        self.entered = 0
        self._depth = 0
        self._spare_number = 0
        self._kept: list[int] = []
        self._entering = 0
        self._reusable: Runner | None = None  # The supervisor has its remote ends, and its forks inherit them.

    @classmethod
    async def open(
        cls,
        worker: HostChannel,
        largest: int,
        proxy: Proxy | None = None,
        overlay: bool = False,
        parent: Room | None = None,
        within: Sequence[int] = (),
    ) -> Room:
        """Make a room.

        Args:
            worker: The connection to the worker.
            largest: The most bytes that a message of its runner may have.
            proxy: What serves the room's network.
            overlay: Whether its workspace is an overlay.
            parent: The room of whose session it is a fork.
            within: That one's namespaces for users and processes, and folders with copies of its files.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        room = cls(ours, largest)
        room._worker = worker
        try:
            room.announce("room")
            with contextlib.ExitStack() as handed:
                fds = [handed.enter_context(theirs).fileno(), *within]
                if proxy is not None:
                    listeners, sender = map(handed.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
                    fds.append(sender.fileno())
                if overlay:
                    parts, sender = map(handed.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
                    fds.append(sender.fileno())
                await worker.send({"op": "room", "given": len(within)}, fds)
                theirs.close()
                await room.expect("room")
                if proxy is not None:  # No code has run in the room yet.
                    _, sockets, _, _ = socket.recv_fds(listeners, 1, _MOST_SOCKETS, socket.MSG_DONTWAIT)
                    room.network = proxy.add(sockets)
                if overlay:
                    _, got, _, _ = socket.recv_fds(parts, 1, 2, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
                    room.overlay = tuple(got)
        except BaseException:
            room.close()
            raise
        if parent is not None:
            room.parent = parent
            room._depth = parent._depth + 1
            parent.forks.add(room)
        return room

    def check_can_fork(self, count: int, has_sockets: bool) -> None:
        """Refuse forks of its session that the kernel would refuse; `has_sockets`: code may make Unix sockets."""
        most = _MOST_NESTED_SOCKETS if has_sockets else MOST_FORKS_IN_A_ROW
        if self._depth >= most:
            raise RequestError(f"The session is a fork of forks, {most} in a row, and cannot be forked again.")
        if len(self.forks) + count > MOST_FORKS:
            raise RequestError(f"A session can have {MOST_FORKS} open forks, and this one has {len(self.forks)}.")

    @contextlib.asynccontextmanager
    async def handed_over(self, forks: bool = False) -> AsyncGenerator[tuple[list[int], list[int]]]:
        """The room's namespaces, the one for users and the one for processes first, and its folders for files.

        `forks` says that forks of its session will be inside of them.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with ours, theirs, contextlib.ExitStack() as closing:
            self.has_forked = self.has_forked or forks
            self.announce("handed")
            await self.send({"op": "hand", "forks": forks}, [theirs.fileno()])
            await self.expect("handed")
            fds = socket.recv_fds(ours, 1, _MOST_SOCKETS, socket.MSG_DONTWAIT)[1]
            closing.callback(close_all, fds)
            yield fds[:-2], fds[-2:]

    @contextlib.asynccontextmanager
    async def uncovering(self) -> AsyncGenerator[tuple[int, Callable[[], Coroutine[Any, Any, object]]]]:
        """The folder that covers the workspace in a room of a fork, and what removes that cover.

        All is ready for it when the context begins, so that it hardly fails.
        """
        assert self._worker is not None
        async with self.handed_over() as ((user, _, mounts, *_), (files, _)):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            client = ForkServerClient(ours)
            try:
                with theirs:
                    client.announce("entered")
                    await self._worker.send({"op": "uncover"}, [theirs.fileno(), user, mounts])
                await client.expect("entered")
                yield files, lambda: client.ask("go", "uncovered")
            finally:
                client.close()

    async def adopt(self, runner: Runner) -> None:
        """Have the supervisor report the end of a process that has entered another room."""
        number = next(_numbers)
        self._forks[number] = runner
        await self.send({"op": "adopt", "id": number, "pid": runner.entered})

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncGenerator[None]:
        """Stop all processes in the room for as long as the context lasts."""
        try:
            await self.ask("freeze", "freeze")
            yield
        finally:  # Also after a cancelled wait: the processes may have been stopped.
            await run_uncancellable(self.ask("thaw", "thaw"))

    def leave(self) -> None:
        """End everything in the room but what is needed by forks: the supervisor, and what they will be made of."""
        self.left = True
        self.protect([])
        with contextlib.suppress(OSError):
            self._control.send_now({"op": "kill", "keep": self._apart})

    def _on_message(self, message: dict[str, Any]) -> None:
        if message.get("event") == "pid":
            self._pid = natural(message.get("pid"))
        else:
            super()._on_message(message)

    @contextlib.contextmanager
    def yielding(self, seconds: float | None) -> Iterator[None]:
        """While this lasts, lower the priority of what runs in the room if it computes for longer than some seconds."""
        if seconds is None:
            yield
            return
        loop = asyncio.get_running_loop()

        request = {"op": "look", "pid": self._pid, "parent": self.parent._pid if self.parent else 0}

        def look(first: bool) -> None:
            if self._worker is not None:
                facts = {"first": first, "entered": self.entered, "apart": self._apart}
                self._worker.send_now({**request, **facts})
            timers[0] = loop.call_later(_LOOK_AGAIN, look, False)

        timers = [loop.call_later(seconds, look, True)]
        try:
            yield
        finally:
            timers[0].cancel()

    async def prepare(self) -> None:
        """Fork a new spare runner from the fresh state."""
        self._forks.pop(self._spare_number, None)
        self._spare_number = await self.start(self._connect_spare())

    def reset(self, done: Callable[[bool], None], hurry: bool) -> None:
        """End everything in the room, empty its private folders, and fork a spare runner from the fresh state.

        `done` is called with whether the room can be used again; `hurry`: somebody waits for it. This is not a task:
        asyncio would log one that an ending event loop leaves behind.
        """
        self._kept = []
        self._forks.clear()  # Processes killed by a reset send no "ended" event.
        runner = self._reusable
        if runner is None or runner.closed:
            try:
                runner = self._connect_spare()
            except OSError:  # There are no descriptors left.
                done(False)
                return
        else:
            runner.reset()
            self.spare = runner
        self._spare_number, request = self._request(runner, "run", {"reset": True, "hurry": hurry})
        try:
            sent = self._control.send_now(request, runner.remote_fds)
        except OSError:
            sent = False
        finally:
            runner.close_remote_fds()
        if not sent:
            done(False)
            return
        loop = asyncio.get_running_loop()
        late = loop.call_later(_PATIENCE, done, False)

        def ready(_: object) -> None:
            late.cancel()
            done(runner.pid != 0)

        runner.ready.add_done_callback(ready)

    def abandon(self) -> None:
        """Close the room's sockets and pipes without waking waiters, whose event loop may be closed."""
        self.lost = True
        self._control.close()
        if self.network is not None:
            self.network.close()
        if self._reusable is not None:
            self._reusable.close()
        close_all(self.take_overlay())

    def take_overlay(self) -> tuple[int, ...]:
        """The descriptors of the overlay, which become the caller's."""
        overlay, self.overlay = self.overlay, ()
        return overlay

    def discard(self, runner: Runner) -> None:
        """Close a runner whose process is not needed any longer, unless the next process can reuse its connection."""
        if runner is not self._reusable:
            runner.close()

    async def take_spare(self) -> Runner:
        """Wait until the spare runner is ready for a cell, and give it to the caller; fork another if it has ended."""
        end = time.monotonic() + _FORKING
        while True:
            if self.spare is None or self.spare.ended is not None:
                await self.prepare()
            runner = self.spare
            assert runner is not None
            if not runner.ready.done() and (await asyncio.wait((runner.ready,), timeout=_PATIENCE))[1]:
                raise SandboxUnavailable("The sandbox did not get ready in time.")
            if runner.pid:
                self.spare = None
                return runner
            # A fork bomb in this room, or in another one, may have left no place for one more process.
            if "fork" not in (runner.ended or {}) or time.monotonic() > end:
                raise SandboxUnavailable(f"The sandbox's process could not start: {runner.why_not_ready}.")
            await self.kill(self._kept)
            await asyncio.sleep(_MOMENT)

    async def kill(self, keep: Sequence[int] = ()) -> None:
        """Kill all processes in the room except the supervisor, those of `keep`, and what forks are made of."""
        await self.ask("kill", "killed", keep=[*keep, *self._apart])

    async def look(self) -> tuple[bool, float]:
        """Whether a process in the room runs or waits for a processor, and the seconds of processor time so far."""
        event = f"looked {next(_numbers)}"  # Forks of its session look, too, while they come to be.
        seen = await self.ask("look", event, answer=event)
        return seen.get("busy") is True, natural(seen.get("cpu_ms"), 1 << 53) / 1000

    async def interrupt(self, keep: Sequence[int] = ()) -> None:
        """As `kill`, but interrupt them, as Ctrl-C does."""
        await self.send({"op": "interrupt", "keep": [*keep, *self._apart]})

    def protect(self, pids: Sequence[int]) -> None:
        """Set which processes the supervisor spares when it ends the others at a limit."""
        self._kept = list(pids)
        self._tell_kept()

    def hold(self, handle: CheckpointHandle) -> None:
        """Keep a checkpoint that forks will be made of, whatever becomes of the session."""
        self.held.add(handle)
        self._tell_kept()

    def let_go(self, handle: CheckpointHandle) -> None:
        """End such a checkpoint."""
        self.held.discard(handle)
        handle.close()
        self._tell_kept()

    @contextlib.contextmanager
    def being_left(self) -> Iterator[None]:
        """While this lasts, a process in it may be on its way to a fork, or make the room of one."""
        self._entering += 1
        self._tell_kept()
        try:
            yield
        finally:
            self._entering -= 1
            self._tell_kept()

    @property
    def _apart(self) -> list[int]:
        return pids_of(self.held)

    def _tell_kept(self) -> None:
        apart = self._apart
        told = {"op": "keep", "pids": [*self._kept, *apart], "apart": apart, "entering": self._entering}
        with contextlib.suppress(OSError):
            self._control.send_now(told)

    async def wait_unless_stuck(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for a process in the room to do something, as long as something in the room uses processor time."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(retrieve_exception)
        end, idle = time.monotonic() + _PATIENCE, 0
        try:
            while True:
                await asyncio.wait((task,), timeout=_MOMENT)
                if task.done():
                    return task.result()
                idle = 0 if (await self.look())[0] else idle + 1
                if idle == _LOOKS or time.monotonic() > end:
                    raise SandboxUnavailable("The session's process does not answer.")
        finally:
            task.cancel()

    def close(self) -> None:
        """Close the connection, whereupon the supervisor ends everything in the room."""
        super().close()
        self.spare = None
        if self.network is not None:
            self.network.close()
        if self._reusable is not None:
            self._reusable.close()
        close_all(self.take_overlay())

    def _connect_spare(self) -> Runner:
        """Make a new connection for the next spare runner, in the place of the reusable one."""
        if self._reusable is not None:
            self._reusable.close()
        self._reusable = self.spare = Runner(self.largest)
        return self.spare


async def copy_files(worker: HostChannel, folders: Sequence[int]) -> list[int]:
    """Have the worker copy folders into memory; descriptors of the copies, which become the caller's.

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
            return list(socket.recv_fds(receiver, 1, len(folders), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)[1])
    finally:
        client.close()


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


class RunningCell:
    """A cell that runs.

    Attributes:
        number: Its number, which its answer must have.
        output: What it has printed so far.
        answer: What its process reported at its end; `None` if the process ended before that.
        ended: What the parent of the process reported about the end of the process; `None` while it runs.
        calls: Answers its calls to functions of the host; `None` if none are offered.
        sending: The request with the cell, while it is being sent in several steps.
    """

    def __init__(self, number: int, output: Collector) -> None:
        self.number = number
        self.output = output
        self.answer: Mapping[str, Any] | None = None
        self.ended: Mapping[str, Any] | None = None
        self.calls: Calls | None = None
        self.sending: asyncio.Future[None] | None = None
        self._ending: Ending | None = None
        self._waiter: asyncio.Future[None] | None = None

    def finish(self, ending: Ending) -> None:
        """Stop waiting for the cell; only the first reason counts."""
        self._ending = self._ending or ending
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float) -> Ending:
        """Wait until the cell has finished, was cancelled or has used up its time."""
        if self._ending is None:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(seconds, self.finish, Ending.TIMEOUT)
            try:
                await self._waiter
            finally:
                timer.cancel()
        assert self._ending is not None
        return self._ending

    async def wait_longer(self, seconds: float) -> bool:
        """After `wait`, wait longer for an answer or for the end of the process; return whether one came."""
        self._ending = None if self.answer is None and self.ended is None else Ending.BY_ITSELF
        return await self.wait(seconds) is Ending.BY_ITSELF

    async def end_calls(self) -> tuple[FunctionCall, ...]:
        """End the calls that still run, and return all calls."""
        return () if self.calls is None else await self.calls.close()

    async def stop_sending(self) -> None:
        """Cancel the request if it is still being sent, and end the calls."""
        if self.sending is not None:
            self.sending.cancel()
            await asyncio.gather(self.sending, return_exceptions=True)
            self.sending = None
        await self.end_calls()


class Ending(enum.Enum):
    """Why the host no longer waits for a cell."""

    BY_ITSELF = enum.auto()
    TIMEOUT = enum.auto()
    CANCELLED = enum.auto()


def conclude(
    cell: RunningCell,
    ending: Ending,
    code: str,
    config: SandboxConfig,
    duration: float,
    seconds: float,
    state_lost: bool | None,
) -> ExecutionResult:
    """Make the result of a cell, whose answer is untrusted; `seconds` is how long it was allowed to take.

    `state_lost` is `None` for a one-shot run, which has no session.
    """
    answer: Mapping[str, Any] = cell.answer or {}
    limits = config.limits
    facts: dict[str, Any] = {}
    if ending is not Ending.BY_ITSELF:
        rest = "" if state_lost is None else STATE_LOST if state_lost else STATE_KEPT
        facts = stopped(None if ending is Ending.CANCELLED else seconds, "wall", rest)
    elif cell.answer is not None:
        facts = _answered(answer, limits)
    elif cell.ended is not None:
        facts = _died(cell.ended, limits, state_lost)
    if cell.output.truncated or answer.get("value_too_large") is True:
        facts["limit"] = facts.get("limit") or ("output" if cell.output.truncated else "value")
    return cell.output.make_result(
        **facts,
        duration=duration,
        artifacts=artifacts_of(
            answer.get("artifacts"), answer.get("contents", b""), config.shared_workspace, cell.output.marked()
        ),
        artifacts_left_out=natural(answer.get("artifacts_left_out")),
        code=code,
        state_lost=bool(state_lost),
        peak_memory=natural((cell.ended or answer).get("peak"), 1 << 63) or None,
    )


def _answered(answer: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    exit_code = answer.get("exit_code")
    if type(exit_code) is not int or not 0 <= exit_code <= 255:
        exit_code = 1
    if answer.get("outcome") == "ok" and exit_code == 0:
        untrusted = answer.get("value_repr")
        shown = _text(untrusted[:_LONGEST]) if isinstance(untrusted, str) else None
        value, is_data = answer.get("value"), answer.get("value") is not None
        if "tagged" in answer:
            with contextlib.suppress(TaggedError, RecursionError):
                value, is_data = Decoder().read(answer["tagged"]), True
        return {
            "outcome": Outcome.OK,
            "exit_code": 0,
            "value": value if is_data else shown,
            "value_repr": shown,
            "value_is_data": is_data,
        }
    error, limit = _error(answer.get("error"), limits)
    memory = answer.get("outcome") == "memory" or limit == "memory"
    return {
        "outcome": Outcome.MEMORY if memory else Outcome.ERROR,
        "exit_code": 137 if memory else exit_code or 1,
        "error": error,
        "limit": "memory" if memory else limit,
    }


def _error(untrusted: Any, limits: Limits) -> tuple[CodeError, Limit | None]:
    if not isinstance(untrusted, dict):
        return CodeError("Error", "The code failed and did not say why."), None
    kind, message = str(untrusted.get("type"))[:200], str(untrusted.get("message"))[:_LONGEST]
    line = untrusted.get("line")
    limit = _LIMIT_OF_ERRNO.get(untrusted["errno"]) if isinstance(untrusted.get("errno"), int) else None
    if kind == "RuntimeError" and message == "can't start new thread":
        limit = "processes"
    message = _with_limit(message, limit, limits)
    text = _text(str(untrusted.get("traceback") or "")[: 4 * _LONGEST])
    return CodeError(_text(kind), _text(message), text, line if isinstance(line, int) else None), limit


def _with_limit(message: str, limit: Limit | None, limits: Limits) -> str:
    if limit == "disk":
        met = f"or the limit disk_bytes={limits.disk_bytes:,} of /tmp was met"
        return f"{message.rstrip('.')}. The disk is full, {met} if the file is there."
    field = _FIELD_OF_LIMIT.get(limit) if limit is not None else None
    if field is None:
        return message
    return f"{message.rstrip('.')}. The limit {field}={getattr(limits, field):,} was met."


def _died(ended: Mapping[str, Any], limits: Limits, lost: bool | None) -> dict[str, Any]:
    rest = f" {STATE_LOST}" if lost else ""
    met = ended.get("limit")
    if met == "cpu":
        return stopped(limits.cpu_seconds or 0, "cpu", rest.strip())
    did = {
        "memory": f"wanted more memory than the {limits.memory_bytes // MIB:,} MiB that it may have",
        "processes": f"had more than {limits.processes} processes at a time",
        "disk": f"wrote more than {limits.disk_bytes // MIB:,} MiB into its workspace",
    }.get(str(met))
    if did is not None:
        outcome = Outcome.MEMORY if met == "memory" else Outcome.ERROR
        error = CodeError("Limit", f"The code {did}.{rest}")
        return {"outcome": outcome, "exit_code": 137, "error": error, "limit": met}
    status = ended.get("status")
    if not isinstance(status, int):
        message = _with_limit(f"The code's process could not be started: {ended.get('fork')}.", "processes", limits)
        error = CodeError("Error", f"{message}{rest}")
        return {"outcome": Outcome.ERROR, "exit_code": 126, "error": error, "limit": "processes"}
    if status < 0:
        limit: Limit | None = "file_size" if -status == signal.SIGXFSZ else None
        message = _with_limit(f"The code's process was ended by {_signal(-status)}.", limit, limits)
        error = CodeError("Signal", f"{message}{rest}")
        return {"outcome": Outcome.ERROR, "exit_code": 128 - status, "error": error, "limit": limit}
    if status == 0:
        return {"outcome": Outcome.OK, "exit_code": 0}
    return {"outcome": Outcome.ERROR, "exit_code": status, "error": CodeError("Exit", f"exit code {status}.{rest}")}


def describe_end(facts: Mapping[str, Any]) -> str:
    """Say why a process ended that never got ready for code, from what its parent reported."""
    if facts.get("lost"):
        return "everything in the sandbox has ended"
    if facts.get("fork"):
        return str(facts["fork"])
    status = facts.get("status")
    if isinstance(status, int) and status < 0:
        return f"it was ended by {_signal(-status)}"
    return f"it ended with exit code {status}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _text(untrusted: str) -> str:
    return untrusted if untrusted.isascii() else encodable(untrusted)


def natural(untrusted: Any, end: int = 1 << 31) -> int:
    """The number, if it is one from 0 on and below `end`; else 0."""
    return untrusted if type(untrusted) is int and 0 <= untrusted < end else 0
