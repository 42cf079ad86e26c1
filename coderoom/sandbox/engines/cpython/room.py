"""The host's connection to a room.

The engine's `Worker` opens rooms and reuses them; a `CPythonSession` runs its cells in one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from coderoom._util.tasks import retrieve_exception, run_uncancellable
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.config import MOST_FORKS_IN_A_ROW, MOST_FORKS_WITH_LANDLOCK
from coderoom.sandbox.engines.cpython.cells import natural
from coderoom.sandbox.engines.cpython.channel import HostChannel
from coderoom.sandbox.engines.cpython.processes import (
    PATIENCE,
    CheckpointHandle,
    ForkServerClient,
    Runner,
    close_all,
    numbers,
    pids_of,
)
from coderoom.sandbox.proxy.client import Proxy, RoomNetwork

MOST_CHECKPOINTS = 64
"""How many checkpoints a room may have, each of which is a process."""
FORKS_AT_ONCE = 4
"""How many forks are made at the same time: the kernel limits how many descriptors are on their way."""
MOST_FORKS = 128
"""How many open forks a session may have, whose processes count among its own for the kernel."""
_MOMENT = 0.5
_LOOK_AGAIN = 0.2
_LOOKS = 4  # How many times in a row a room has to be seen idle before a process in it counts as stuck.
_FORKING = 30.0
_MOST_LOST = 3
_T = TypeVar("_T")
_MOST_SOCKETS = 64


class Places(NamedTuple):
    """The folders of a room that has no mounts of its own, as code sees them.

    Attributes:
        folders: The workspace, and the one for temporary files.
        forks: Where those of its forks are.
    """

    folders: tuple[str, ...] = ()
    forks: str = ""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Places:
        """Those that the room's supervisor reports."""
        return cls(tuple(map(str, facts.get("folders", ()))), str(facts.get("forks", "")))

    def in_workspace(self, workspace: str) -> Places:
        """Those after the code has moved to another workspace."""
        return Places((workspace, *self.folders[1:]), self.forks)

    def renamed(self, state: bytes, there: Places) -> bytes:
        """The state of a shell, for another room: its paths are those there."""
        before, cd, folder = state.rpartition(b"\ncd -- ")
        for old, new in zip(self.folders, there.folders, strict=True):
            before = _renamed(before, old, new)
            folder = _renamed(folder, _quoted(old), _quoted(new))
        return before + cd + folder


def _renamed(state: bytes, old: str, new: str) -> bytes:
    return re.sub(re.escape(os.fsencode(old)) + rb"(?=[/:\"'\s])", lambda _: os.fsencode(new), state)


def _quoted(path: str) -> str:
    """A path as bash prints it with `%q`."""
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", path)


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
        self.places = Places()
        self._state: CheckpointHandle | None = None
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
        copies: Sequence[int] = (),
    ) -> Room:
        """Make a room.

        Args:
            worker: The connection to the worker.
            largest: The most bytes that a message of its runner may have.
            proxy: What serves the room's network.
            overlay: Whether its workspace is an overlay.
            parent: The room of whose session it is a fork.
            within: That one's namespaces for users and processes, where rooms have some.
            copies: Folders with copies of its files.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        room = cls(ours, largest)
        room._worker = worker
        try:
            room.announce("room")
            with contextlib.ExitStack() as handed:
                fds = [handed.enter_context(theirs).fileno(), *within, *copies]
                if proxy is not None:
                    listeners, sender = map(handed.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
                    fds.append(sender.fileno())
                if overlay:
                    parts, sender = map(handed.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
                    fds.append(sender.fileno())
                facts = {"spaces": len(within), "given": len(within) + len(copies), "is_fork": parent is not None}
                await worker.send({"op": "room", "inside": parent.places.forks if parent else "", **facts}, fds)
                theirs.close()
                room.places = Places.of(await room.expect("room"))
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

    def check_can_fork(self, count: int, layered: bool) -> None:
        """Refuse forks of its session that the kernel would refuse; `layered`: they need Landlock to be kept apart."""
        most = MOST_FORKS_WITH_LANDLOCK if layered else MOST_FORKS_IN_A_ROW
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
        """The folder with the files of a fork, and what removes it where it covers the workspace in the fork's room.

        All is ready for it when the context begins, so that it hardly fails.
        """
        assert self._worker is not None
        async with self.handed_over() as (namespaces, (files, _)):
            if not namespaces:
                yield files, self._stay
                return
            user, _, mounts, *_ = namespaces
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

    async def _stay(self) -> None:
        """Uncover nothing."""

    async def leave_to(self, room: Room, state: CheckpointHandle) -> None:
        """Have the process that a fork's state is below belong to the room of the fork; without namespaces."""
        event = f"left {next(numbers)}"
        if (await self.ask("leave", event, answer=event, pid=state.pid)).get("known") is not True:
            raise SandboxUnavailable("its process has ended.")
        await room.send({"op": "join", "pid": state.pid})
        room.entered, room._state = state.pid, state

    async def adopt(self, runner: Runner) -> None:
        """Have the supervisor report the end of a process that has entered another room."""
        number = next(numbers)
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
    def yielding(self, seconds: float) -> Iterator[None]:
        """While this lasts, lower the priority of what runs in the room if it computes for longer than some seconds."""
        loop = asyncio.get_running_loop()
        request = {"op": "look", "pid": self._pid, "parent": self.parent._pid if self.parent else 0}
        forks = [each.entered for each in self.forks if isinstance(each, Room)] if self.places.folders else []

        def look(first: bool) -> None:
            if self._worker is not None:
                facts = {"first": first, "entered": self.entered, "apart": [*self._apart, *forks]}
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
        late = loop.call_later(PATIENCE, done, False)

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
        end, lost = time.monotonic() + _FORKING, 0
        while True:
            if self.spare is None or self.spare.ended is not None:
                await self.prepare()
            runner = self.spare
            assert runner is not None
            if not runner.ready.done() and (await asyncio.wait((runner.ready,), timeout=PATIENCE))[1]:
                raise SandboxUnavailable("The sandbox did not get ready in time.")
            if runner.pid:
                self.spare = None
                return runner
            # A fork bomb in this room, or in another one, may have left no place for one more process. And what ends
            # the others in the room may have hit one that was just forked.
            full = "fork" in (runner.ended or {})
            lost += not full
            self.spare = None
            if lost > _MOST_LOST or runner.failure or time.monotonic() > end:
                raise SandboxUnavailable(f"The sandbox's process could not start: {runner.why_not_ready}.")
            if full:
                await self.kill(self._kept)
                await asyncio.sleep(_MOMENT)

    async def kill(self, keep: Sequence[int] = ()) -> None:
        """Kill all processes in the room except the supervisor, those of `keep`, and what forks are made of."""
        await self.ask("kill", "killed", keep=[*keep, *self._apart])

    async def look(self) -> tuple[bool, float]:
        """Whether a process in the room runs or waits for a processor, and the seconds of processor time so far."""
        event = f"looked {next(numbers)}"  # Forks of its session look, too, while they come to be.
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
        end, idle = time.monotonic() + PATIENCE, 0
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
        if self._state is not None:
            self._state.close()
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
