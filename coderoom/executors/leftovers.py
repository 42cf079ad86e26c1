"""The last resort of a program that ends: nothing that it started, by whatever executor, stays behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Final

from coderoom._util.temporary import clearing_pids
from coderoom.executors.launch import PR_SET_CHILD_SUBREAPER, descendants, prctl, send

__all__ = ["adopt_orphans", "end_descendants", "kill_until_gone"]

_PATIENCE_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 0.02


def adopt_orphans() -> None:
    """Have processes whose parent ends come to this one, so that `end_descendants` finds them.

    Only for a program of its own, such as the command line: it changes what this process is to its descendants. Does
    nothing where there is no such thing (other systems than Linux).
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_descendants() -> None:
    """Kill all processes below this one, at once. Does nothing where there is no `/proc`."""

    def left() -> list[int]:
        keep = clearing_pids()
        return [pid for pid in descendants(os.getpid()) if pid not in keep]

    kill_until_gone(left)


def kill_until_gone(find: Callable[[], list[int]]) -> None:
    """Kill what `find` finds, again for a moment: what is killed may leave children behind."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while found := find():
        send(found, signal.SIGKILL)
        if time.monotonic() > end:
            return
        time.sleep(_AGAIN_SECONDS)
