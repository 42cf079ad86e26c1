"""The process that waits for the worker and ends what the worker leaves behind; used by `boot`."""

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
    """Get a signal when the parent ends. A change of user resets this.

    The kernel sends it with the parent's rights, so a worker that has become another user may not get it.
    """
    linux.prctl(_PR_SET_PDEATHSIG, int(number))


def keep_capabilities(*numbers: int) -> None:
    """Drop all capabilities of this process but some."""
    kept = sum(1 << number for number in numbers)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    linux.syscall("capset", header, struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def supervise(folder: str | None = None) -> None:
    """Fork; the child returns. The parent waits for it, kills what it leaves behind, and ends as it ended.

    The parent does so at once on SIGTERM, and when the host ends.

    Args:
        folder: A folder to remove at the end, when the host may have ended.
    """
    linux.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # A signal must not end this process before its handler is set.
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
    # When the host ends it comes several times, once for each of the host's threads.
    signal.signal(signal.SIGTERM, lambda *_: _kill([child]))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    with contextlib.suppress(OSError):  # An ordinary user has no capabilities.
        keep_capabilities(_CAP_KILL, *(() if folder is None else (_CAP_DAC_OVERRIDE,)))
    # The host must see the sockets closed as soon as the worker has ended.
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
        import shutil  # Late, to keep it out of every fork.

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
    for number in (signal.SIGSTOP, signal.SIGKILL):  # Stopped processes cannot fork.
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, number)


def descendants(root: int) -> list[int]:
    """The descendants of a process."""
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
