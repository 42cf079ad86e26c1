"""The host's hold on a room behind the wall, and on the process there that runs cells."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import signal
import socket
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from coderoom.errors import SandboxUnavailable
from coderoom.sandbox.cell import StreamName
from coderoom.sandbox.engines.cpython.channel import PATIENCE, ForkServerClient, HostChannel
from coderoom.sandbox.engines.cpython.outcome import Ending, RunningCell
from coderoom.sandbox.guest.frames import CONTENT, KEY_SIZE, STDOUT

__all__ = ["MOST_CHECKPOINTS", "Room", "Runner"]

MOST_CHECKPOINTS = 64
"""How many checkpoints a room may have, each of which is a process."""

_MOMENT = 0.5
_LOOKS = 4
_FORKING = 30.0
_CHUNK = 65_536
_MOST_CONTENT = 8 * 1024 * 1024
_BUFFERED = 512  # More than fits into a socket or a pipe.
_T = TypeVar("_T")


class Runner:
    """Both ends of what a process behind the wall has been given: a channel, if it speaks, and two pipes.

    Attributes:
        paused: Whether the process has to wait with its output.

    Args:
        largest: The most bytes that one of its messages may have; 0: it has no channel, since it is no Python.
    """

    def __init__(self, largest: int = 0) -> None:
        self.key = secrets.token_bytes(KEY_SIZE)
        self.ready = asyncio.Event()
        self.pid = 0
        self.failure = ""
        self.ended: Mapping[str, Any] | None = None
        self._loop = asyncio.get_running_loop()
        self._on_ready: Callable[[], None] | None = None
        self._cell: RunningCell | None = None
        self._channel: HostChannel | None = None
        self.theirs: list[int] = []
        self._pipes: dict[int, StreamName] = {}
        # Nobody may ever close it.
        weakref.finalize(self, _close_all, self._pipes, self.theirs).atexit = False
        self._contents = bytearray()
        self.paused = False
        if largest:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._channel = HostChannel(ours, self._on_message, self._on_end, self.key, self._on_output, largest)
            self.theirs.append(theirs.detach())
        for name in ("stdout", "stderr"):
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self._pipes[reader] = name
            self.theirs.append(writer)
            self._loop.add_reader(reader, self._read_pipe, reader)

    def renew(self) -> None:
        """Be there for another process, which has the same ends from the one that forks it.

        To be called when nothing that could write to them is left but that one.
        """
        assert self._channel is not None
        self.key = secrets.token_bytes(KEY_SIZE)
        self._channel.renew(self.key)
        self.ready.clear()
        self.pid, self.failure, self.ended, self._cell = 0, "", None, None
        if self.paused:
            self.resume()
        else:
            self._channel.resume()

    @property
    def closed(self) -> bool:
        """Whether it is of no use any more."""
        return self._channel is None or self._channel.closed or len(self._pipes) < 2

    @property
    def why_not_ready(self) -> str:
        """Why it never got ready."""
        return self.failure or _describe_end(self.ended or {})

    @property
    def broken(self) -> bool:
        """Whether its process will understand no other message, since one was broken off in its midst."""
        return self._channel is not None and self._channel.broken

    def handed_over(self) -> None:
        """Close the ends that the process has been sent."""
        for fd in self.theirs:
            os.close(fd)
        self.theirs.clear()

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call something once it waits for code, or never will."""
        self._on_ready = call
        if self.ready.is_set():
            self._be_ready()

    def watch(self, cell: RunningCell) -> None:
        """Let what the process prints and answers from now on be a cell's."""
        self._cell = cell
        if self.ended is not None:
            cell.ended = self.ended
            cell.finish(Ending.BY_ITSELF)
        self._contents.clear()
        if self._channel is not None:
            self._channel.listening = True
            self._channel.byte_budget = None

    def send_now(self, message: dict[str, Any]) -> bool:
        """Send a message if that needs no waiting.

        Raises:
            ConnectionError: It has closed its channel.
        """
        if self._channel is None:
            raise ConnectionError("it has no channel")
        return self._channel.send_now(message)

    async def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send a message to the process.

        Raises:
            ConnectionError: It has closed its channel.
        """
        if self._channel is None:
            raise ConnectionError("it has no channel")
        await self._channel.send(message, fds)

    def pause(self) -> None:
        """Let the process wait with its output."""
        self.paused = True
        if self._channel is not None:
            self._channel.pause()
        for pipe in self._pipes:
            self._loop.remove_reader(pipe)

    def resume(self) -> None:
        """Take output again."""
        self.paused = False
        if self._channel is not None:
            self._channel.resume()
        for pipe in self._pipes:
            self._loop.add_reader(pipe, self._read_pipe, pipe)

    def hold(self, held: bool) -> None:
        """Let the process wait with its calls, and whatever else it has to say but what is in its pipes."""
        if self._channel is not None:
            self._channel.held = held
            if held:
                self._channel.pause()
            elif not self.paused:
                self._channel.resume()

    def limit_input(self) -> None:
        """Take its answer from now on, and not much else."""
        if self._channel is not None:
            self._channel.byte_budget = self._channel.largest

    def note_end(self, facts: Mapping[str, Any]) -> None:
        """Take note that the process has ended; what it had written before is read first."""
        if self._channel is not None:
            self._channel.drain(_BUFFERED)
        self._drain_pipes()
        self.ended = facts
        self._be_ready()
        if self._cell is not None:
            self._cell.ended = facts
            self._cell.finish(Ending.BY_ITSELF)

    def close(self) -> None:
        """Close everything; a second time does nothing."""
        if self._channel is not None:
            self._channel.close()
        for pipe in list(self._pipes):
            self._close_pipe(pipe)
        self.handed_over()

    def _on_message(self, message: dict[str, Any]) -> None:
        event = message.get("event")
        if event == "ready" and not self.pid:
            pid = message.get("pid")
            self.pid = pid if type(pid) is int and pid > 0 else 0
            self._be_ready()
            if self._cell is None:
                self._hear_nothing()
                # What is still in the pipes is of whoever was there before.
                self._drain_pipes()
        elif event == "failed" and not self.ready.is_set():
            self.failure = str(message.get("error"))
        elif event == "call" and self._cell is not None and self._cell.calls is not None and self._channel is not None:
            self._cell.calls.take(message, self._channel.taken)
        elif event == "left" and self._cell is not None and self._cell.calls is not None:
            self._cell.calls.leave(message.get("call"))
        elif event == "done" and self._cell is not None and message.get("id") == self._cell.number:
            message["contents"] = bytes(self._contents)
            self._cell.answer = message
            self._cell.finish(Ending.BY_ITSELF)
            self._hear_nothing()

    def _be_ready(self) -> None:
        self.ready.set()
        call, self._on_ready = self._on_ready, None
        if call is not None:
            self._loop.call_soon(call)

    def _hear_nothing(self) -> None:
        if self._channel is not None:
            self._channel.listening = False

    def _on_end(self) -> None:
        if not self.pid:
            self.failure = self.failure or "it has ended"
        self._be_ready()

    def _on_output(self, tag: bytes, data: bytes) -> None:
        if tag == CONTENT:
            if len(self._contents) + len(data) <= _MOST_CONTENT:
                self._contents += data
        elif self._cell is not None:
            self._cell.output.add("stdout" if tag == STDOUT else "stderr", data)

    def _read_pipe(self, pipe: int) -> bool:
        if self._channel is not None:
            self._channel.drain()  # What Python has printed before comes first.
        name = self._pipes.get(pipe)
        if name is None or (name == "stdout" and self._channel is None and not self._older_is_read(pipe)):
            return False
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close_pipe(pipe)
            return False
        if self._cell is not None:
            self._cell.output.add(name, data)
        return True

    def _older_is_read(self, stdout: int) -> bool:
        """Read what a program has written to standard error before what is in the pipe for standard output.

        It can write there only while there is nothing in this one (see `guest.order`), so all that is there is older
        than what is here now.

        Returns:
            Whether there is something to read here.
        """
        ready = select.poll()
        ready.register(stdout, select.POLLIN)
        if not ready.poll(0):
            return False
        self._drain([pipe for pipe in self._pipes if pipe != stdout])
        return True

    def _drain_pipes(self) -> None:
        self._drain(list(self._pipes))

    def _drain(self, pipes: list[int]) -> None:
        for pipe in pipes:
            for _ in range(_BUFFERED):
                if not self._read_pipe(pipe):
                    break

    def _close_pipe(self, pipe: int) -> None:
        if self._pipes.pop(pipe, None) is not None:
            with contextlib.suppress(RuntimeError):  # The event loop is closed already.
                self._loop.remove_reader(pipe)
            os.close(pipe)


class Room(ForkServerClient):
    """A room: one supervisor, with the fresh state, and everything that runs there.

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
        self._kept: list[int] = []

    @classmethod
    async def open(cls, ask_worker: Callable[[dict[str, Any], Sequence[int]], Any], largest: int) -> Room:
        """Have a room made.

        Raises:
            SandboxUnavailable: It cannot be made.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        room = cls(ours, largest)
        try:
            room.announce("room")
            try:
                await ask_worker({"op": "room"}, [theirs.fileno()])
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
        self._forks.pop(self.spare_number, None)
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
        self._kept = []
        self._forks.clear()  # Processes killed by a reset send no "ended" event.
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
        late = loop.call_later(PATIENCE, done, False)

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
        end = time.monotonic() + _FORKING
        while True:
            if self.spare is None or self.spare.ended is not None:
                await self.prepare()
            runner = self.spare
            assert runner is not None
            if not runner.ready.is_set():
                try:
                    async with asyncio.timeout(PATIENCE):
                        await runner.ready.wait()
                except TimeoutError:
                    raise SandboxUnavailable("The sandbox did not get ready in time.") from None
            if runner.pid:
                return runner
            # A fork bomb in this room, or in another one, may have left no place for one more process.
            if "fork" not in (runner.ended or {}) or time.monotonic() > end:
                raise SandboxUnavailable(f"The sandbox's process could not start: {runner.why_not_ready}.")
            await self.kill(self._kept)
            await asyncio.sleep(_MOMENT)

    async def take_spare(self) -> Runner:
        """The spare runner, once it is ready.

        Raises:
            SandboxUnavailable: It could not be made.
        """
        runner = await self.get_ready()
        self.spare = None
        return runner

    async def kill(self, keep: Sequence[int] = ()) -> None:
        """End everything in the room but its supervisor and those that are to be kept.

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

    def keep(self, pids: Sequence[int]) -> None:
        """Say who outlives the end of what is ended at a limit."""
        self._kept = list(pids)
        with contextlib.suppress(OSError):
            self._control.send_now({"op": "keep", "pids": self._kept})

    async def patiently(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Wait for what is done in the room; that does not take long, unless somebody there is at work.

        Raises:
            SandboxUnavailable: It is not done.
        """
        task = asyncio.ensure_future(work)
        task.add_done_callback(_retrieve)
        end, idle = time.monotonic() + PATIENCE, 0
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


def _describe_end(facts: Mapping[str, Any]) -> str:
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


def _close_all(*lists: Iterable[int]) -> None:
    for fds in lists:
        for fd in fds:
            os.close(fd)


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # Whoever waited may have gone.
