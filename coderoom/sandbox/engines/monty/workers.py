"""What pydantic-monty's workers need besides: an end with the host's, a quiet start, somebody who takes the output."""

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
from coderoom.sandbox.limits import Limits
from coderoom.sandbox.result import OutputChunk

__all__ = ["Guard", "Tap", "launcher", "resident"]

_BACKLOG = 4 * 1024 * 1024
_ROOM = 1024 * 1024 * 1024  # For what a worker maps besides the memory that it counts.
_STOP, _GO = getattr(signal, "SIGSTOP", None), getattr(signal, "SIGCONT", None)

# It lives in a session of its own, so that nobody's Ctrl-C reaches it, and reads until the host has died.
_GUARD = """
import os, signal, sys
held = {}
for line in sys.stdin.buffer:
    pid = int(line[1:])
    old = held.pop(pid, None)
    if old is not None:
        os.close(old)
    if line[:1] == b"+":
        try:
            held[pid] = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        except OSError:
            pass
for pid, fd in held.items():
    try:
        os.kill(pid, signal.SIGKILL) if fd is None else signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        pass
"""

_SETTLE = 2.0  # The most that the exit of this process waits.

_guards: weakref.WeakSet[Guard] = weakref.WeakSet()
_killed: set[int] = set()  # Workers that a guard has killed; they may still be ending.


class Guard:
    """Ends the workers when this process has died: one that computes does not notice it, only one that waits does."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._held: set[int] = set()
        _guards.add(self)

    def hold(self, pid: int) -> None:
        """Let a worker end with this process."""
        self._held.add(pid)
        self._tell(f"+{pid}\n")

    def release(self, pid: int) -> None:
        """Forget a worker that has ended."""
        self._held.discard(pid)
        if self._process is not None:
            self._tell(f"-{pid}\n")

    def end(self) -> None:
        """End all workers that are held, and the guard."""
        process, self._process = self._process, None
        _killed.update(self._held)
        self._held.clear()
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()

    def _tell(self, line: str) -> None:
        if os.name != "posix" or not sys.executable or getattr(sys, "frozen", False):
            return  # Then `max_feed_duration_secs` ends them at last.
        if self._process is not None:
            try:
                _write(self._process, line)
                return
            except BrokenPipeError:  # Somebody has ended it.
                self._process.communicate()
        self._process = self._start()
        _write(self._process, "".join(f"+{pid}\n" for pid in self._held))

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
    """Takes what a cell prints in a thread of the pool, and hands it on in the event loop.

    Args:
        limit: How many bytes are kept.
        on_chunk: Called with each piece.
        pid: The worker, which has to wait if nobody takes what it prints.
    """

    def __init__(self, limit: int, on_chunk: Callable[[OutputChunk], None] | None, pid: int) -> None:
        self.output = Collector(limit, None if on_chunk is None else self._post)
        self._on_chunk = on_chunk
        self._pid = pid
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._posted: list[OutputChunk] = []
        self._size = 0
        self._held = self._full = self._closed = False

    def take(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Take a piece; in any thread."""
        with self._lock:
            if not self._closed:
                self.output.add(stream, text.encode("utf-8", "replace"))

    def hold(self, held: bool) -> None:
        """Let the worker wait, or go on."""
        with self._lock:
            self._held = held
            self._signal()

    def finish(self) -> None:
        """Hand on what is left; what comes now comes too late."""
        self._hand_on()
        with self._lock:
            self._held = self._full = False
            self._signal()
            self._closed = True

    def _post(self, chunk: OutputChunk) -> None:
        self._posted.append(chunk)
        self._size += len(chunk.text)
        if len(self._posted) == 1:
            self._loop.call_soon_threadsafe(self._hand_on)
        if self._size > _BACKLOG and not self._full:
            self._full = True
            self._signal()

    def _hand_on(self) -> None:
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
        # To block the thread instead would block other sessions too: the pool has only a few.
        number = _STOP if self._held or self._full else _GO
        if number is not None and self._pid and not self._closed:
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
    deadline = time.monotonic() + _SETTLE
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
    """A program that starts a worker with limits of the system's and without this process's standard error.

    A worker that runs out of memory would write there. `None` where it cannot be made; then the worker is started as
    it is.
    """
    worker = os.environ.get("MONTY_BIN") or str(Path(sysconfig.get_path("scripts"), "monty"))
    if not hasattr(os, "memfd_create") or not os.access(worker, os.X_OK) or not os.access("/bin/sh", os.X_OK):
        yield None
        return
    space = (limits.memory_bytes + _ROOM) // 1024
    limits_of_system = "".join(f"ulimit {limit}\n" for limit in ("-c 0", "-f 0", "-n 64", f"-v {space}"))
    script = f'#!/bin/sh\nexec 2>/dev/null\n{limits_of_system}exec {shlex.quote(worker)} "$@"\n'
    # A file in memory: nothing is left behind, whatever happens, and no folder has to allow programs.
    fd = os.memfd_create("coderoom-monty")
    try:
        os.write(fd, script.encode())
        path = Path(f"/proc/{os.getpid()}/fd/{fd}")
        yield path if os.access(path, os.X_OK) else None
    finally:
        os.close(fd)


def resident(pid: int) -> int | None:
    """How much memory a process has, in bytes; `None` where that is not known."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
