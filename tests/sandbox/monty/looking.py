"""Looking at what came of a cell, and at the processes of the engine `monty`."""

from __future__ import annotations

import contextlib
from pathlib import Path

from coderoom.sandbox import CodeError, ExecutionResult


def error_of(result: ExecutionResult) -> CodeError:
    assert result.error is not None, result
    return result.error


def children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # A thread that has just ended.
            found.update(map(int, (task / "children").read_text().split()))
    return found


def busy(pids: set[int]) -> int:
    """The one of these processes that has used the most processor time."""

    def ticks(pid: int) -> int:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return -1
        return int(fields[11]) + int(fields[12])

    return max(pids, key=ticks)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False
