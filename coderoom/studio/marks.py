"""Marks processes with the server and the run that they belong to, and ends those that are left.

The mark is in the environment of each process. Used by Studio's server, and by the command that starts it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from coderoom._util import owner
from coderoom._util.temporary import clearing_pids
from coderoom.executors import descendants, kill_until_gone, send

__all__ = ["end_below", "end_orphans", "marked", "set_mark"]

_NAME: Final = "CODEROOM_STUDIO"
_OWNER_WORDS: Final = 4


def set_mark() -> None:
    """Mark all processes that this one starts from now on; does nothing without `/proc`."""
    # A run of another server may have started this one.
    os.environ.pop(_NAME, None)
    with contextlib.suppress(OSError):
        os.environ[_NAME] = owner.ours()


def marked(environment: Mapping[str, str] | None, run: object) -> Mapping[str, str] | None:
    """The environment for a process of a run; `None` stands for that of this process."""
    ours = os.environ.get(_NAME)
    if ours is None:
        return environment
    return {**(os.environ if environment is None else environment), _NAME: f"{ours} {run}"}


def end_below(is_over: Callable[[str | None], bool]) -> None:
    """Kill the processes below this one whose run is over, and those below them, except those that remove folders.

    Args:
        is_over: Whether a run is over; its argument is `None` for a process whose run is not known.
    """
    clearing = clearing_pids()
    keep = {*clearing, *descendants(*clearing)}
    over = [pid for pid in descendants(os.getpid()) if pid not in keep and is_over(_run_of(pid))]
    if over:
        send([*over, *descendants(*over)], signal.SIGKILL)


def end_orphans() -> None:
    """Kill the processes that killed servers have left."""
    # This process may be one of them.
    above = _ancestors(os.getpid())
    kill_until_gone(lambda: [pid for pid, mark in _marks().items() if pid not in above and _is_left(mark)])


def _is_left(mark: list[str]) -> bool:
    return owner.is_orphan(" ".join(mark[:_OWNER_WORDS]))


def _ancestors(pid: int) -> set[int]:
    """A process and those above it."""
    found: set[int] = set()
    while pid and pid not in found:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except OSError:
            break
    return found


def _run_of(pid: int) -> str | None:
    mark = _mark(pid)
    return mark[_OWNER_WORDS] if len(mark) > _OWNER_WORDS else None


def _marks() -> dict[int, list[str]]:
    found = {int(folder.name): _mark(int(folder.name)) for folder in Path("/proc").glob("[0-9]*")}
    return {pid: mark for pid, mark in found.items() if mark}


def _mark(pid: int) -> list[str]:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # It has ended, or belongs to another user.
        return []
    _, found, rest = (b"\0" + variables).partition(f"\0{_NAME}=".encode())
    return rest.partition(b"\0")[0].decode("ascii", "replace").split() if found else []
