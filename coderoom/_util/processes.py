"""Processes: the descendants of this one, marks of the one that owns something, and the interpreter for code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from coderoom._util.temporary import clearing_pids

_PR_SET_CHILD_SUBREAPER: Final = 36
_MAX_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.02


def descendants(*roots: int) -> list[int]:
    """Return the ids of all running descendants of `roots`; none without `/proc`."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 (faster, and this is often called again and again)
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            # A process may end between the listing and the reading.
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                # The program's name is in parentheses and may itself contain some.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    remaining = [*roots]
    while remaining:
        below = children.get(remaining.pop(), [])
        found += below
        remaining += below
    return found


def send(pids: list[int], number: int) -> None:
    """Send a signal to processes; some may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants, so that `end_descendants` finds them.

    Only for a program of its own, such as the command line: it changes what this process is to its descendants. Does
    nothing on systems other than Linux.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> None:
    """Kill all descendants of this process, except those that remove temporary folders."""

    def left() -> list[int]:
        keep = clearing_pids()
        return [pid for pid in descendants(os.getpid()) if pid not in keep]

    kill_until_gone(left)


def kill_until_gone(find: Callable[[], list[int]]) -> None:
    """Kill the processes that `find` returns, repeatedly, since killed processes may leave children."""
    end = time.monotonic() + _MAX_SECONDS
    while found := find():
        send(found, signal.SIGKILL)
        if time.monotonic() > end:
            return
        time.sleep(_POLL_SECONDS)


_START = 19  # The index of the start time in /proc/PID/stat after the process name.
_UNKNOWN = "?"


def owner_mark() -> str:
    """The mark of this process; no other process ever has the same."""
    pid = os.getpid()
    return " ".join((_boot(), _namespace(), str(pid), _started(pid) or _UNKNOWN))


def is_orphan(owner: str) -> bool:
    """Whether the process of a mark has certainly ended."""
    match owner.split():
        case [boot, namespace, pid, start] if pid.isdecimal():
            if boot != _boot():
                return True
            # Process numbers of another PID namespace mean nothing here.
            return namespace == _namespace() and _started(int(pid)) not in (start, _UNKNOWN)
        case _:
            return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 (the link's target is no path)


def _started(pid: int) -> str | None:
    """The start time of a process; `None` if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return _UNKNOWN if _exists(pid) else None
    # A zombie has ended.
    return None if fields[0] in ("Z", "X") else fields[_START]


def _exists(pid: int) -> bool:
    # This works also where /proc hides processes of other users.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


PYTHON_VARIABLE: Final = "CODEROOM_PYTHON"
"""The variable with its absolute path, for programs with a Python environment of their own such as Studio."""


def default_python() -> str:
    """The interpreter that `CODEROOM_PYTHON` names, or the one that runs this process."""
    return os.environ.get(PYTHON_VARIABLE) or sys.executable
