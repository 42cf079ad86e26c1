"""What pydantic-monty leaves to its host: ending workers, starting them with limits, taking their output."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from coderoom.sandbox.cell import Collector
from coderoom.sandbox.config import Limits
from coderoom.sandbox.result import OutputChunk

_BACKLOG = 4 * 1024 * 1024
_ADDRESSES = 1024 * 1024 * 1024  # What a worker maps besides the memory that it counts.

# It has a session of its own, so that Ctrl-C does not reach it, and reads until the host has ended.
_GUARD = """
import os, signal, sys
watched = {}
for line in sys.stdin.buffer:
    pid = int(line[1:])
    old = watched.pop(pid, None)
    if old is not None:
        os.close(old)
    if line[:1] == b"+":
        try:
            watched[pid] = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        except OSError:
            pass
for pid, fd in watched.items():
    try:
        os.kill(pid, signal.SIGKILL) if fd is None else signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        pass
"""

_SETTLING_SECONDS = 2.0  # The most that the exit of this process waits.

_guards: weakref.WeakSet[Guard] = weakref.WeakSet()
_killed: set[int] = set()  # Workers that a guard has killed; they may still be ending.


class Guard:
    """A process that kills the workers when this one ends: a worker that computes would not notice it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pids: set[int] = set()
        _guards.add(self)

    def watch(self, pid: int) -> None:
        """Kill a worker when this process ends."""
        self._pids.add(pid)
        self._send(f"+{pid}\n")

    def release(self, pid: int) -> None:
        """Forget a worker that has ended."""
        self._pids.discard(pid)
        if self._process is not None:
            self._send(f"-{pid}\n")

    def end(self) -> None:
        """Kill the workers, and end the guard."""
        process, self._process = self._process, None
        _killed.update(self._pids)
        self._pids.clear()
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()

    def _send(self, line: str) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            return  # `max_feed_duration_secs` ends them at last.
        if self._process is not None:
            try:
                _write(self._process, line)
                return
            except BrokenPipeError:  # It was killed.
                self._process.communicate()
        self._process = self._start()
        _write(self._process, "".join(f"+{pid}\n" for pid in self._pids))

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            (sys.executable, "-I", "-S", "-c", _GUARD),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,
        )


def _write(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    os.write(process.stdin.fileno(), text.encode())


class Tap:
    """Takes what a cell prints in a thread of pydantic-monty, and passes it on in the event loop.

    The worker is stopped while its output is not consumed.
    """

    def __init__(self, limit: int, on_chunk: Callable[[OutputChunk], None] | None, pid: int) -> None:
        self.output = Collector(limit, None if on_chunk is None else self._post)
        self._on_chunk = on_chunk
        self._pid = pid
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._posted: list[OutputChunk] = []
        self._size = 0
        self._suspended = self._full = self._closed = False

    def take(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Take a piece, in any thread."""
        with self._lock:
            if not self._closed:
                self.output.add(stream, text.encode("utf-8", "replace"))

    def suspend(self, suspended: bool) -> None:
        """Stop the worker, or let it continue."""
        with self._lock:
            self._suspended = suspended
            self._signal()

    def finish(self) -> None:
        """Pass on what is left; ignore what comes later."""
        self._pass_on()
        with self._lock:
            self._suspended = self._full = False
            self._signal()
            self._closed = True

    def _post(self, chunk: OutputChunk) -> None:
        self._posted.append(chunk)
        self._size += len(chunk.text)
        if len(self._posted) == 1:
            self._loop.call_soon_threadsafe(self._pass_on)
        if self._size > _BACKLOG and not self._full:
            self._full = True
            self._signal()

    def _pass_on(self) -> None:
        with self._lock:
            chunks, self._posted, self._size = self._posted, [], 0
        for chunk in chunks:
            if self._on_chunk is not None:
                self._on_chunk(chunk)
        with self._lock:
            if self._full:
                self._full = False
                self._signal()

    def _signal(self) -> None:
        # Blocking the thread would block other sessions too: the pool has only a few.
        number = signal.SIGSTOP if self._suspended or self._full else signal.SIGCONT
        if self._pid and not self._closed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


@atexit.register
def _end_all() -> None:
    """End all workers, then wait until no thread of pydantic-monty needs the interpreter any more.

    Its threads report the end of each call to the event loop. CPython before 3.14 ends a thread that asks for the
    interpreter after its exit has begun, and Rust aborts the whole process when its thread is ended so.
    """
    if "pydantic_monty" not in sys.modules:
        return
    for guard in list(_guards):
        guard.end()
    before = None
    deadline = time.monotonic() + _SETTLING_SECONDS
    while time.monotonic() < deadline:
        now = None if any(map(_is_running, _killed)) else _native_threads()
        if now is not None and now == before:
            return
        before = now
        time.sleep(0.01)  # Others have the interpreter in the meantime.


def _is_running(pid: int) -> bool:
    """Whether a child of this process has not ended yet, so that its pipes are still open."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[:2]
    except OSError:
        return False
    return int(parent) == os.getpid() and state != "Z"


def _native_threads() -> dict[str, list[str]] | None:
    """How often each thread of pydantic-monty has gone to sleep; `None` if one is awake."""
    found = {}
    for task in Path("/proc/self/task").glob("*"):
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().startswith("tokio"):
                status = (task / "status").read_text("utf-8", "replace").splitlines()
                if not any(line.startswith("State:\tS") for line in status):
                    return None
                found[task.name] = [line for line in status if "ctxt_switches" in line]
    return found


@contextlib.contextmanager
def launcher(limits: Limits) -> Iterator[Path | None]:
    """A program that starts a worker with resource limits, and without this process's standard error.

    A worker that runs out of memory would write there. `None` where it cannot be made.
    """
    worker = os.environ.get("MONTY_BIN") or str(Path(sysconfig.get_path("scripts"), "monty"))
    if not hasattr(os, "memfd_create") or not os.access(worker, os.X_OK) or not os.access("/bin/sh", os.X_OK):
        yield None
        return
    space = (limits.memory_bytes + _ADDRESSES) // 1024
    ulimits = "".join(f"ulimit {limit}\n" for limit in ("-c 0", "-f 0", "-n 64", f"-v {space}"))
    script = f'#!/bin/sh\nexec 2>/dev/null\n{ulimits}exec {shlex.quote(worker)} "$@"\n'
    # A file in memory: it never stays behind, and needs no folder that allows programs.
    fd = os.memfd_create("coderoom-monty")
    try:
        os.write(fd, script.encode())
        path = Path(f"/proc/{os.getpid()}/fd/{fd}")
        yield path if os.access(path, os.X_OK) else None
    finally:
        os.close(fd)


def resident(pid: int) -> int | None:
    """The resident memory of a process in bytes; `None` where that is not known."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
