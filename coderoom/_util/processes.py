"""Finds and ends the descendants of this process. Used by the command line and AutoGen Studio."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
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
