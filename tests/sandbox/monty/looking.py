"""Looking at what came of a cell, and at the processes of the engine `monty`."""

from __future__ import annotations

import contextlib
from pathlib import Path

from coderoom.sandbox.engines.monty.engine import MontySession
from coderoom.sandbox.result import CodeError, ExecutionResult


def error_of(result: ExecutionResult) -> CodeError:
    assert result.error is not None, result
    return result.error


def children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # A thread that has just ended.
            found.update(map(int, (task / "children").read_text().split()))
    return found


def pid_of(session: MontySession) -> int:
    assert session._worker is not None
    return session._worker.pid
