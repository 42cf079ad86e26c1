"""What is known of a cell that was run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from coderoom.outcome import Outcome

__all__ = ["Artifact", "CodeError", "ExecutionResult", "Limit", "OutputChunk"]

Limit = Literal["wall", "cpu", "memory", "processes", "open_files", "file_size", "disk", "output"]


@dataclass(frozen=True)
class CodeError:
    """Why a cell failed.

    Attributes:
        type: The name of the exception's class, `ValueError` for instance; `Exit` for an exit code other than 0,
            `Signal` for a process that a signal ended, `Limit` for one that was ended at a limit.
        message: The exception's text, or what happened and what can be done about it.
        traceback: The traceback of the user's lines only, with their source; empty if there is none.
        line: The line of the cell that failed, counted from 1, or `None`.
    """

    type: str
    message: str
    traceback: str = ""
    line: int | None = None

    def __str__(self) -> str:
        return self.traceback or (f"{self.type}: {self.message}" if self.message else self.type)


@dataclass(frozen=True)
class Artifact:
    """A file that a cell made or changed.

    Attributes:
        name: Its path inside the workspace, with `/` between the parts.
        size: Its size in bytes.
        media_type: What it is, as far as its name tells, for instance `image/png`.
        path: Where it is on this machine; `None` if the workspace is not a folder of this machine.
        data: Its content if it has no path and was small enough to bring along; else `None`.
    """

    name: str
    size: int
    media_type: str
    path: Path | None = None
    data: bytes | None = None


@dataclass(frozen=True)
class OutputChunk:
    """Something that a cell has just printed.

    Attributes:
        stream: Where to.
        text: What.
    """

    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True)
class ExecutionResult:
    """What is known of a cell that was run.

    Attributes:
        outcome: How it ended.
        exit_code: 0, or what the code exited with; 1 for an exception, 124 for a timeout, 125 if it was cancelled,
            126 if it was rejected, 137 for too much memory, 128 and the signal's number for a process ended by one.
        stdout: What it wrote to standard output.
        stderr: What it wrote to standard error.
        output: Both, in the order in which they were written.
        value: The value of a last expression: JSON-like data as data, anything else as its `repr`. Under the
            restricted policy also the variable `result`.
        value_repr: The `repr` of that value, whatever it is, cut where it is long; `None` if there was no value.
        error: Why it failed; `None` if it did not.
        duration: How long it took, in seconds.
        truncated: Whether something that it wrote was left out.
        output_size: How many bytes it wrote, whatever was kept.
        artifacts: The files that it made or changed in the workspace.
        code: The code.
        limit: The limit that it met, if it met one.
        state_lost: Whether the session had to start again, so that earlier variables are gone.
        peak_memory: The most memory that its process had at a time, in bytes; `None` where it is not known.
    """

    outcome: Outcome
    exit_code: int
    stdout: str = ""
    stderr: str = ""
    output: str = ""
    value: Any = None
    value_repr: str | None = None
    error: CodeError | None = None
    duration: float = 0.0
    truncated: bool = False
    output_size: int = 0
    artifacts: tuple[Artifact, ...] = ()
    code: str = ""
    limit: Limit | None = None
    state_lost: bool = False
    peak_memory: int | None = None

    @property
    def success(self) -> bool:
        """Whether it ran to its end with exit code 0."""
        return self.outcome is Outcome.OK

    @property
    def result(self) -> Any:
        """The value, under the name that `execute_code` knows."""
        return self.value
