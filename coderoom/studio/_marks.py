"""Which processes belong to which run of which of our servers: they have it in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from coderoom import _owner
from coderoom._janitor import janitor_pid
from coderoom.executors import descendants, send

__all__ = ["end_below", "end_orphans", "marked", "set_mark"]

_NAME: Final = "CODEROOM_STUDIO"
_OWNER_WORDS: Final = 4
_PATIENCE_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 0.02


def set_mark() -> None:
    """Have all processes that this one starts from now on carry its mark; does nothing where there is no `/proc`."""
    # It may itself have been started by a run of another.
    os.environ.pop(_NAME, None)
    with contextlib.suppress(OSError):
        os.environ[_NAME] = _owner.ours()


def marked(environment: Mapping[str, str] | None, run: object) -> Mapping[str, str] | None:
    """The environment for a process of a run.

    Args:
        environment: What it would have otherwise; `None`: ours.
        run: The run's name, without spaces.
    """
    ours = os.environ.get(_NAME)
    if ours is None:
        return environment
    return {**(os.environ if environment is None else environment), _NAME: f"{ours} {run}"}


def end_below(is_over: Callable[[str | None], bool]) -> None:
    """Kill those processes below this one whose run is over, and what is below them. One that removes folders stays.

    Args:
        is_over: Whether it is, by the run's name; `None` is for a process of which that is not known.
    """
    janitor = janitor_pid()
    keep = set() if janitor is None else {janitor, *descendants(janitor)}
    over = [pid for pid in descendants(os.getpid()) if pid not in keep and is_over(_run(pid))]
    send([*over, *(below for pid in over for below in descendants(pid))], signal.SIGKILL)


def end_orphans() -> None:
    """Kill what servers of ours have left when they were killed."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while found := [pid for pid, mark in _marks().items() if _owner.is_orphan(" ".join(mark[:_OWNER_WORDS]))]:
        send(found, signal.SIGKILL)
        if time.monotonic() > end:
            return
        time.sleep(_AGAIN_SECONDS)


def _run(pid: int) -> str | None:
    mark = _mark(pid)
    return mark[_OWNER_WORDS] if len(mark) > _OWNER_WORDS else None


def _marks() -> dict[int, list[str]]:
    found = {int(folder.name): _mark(int(folder.name)) for folder in Path("/proc").glob("[0-9]*")}
    return {pid: mark for pid, mark in found.items() if mark}


def _mark(pid: int) -> list[str]:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # It is gone, or somebody else's.
        return []
    _, found, rest = (b"\0" + variables).partition(f"\0{_NAME}=".encode())
    return rest.partition(b"\0")[0].decode("ascii", "replace").split() if found else []
