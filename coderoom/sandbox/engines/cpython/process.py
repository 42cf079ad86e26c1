"""The host's hold on one process that runs code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import socket
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coderoom.sandbox.engines.cpython.channel import HostChannel
from coderoom.sandbox.functions import Calls
from coderoom.sandbox.guest.frames import CONTENT, KEY_SIZE, STDOUT
from coderoom.sandbox.output import Collector, StreamName
from coderoom.sandbox.result import FunctionCall

__all__ = ["Cell", "Runner"]

_CHUNK = 65_536
_MOST_CONTENT = 8 * 1024 * 1024
_BUFFERED = 512  # More than fits into a socket or a pipe.


class Cell:
    """A cell that runs.

    Attributes:
        number: Its number, which its answer has to have.
        output: What it prints.
        finished: Set when there is an answer, or when its process has ended.
        answer: What its process says came of it; `None` if the process ended before it could say.
        ended: What the process's parent says of its end; `None` as long as it lives.
        calls: Answers what it calls on the host; `None` if it may call nothing.
    """

    def __init__(self, number: int, output: Collector) -> None:
        self.number = number
        self.output = output
        self.finished = asyncio.Event()
        self.answer: Mapping[str, Any] | None = None
        self.ended: Mapping[str, Any] | None = None
        self.calls: Calls | None = None

    async def end_calls(self) -> tuple[FunctionCall, ...]:
        """End the calls that are still at work, and return all of them."""
        return () if self.calls is None else await self.calls.close()


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
        self._cell: Cell | None = None
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
        self.resume()

    @property
    def closed(self) -> bool:
        """Whether it is of no use any more."""
        return self._channel is None or self._channel.closed or len(self._pipes) < 2

    @property
    def torn(self) -> bool:
        """Whether its process will understand no other message, since one was broken off in its midst."""
        return self._channel is not None and self._channel.torn

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

    def watch(self, cell: Cell) -> None:
        """Let what the process prints and answers from now on be a cell's."""
        self._cell = cell
        if self.ended is not None:
            cell.ended = self.ended
            cell.finished.set()
        self._contents.clear()
        if self._channel is not None:
            self._channel.listening = True
            self._channel.rest = None

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

    def hurry(self) -> None:
        """Take its answer from now on, and not much else."""
        if self._channel is not None:
            self._channel.rest = self._channel.largest

    def note_end(self, facts: Mapping[str, Any]) -> None:
        """Take note that the process has ended; what it had written before is read first."""
        if self._channel is not None:
            self._channel.drain(_BUFFERED)
        self._drain_pipes()
        self.ended = facts
        self._be_ready()
        if self._cell is not None:
            self._cell.ended = facts
            self._cell.finished.set()

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
            self._cell.finished.set()
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


def _close_all(*lists: Iterable[int]) -> None:
    for fds in lists:
        for fd in fds:
            os.close(fd)
