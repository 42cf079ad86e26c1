"""The host's hold on a room behind the wall: its keeper, and what runs there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox.engines.cpython.channel import HostChannel
from coderoom.sandbox.engines.cpython.process import Runner
from coderoom.sandbox.guest.frames import KEY_SIZE

__all__ = ["MOST_CHECKPOINTS", "Held", "Holder", "Room", "describe_end", "integer", "pids_of", "why_not"]

MOST_CHECKPOINTS = 64
"""How many checkpoints a room may have, each of which is a process."""

_PATIENCE = 20.0
_MOMENT = 0.5
_LOOKS = 2
_T = TypeVar("_T")
_numbers = itertools.count(1)


class Holder:
    """A process behind the wall that forks a state it holds: a room's keeper, or a checkpoint.

    Attributes:
        facts: What it has said of itself.
        lost: Whether it has ended.

    Args:
        sock: Our end of its control socket.
        key: The key of its packets.
    """

    # Code can end a checkpoint that it was in, and so whatever came of it.
    _gone: Mapping[str, Any] = {"status": -int(signal.SIGKILL)}

    def __init__(self, sock: socket.socket, key: bytes = bytes(KEY_SIZE)) -> None:
        self.facts: Mapping[str, Any] = {}
        self.lost = False
        self._limit: str | None = None
        self._runners: dict[int, Runner] = {}
        self._events: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._control = HostChannel(sock, self._on_message, self._on_end, key)

    async def expect(self, event: str) -> Mapping[str, Any]:
        """Wait for an event.

        Raises:
            SandboxUnavailable: The process failed, has ended or does not answer.
        """
        future = self._future(event)
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
        """Make a request and wait for its answer.

        Raises:
            SandboxUnavailable: As `expect`.
        """
        self.announce(event)  # The answer may come before there is somebody who waits.
        await self.tell({"op": op, **arguments})
        return await self.expect(event)

    async def tell(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Make a request.

        Raises:
            SandboxUnavailable: The process has ended.
        """
        try:
            await self._control.send(message, fds)
        except OSError as error:
            raise SandboxUnavailable(f"The sandbox's process has ended ({error}).") from error

    async def start(self, runner: Runner, op: str = "run", **arguments: Any) -> int:
        """Let a fork of the state become a runner.

        Returns:
            Its number.

        Raises:
            SandboxUnavailable: The process has ended.
        """
        number, request = self._request(runner, op, arguments)
        try:
            await self.tell(request, runner.theirs)
        finally:
            runner.handed_over()
        return number

    def _request(self, runner: Runner, op: str, arguments: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        number = next(_numbers)
        self._runners[number] = runner
        return number, {"op": op, "id": number, "key": runner.key.hex(), **arguments}

    def take_limit(self) -> str | None:
        """The limit that something in its room has met since the last time that this was asked for."""
        limit, self._limit = self._limit, None
        return limit

    def close(self) -> None:
        """Let the process end."""
        self._control.close()
        self._on_end()

    def announce(self, event: str) -> None:
        """Say that `expect` will be called for an event that may come before."""
        self._future(event)

    def _future(self, event: str) -> asyncio.Future[Mapping[str, Any]]:
        future = self._events.get(event)
        if future is None:
            future = self._events[event] = asyncio.get_running_loop().create_future()
            if self.lost:
                self._fail(SandboxUnavailable("The sandbox's process has ended."))
        return future

    def _on_message(self, message: dict[str, Any]) -> None:
        event = str(message.get("event"))
        if event == "ended":
            runner = self._runners.pop(integer(message, "id"), None)
            if runner is not None:
                runner.note_end(message)
        elif event == "limit":
            self._limit = str(message.get("limit"))
        elif event == "failed":
            self._fail(SandboxUnavailable(f"The sandbox could not be set up: {message.get('error')}"))
        else:
            future = self._events.get(event)
            if future is not None and not future.done():
                future.set_result(message)

    def _on_end(self) -> None:
        self.lost = True
        self._fail(SandboxUnavailable("The sandbox's process has ended."))
        runners, self._runners = self._runners, {}
        for runner in runners.values():
            runner.note_end(self._gone)

    def _fail(self, error: SandboxUnavailable) -> None:
        for future in self._events.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # Somebody may have stopped waiting.


@dataclass(eq=False)
class Held:
    """A state that waits.

    Attributes:
        holder: The process that holds it.
        pid: Its number inside the room.
        wanted: Whether somebody may want to go back to it.
    """

    holder: Holder
    pid: int
    wanted: bool = True


class Room(Holder):
    """A room: one keeper, with the fresh state, and everything that runs there.

    Attributes:
        spare: A runner with a fresh state that has run nothing yet.
        largest: The most bytes that a message of a runner may have.
    """

    _gone: Mapping[str, Any] = {"lost": True}

    def __init__(self, sock: socket.socket, largest: int) -> None:
        super().__init__(sock)
        self.largest = largest
        self._line: Runner | None = None
        self.spare: Runner | None = None
        self.spare_number = 0

    @classmethod
    async def open(cls, tell_zygote: Callable[[dict[str, Any], Sequence[int]], Any], largest: int) -> Room:
        """Have a room made.

        Raises:
            SandboxUnavailable: It cannot be made.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        room = cls(ours, largest)
        try:
            room.announce("room")
            try:
                await tell_zygote({"op": "room"}, [theirs.fileno()])
            finally:
                theirs.close()
            room.facts = await room.expect("room")
        except BaseException:
            room.close()
            raise
        return room

    async def prepare(self) -> None:
        """Fork a runner from the fresh state, for whoever comes next.

        Raises:
            SandboxUnavailable: It cannot be forked.
        """
        self._runners.pop(self.spare_number, None)
        if self._line is not None:
            self._line.close()
        self._line = self.spare = Runner(self.largest)
        self.spare_number = await self.start(self._line, renew=False)

    def renew(self, done: Callable[[bool], None]) -> None:
        """End everything in the room, empty its private folders, and fork a runner from the fresh state.

        There is no task for it: an event loop may end at any time, and would tell of one that has not ended.

        Args:
            done: Called once, with whether the room can be used again.
        """
        self._runners.clear()  # Processes killed by a reset send no "ended" event.
        if self._line is not None and not self._line.closed:
            self._line.renew()
        else:
            if self._line is not None:
                self._line.close()
            self._line = Runner(self.largest)
        runner = self.spare = self._line
        self.spare_number, request = self._request(runner, "run", {"renew": True})
        try:
            sent = self._control.send_now(request, runner.theirs)
        except OSError:
            sent = False
        finally:
            runner.handed_over()
        if not sent:
            done(False)
            return
        loop = asyncio.get_running_loop()
        late = loop.call_later(_PATIENCE, done, False)

        def ready() -> None:
            late.cancel()
            done(runner.pid != 0)

        runner.when_ready(ready)

    def abandon(self) -> None:
        """Let go of the room where there is no event loop any more that could tell anybody."""
        self.lost = True
        self._control.close()
        if self._line is not None:
            self._line.close()

    def leave(self, runner: Runner) -> None:
        """Close a runner that is not wanted any more, unless the next one can have its ends."""
        if runner is not self._line:
            runner.close()

    async def get_ready(self) -> Runner:
        """Wait until the spare runner waits for code.

        Raises:
            SandboxUnavailable: It could not be made.
        """
        if self.spare is None or self.spare.ended is not None:
            await self.prepare()
        runner = self.spare
        assert runner is not None
        try:
            async with asyncio.timeout(_PATIENCE):
                await runner.ready.wait()
        except TimeoutError:
            raise SandboxUnavailable("The sandbox did not get ready in time.") from None
        if runner.pid == 0:
            raise SandboxUnavailable(f"The sandbox's process could not start: {why_not(runner)}.")
        return runner

    async def take_spare(self) -> Runner:
        """The spare runner, once it is ready.

        Raises:
            SandboxUnavailable: It could not be made.
        """
        runner = await self.get_ready()
        self.spare = None
        return runner

    async def kill(self, keep: Sequence[int] = ()) -> None:
        """End everything in the room but its keeper and those that are to be kept.

        Raises:
            SandboxUnavailable: The room is lost.
        """
        await self.ask("kill", "killed", keep=list(keep))

    async def interrupt(self, keep: Sequence[int] = ()) -> None:
        """Interrupt everything in the room but those that are to be kept, as Ctrl-C does it.

        Raises:
            SandboxUnavailable: The room is lost.
        """
        await self.tell({"op": "interrupt", "keep": list(keep)})

    def keep(self, held: Sequence[Held]) -> None:
        """Say who outlives the end of what is ended at a limit."""
        with contextlib.suppress(OSError):
            self._control.send_now({"op": "keep", "pids": pids_of(held)})

    async def patiently(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for what is done in the room; that does not take long, unless somebody there is at work.

        Raises:
            SandboxUnavailable: It is not done.
        """
        task = asyncio.ensure_future(work)
        end, idle = time.monotonic() + _PATIENCE, 0
        try:
            while True:
                await asyncio.wait((task,), timeout=_MOMENT)
                if task.done():
                    return task.result()
                idle = 0 if (await self.ask("look", "looked")).get("busy") else idle + 1
                if idle == _LOOKS or time.monotonic() > end:
                    raise SandboxUnavailable("The session's process does not answer.")
        finally:
            task.cancel()

    def close(self) -> None:
        """Let everything in the room end."""
        super().close()
        self.spare = None
        if self._line is not None:
            self._line.close()


def integer(message: Mapping[str, Any], key: str) -> int:
    """A number of a message, which may be anything; 0 if it is none."""
    value = message.get(key)
    return value if type(value) is int else 0


def pids_of(held: Sequence[Held]) -> list[int]:
    """The numbers of the processes that wait."""
    # Code can end them; then somebody else may get their numbers.
    return [each.pid for each in held if not each.holder.lost]


def why_not(runner: Runner) -> str:
    """Why a runner never got ready."""
    return runner.failure or describe_end(runner.ended or {})


def describe_end(facts: Mapping[str, Any]) -> str:
    """What is known of why a process ended."""
    if facts.get("lost"):
        return "everything in the sandbox has ended"
    if facts.get("fork"):
        return str(facts["fork"])
    status = facts.get("status")
    if isinstance(status, int) and status < 0:
        try:
            return f"it was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"it was ended by signal {-status}"
    return f"it ended with exit code {status}"
