"""What runs below a process."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["below", "connections", "wait_until_gone"]


def below(pid: int) -> dict[int, str]:
    """The processes below one, with what they are."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # It is gone.
            continue
    found: dict[int, str] = {}
    above = {pid}
    while above:
        above = {child for child, parent in parents.items() if parent in above}
        found |= {child: _command(child) for child in above}
    return found


def connections(pid: int) -> int:
    """How many sockets a process has."""
    found = 0
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # It is closed by now.
            found += str(file.readlink()).startswith("socket:")
    return found


def wait_until_gone(pids: Iterable[int], seconds: float) -> dict[int, str]:
    """Wait until none of these is there; what is left after that time."""
    end = time.monotonic() + seconds
    while left := {pid: command for pid in pids if (command := _command(pid))}:
        if time.monotonic() > end:
            return left
        time.sleep(0.02)
    return {}


def _command(pid: int) -> str:
    """What a process is; empty if there is none, or only what its parent has yet to take note of."""
    try:
        folder = Path(f"/proc/{pid}")
        if folder.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return ""
        return folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace") or "?"
    except OSError:
        return ""
