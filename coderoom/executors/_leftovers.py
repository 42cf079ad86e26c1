"""The last resort of a program that ends: nothing that it started, by whatever executor, stays behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

from coderoom._janitor import janitor_pid
from coderoom.executors._launch import PR_SET_CHILD_SUBREAPER, descendants, prctl, send

__all__ = ["adopt_orphans", "end_descendants"]

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
    janitor = janitor_pid()
    end = time.monotonic() + _PATIENCE_SECONDS
    # What is killed may leave children behind, which come to this process.
    while time.monotonic() < end:
        found = [pid for pid in descendants(os.getpid()) if pid != janitor and not _is_dead(pid)]
        if not found:
            break
        send(found, signal.SIGKILL)
        time.sleep(_AGAIN_SECONDS)


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return True
