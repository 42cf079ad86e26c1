"""What is known of a cell that was run."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from coderoom.outcome import Outcome

__all__ = ["Artifact", "CodeError", "ExecutionResult", "FunctionCall", "Limit", "OutputChunk", "with_paths"]

Limit = Literal["wall", "cpu", "memory", "processes", "open_files", "file_size", "disk", "output", "value"]


@dataclass(frozen=True)
class CodeError:
    """Why a cell failed.

    Attributes:
        type: The name of the exception's class, `ValueError` for instance; `Exit` for an exit code other than 0,
            `Signal` for a process that a signal ended, `Timeout` for code whose time was up, `Limit` for code that was
            ended at another limit, `Cancelled` for code that was cancelled, `PolicyError` for code that the policy
            refuses.
        message: The exception's text, or what happened and what can be done about it.
        traceback: The traceback of the user's lines only, with their source, as it was written to standard error;
            empty if there is none.
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
        data: Its content if it has no path and was small enough to bring along, which all of a cell's together are up
            to 8 MiB; else `None`.
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
class FunctionCall:
    """A call that a cell made to a function of the host.

    Attributes:
        name: The function's name.
        arguments: What it was called with, by the names of its parameters; what is long is cut and is text then.
        outcome: `ok`; `error` if it raised; `rejected` if it was not run, since the arguments did not fit or there
            were too many calls; `timeout`; `cancelled` if the cell ended first.
        duration: How long it took, in seconds.
        error: Why it failed, as the code was told it; `None` if it did not.
    """

    name: str
    arguments: Mapping[str, Any]
    outcome: Outcome
    duration: float
    error: str | None = None

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name}({shown}): {self.outcome.value}{f', {self.error}' if self.error else ''}"


@dataclass(frozen=True)
class ExecutionResult:
    """What is known of a cell that was run.

    Attributes:
        outcome: How it ended.
        exit_code: 0, or what the code exited with; 1 for an exception, 124 for a timeout, 125 if it was cancelled,
            126 if it was rejected, 137 for too much memory, 128 and the signal's number for a process ended by one.
        stdout: What it wrote to standard output.
        stderr: What it wrote to standard error.
        output: Both, in the order in which they were written; what programs that a cell of Python starts write to the
            two at nearly the same time may be swapped, since each is a pipe of its own.
        value: The value of a last expression: JSON-like data as data, anything else as its `repr`. Under the
            restricted policy also the variable `result`.
        value_repr: The `repr` of that value, whatever it is, cut where it is long; `None` if there was no value.
        value_is_data: Whether `value` is data, and not a `repr` or the `None` of no value.
        error: Why it failed; `None` if it did not.
        duration: How long it took, in seconds.
        truncated: Whether something that it wrote was left out.
        output_size: How many bytes it wrote, whatever was kept.
        artifacts: The files that it made or changed in the workspace, the first hundred by name; hidden ones, and those
            of cells that are no Python, are not among them.
        artifacts_left_out: How many more there were.
        code: The code.
        limit: The limit that it met, if it met one; see `Limits`.
        state_lost: Whether the session had to start again, so that earlier variables are gone.
        peak_memory: The most memory that its process has had at a time, in bytes, with what it shares with the warm
            worker; in a session that is since its beginning. `None` where it is not known.
        calls: What it called on the host, in the order in which the calls came.
    """

    outcome: Outcome
    exit_code: int
    stdout: str = ""
    stderr: str = ""
    output: str = ""
    value: Any = None
    value_repr: str | None = None
    value_is_data: bool = False
    error: CodeError | None = None
    duration: float = 0.0
    truncated: bool = False
    output_size: int = 0
    artifacts: tuple[Artifact, ...] = ()
    artifacts_left_out: int = 0
    code: str = ""
    limit: Limit | None = None
    state_lost: bool = False
    peak_memory: int | None = None
    calls: tuple[FunctionCall, ...] = ()

    @property
    def success(self) -> bool:
        """Whether it ran to its end with exit code 0."""
        return self.outcome is Outcome.OK

    @property
    def result(self) -> Any:
        """The value, under the name that `execute_code` knows."""
        return self.value


def with_paths(result: ExecutionResult, workspace: Path | None) -> ExecutionResult:
    """The result with the places of its artifacts on this machine; what is no file in the workspace is left out."""
    if workspace is None or not result.artifacts:
        return result
    root = workspace.resolve()
    found = []
    for artifact in result.artifacts:
        path = workspace / artifact.name
        # Names come from inside: they may lead anywhere.
        with contextlib.suppress(OSError, ValueError):
            facts = path.lstat()
            real = path.resolve()
            if real == root / artifact.name and real.is_relative_to(root) and stat.S_ISREG(facts.st_mode):
                found.append(replace(artifact, path=path, size=facts.st_size))
    return replace(result, artifacts=tuple(found))
