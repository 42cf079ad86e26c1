"""Forks of a session: what they are made of, and how each comes to be when it is first used.

A fork of a session that has hundreds of megabytes takes a moment, and some are used much later or never. So `fork` only
keeps the state, by one checkpoint, and the files, by one copy, and these stay as they are whatever the first session
does. The first use of each fork makes its room and has a process enter that.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import time
import weakref
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from coderoom._util.tasks import resolve, run_uncancellable
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.engines.cpython.cells import describe_end, natural
from coderoom.sandbox.engines.cpython.processes import CheckpointHandle, Runner, close_all
from coderoom.sandbox.engines.cpython.room import Room
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.overlay import Overlay, Saved

T = TypeVar("T")
Begin = Callable[[Room, bool], Awaitable[T]]
"""Makes the session of a fork in a room; the second argument is whether it gets random numbers of its own."""
_TRIES = 3  # What the first session's code does can end a process on its way.
_CROWDED, _MOMENT = 20.0, 0.02  # How long processes of other forks may leave no place for one more.


class Rooms(Protocol):
    """Where the rooms of sessions come from."""

    forking: asyncio.Semaphore

    def give_back(self, room: Room, /) -> None:
        """Take a room that a session does not need any longer."""

    async def admit(self, parent: Room, forks: Sequence[object], /) -> None:
        """Take places for forks of a room's session."""

    def dismiss(self, parent: Room, fork: object, /, place: bool = True) -> None:
        """Forget a fork that has a room now, or that also gives back its place."""

    async def copy_files(self, folders: Sequence[int], closing: contextlib.ExitStack, /) -> list[int]:
        """Copy the folders of a room; descriptors of the copies, which are there until `closing` is closed."""

    async def open_fork(self, parent: Room, within: Sequence[int], copies: Sequence[int], /) -> Room:
        """Make a room inside of another one, with copies of folders."""

    def drop(self, room: Room, /) -> None:
        """End a room that no session was made of."""

    def guarded_paths(self) -> Collection[str]:
        """What of the workspace this machine runs, as paths below it."""


