"""The process that waits for the worker, and takes along what the worker leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time

from . import linux

__all__ = ["descendants", "die_with_parent", "keep_capabilities", "supervise"]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CAPABILITY_VERSION = 0x20080522
_CAP_DAC_OVERRIDE, _CAP_KILL = 1, 5
_SECONDS_TO_END = 5.0


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Get a signal when the parent ends; a change of user takes that away.

    The kernel sends it with the parent's rights, so a worker that has become another user may not get it.
    """
    linux.prctl(_PR_SET_PDEATHSIG, int(number))


def keep_capabilities(*numbers: int) -> None:
    """Give up all capabilities but some of those that this process has."""
    kept = sum(1 << number for number in numbers)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    linux.syscall("capset", header, struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def supervise(folder: str | None = None) -> None:
    """Fork; the child returns, and its parent waits for it, ends what is left of its children, and ends as it ended.

    It does the same at once when it is told to end, or when the host ends.

    Args:
        folder: What it removes at the end, for a host that may not be there to do so.
    """
    linux.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # From here on nothing may end this process without what it is there for; it is told once it is ready.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    die_with_parent(signal.SIGTERM)
    child = os.fork()
    if not child:
        die_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        linux.prctl(_PR_SET_CHILD_SUBREAPER, 0)
        return
    try:
        _wait(child, folder)
    finally:
        os._exit(1)


def _wait(child: int, folder: str | None) -> None:
    # It comes again and again when the host ends, once for each of its threads.
    signal.signal(signal.SIGTERM, lambda *_: _kill([child]))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    with contextlib.suppress(OSError):  # An ordinary user has none.
        keep_capabilities(_CAP_KILL, *(() if folder is None else (_CAP_DAC_OVERRIDE,)))
    # The host must see its sockets closed as soon as the worker has gone.
    os.closerange(3, 65536)
    pid = status = 0
    while pid != child:
        pid, status = os.waitpid(-1, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deadline = time.monotonic() + _SECONDS_TO_END
    while _has_children() and time.monotonic() < deadline:
        _kill(descendants(os.getpid()))
        time.sleep(0.001)
    if folder is not None:
        import shutil  # Every fork would have to carry it.

        shutil.rmtree(folder, ignore_errors=True)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _kill(pids: list[int]) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):  # Those that are stopped start no others meanwhile.
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def descendants(root: int) -> list[int]:
    """All processes below one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
    found: set[int] = set()
    newest = {root}
    while newest:
        newest = {pid for pid, parent in parents.items() if parent in newest and pid not in found}
        found |= newest
    return sorted(found)