class Origin:
    """What the forks of one state are made of, until each of them was used or closed."""

    def __init__(self, rooms: Rooms, room: Room) -> None:
        self.rooms = rooms
        self.room = room
        self.forks: set[Fork[Any]] = set()  # Those that have not been used.
        self._handle: CheckpointHandle | None = None
        self._saved: Saved | None = None
        self._within: list[int] = []  # Descriptors of the namespaces of the first room.
        self._copies: list[int] = []  # Those of the copies of its files.
        self._closing = contextlib.ExitStack()

    def keep_state(self, handle: CheckpointHandle) -> None:
        """Keep the state."""
        self._handle = handle
        self.room.hold(handle)

    async def keep_files(self, overlay: Overlay | None) -> None:
        """Keep the files. Nothing may write to them meanwhile."""
        if overlay is not None:
            self._saved = await run_uncancellable(asyncio.to_thread(overlay.save))
        async with self.room.handed_over(forks=True) as (namespaces, folders):
            self._copies = await self.rooms.copy_files(folders, self._closing)
            self._within = [*map(os.dup, namespaces[:2])]
            self._closing.callback(close_all, self._within)
        # For a sandbox that is never closed.
        weakref.finalize(self, self._closing.close).atexit = False

    async def open_room(self) -> Room:
        """Make the room of a fork, with the files."""
        tries = _TRIES
        while True:
            try:
                return await self.rooms.open_fork(self.room, self._within, self._copies)
            except SandboxUnavailable as error:
                tries -= 1
                if error.errno is not None or self.room.lost or not tries:
                    raise
            await asyncio.sleep(_MOMENT)  # The first session has just ended, for instance, with all in its room.

    async def restore_changes(self, overlay: Overlay) -> None:
        """Give a fork the changes of an overlay."""
        assert self._saved is not None
        await run_uncancellable(asyncio.to_thread(overlay.begin_with, self._saved))

    async def enter(self, room: Room, reseed: bool) -> Runner:
        """Have a process with the state enter the room of a fork."""
        handle = self._handle
        assert handle is not None
        end, tries = time.monotonic() + _CROWDED, _TRIES
        while True:
            runner = Runner(room.largest)
            try:
                return await self._enter(handle, room, runner, reseed)
            except BaseException as error:
                runner.close()
                if not isinstance(error, SandboxUnavailable) or self.room.lost or room.lost:
                    raise
                tries -= error.errno != errno.EAGAIN or time.monotonic() > end
                if handle.lost or not tries:
                    raise RequestError(f"The state cannot be forked: {error}") from error
            await asyncio.sleep(_MOMENT)

    async def _enter(self, handle: CheckpointHandle, room: Room, runner: Runner, reseed: bool) -> Runner:
        if room.places.folders:
            return await self._part(handle, room, runner, reseed)
        async with room.handed_over() as (namespaces, _):
            entry = _Entry(runner.key, [*runner.remote_fds, *map(os.dup, namespaces)])
            runner.remote_fds.clear()
        await handle.start(entry, "enter", reseed=reseed)
        await self.room.wait_unless_stuck(asyncio.wait((entry.done,)))
        if not (entry.failure or runner.ready.done()):
            await room.wait_unless_stuck(asyncio.wait((runner.ready,)))
        if runner.pid == 0:
            raise _not_started(entry.failure or runner.why_not_ready, entry.crowded)
        room.entered = runner.entered
        await self.room.adopt(runner)
        return runner

    async def _part(self, handle: CheckpointHandle, room: Room, runner: Runner, reseed: bool) -> Runner:
        """The same without namespaces: one more checkpoint, which is apart from the first room, forks that process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        state = CheckpointHandle(ours, runner.key)
        try:
            state.announce("holding")
            entry = _Entry(runner.key, [theirs.detach()])
            await handle.start(entry, "part")
            await self.room.wait_unless_stuck(asyncio.wait((entry.done,)))
            if entry.failure:
                raise _not_started(entry.failure, entry.crowded)
            state.pid = natural((await self.room.wait_unless_stuck(state.expect("holding"))).get("pid"))
            await self.room.leave_to(room, state)
            places = room.places
            await state.start(runner, reseed=reseed, folders=places.folders, forks=places.forks)
            await room.wait_unless_stuck(asyncio.wait((runner.ready,)))
            if runner.pid == 0:
                raise _not_started(runner.why_not_ready)
        except BaseException:
            state.close()
            raise
        return runner

    def leave(self, fork: Fork[Any], place: bool) -> None:
        """Forget a fork; with the last one, what they are made of ends."""
        if fork in self.forks:
            self.forks.discard(fork)
            if not self.forks:
                if self._handle is not None:
                    self.room.let_go(self._handle)
                if self._saved is not None:
                    self._saved.remove()
                self._closing.close()
            self.rooms.dismiss(self.room, fork, place)


class Fork(Generic[T]):
    """A fork that has not been used. It has a place in the sandbox; `begin` makes its session in a room."""

    def __init__(self, origin: Origin, begin: Begin[T], reseed: bool) -> None:
        self._origin = origin
        self._begin = begin
        self._reseed = reseed
        origin.forks.add(self)

    @classmethod
    async def make(cls, origin: Origin, begin: Begin[T], count: int, reseed: bool) -> list[Self]:
        """Make some, each with a place in the sandbox."""
        forks = [cls(origin, begin, reseed) for _ in range(count)]
        try:
            await origin.rooms.admit(origin.room, forks)
        except BaseException:
            origin.forks.difference_update(forks)
            raise
        return forks

    async def fork(self, count: int, reseed: bool) -> list[Fork[T]]:
        """Make more of the same state; see `Session.fork`."""
        return [*await self.make(self._origin, self._begin, count, reseed)]

    async def open(self, functions: Mapping[str, HostFunction]) -> T:
        """Make the session, which has the functions of the first one."""
        origin = self._origin
        async with origin.rooms.forking:
            with origin.room.being_left():
                session = await self._open()
        origin.leave(self, place=False)
        return session

    async def _open(self) -> T:
        room = await self._origin.open_room()
        try:
            return await self._begin(room, self._reseed)
        except BaseException:
            self._origin.rooms.drop(room)
            raise

    def abandon(self) -> None:
        """Give back the place of a fork that is not used any more."""
        self._origin.leave(self, place=True)


class _Entry:
    """A process that has made another one for a fork, and ends then.

    Attributes:
        done: Done when it has ended.
        failure: How it has failed.
        crowded: Whether there was no place for it.
    """

    limit: str | None = None
    crowded = False
    failure = ""

    def __init__(self, key: bytes, fds: list[int]) -> None:
        self.key = key
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.remote_fds = fds

    def close_remote_fds(self) -> None:
        """Close these, after they were sent."""
        close_all(self.remote_fds)
        self.remote_fds.clear()

    def note_end(self, facts: Mapping[str, Any], /) -> None:
        """Record what its parent reports of its end."""
        self.crowded = "fork" in facts
        if facts.get("status") != 0:
            self.failure = describe_end(facts)
        resolve(self.done)


def _not_started(why: str, crowded: bool = False) -> SandboxUnavailable:
    failed = SandboxUnavailable(f"its process could not start: {why}.")
    failed.errno = errno.EAGAIN if crowded else None
    return failed
