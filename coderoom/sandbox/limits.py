"""The limits on what code may use: time, memory, processes, files, output and calls."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Limits"]

_MIB = 1024 * 1024


class Limits(BaseModel):
    """Limits for a cell, its session and all processes that they start.

    Attributes:
        wall_seconds: How long a cell may take.
        cpu_seconds: How much processor time a cell may take, over all its processes; `None`: no separate limit.
        memory_bytes: How much memory one process may have, and all of a session's together.
        processes: How many processes and threads a session may have at a time.
        open_files: How many files a process may have open at a time.
        file_bytes: How large a file may grow.
        disk_bytes: How much a session may write into its workspace, and how large its private `/tmp` is.
        output_bytes: How much of a cell's output is kept, from its beginning and its end; the rest is only counted.
        value_bytes: How large a cell's value may be, as JSON; of a larger one the result has only the shortened
            `repr`. The same limit holds for the arguments and the result of a call to a function of the host, which
            fails above it.
        calls: How many calls a cell may make to functions of the host.
        call_seconds: How long each of them may take.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    wall_seconds: float = Field(default=60, gt=0, le=86_400, allow_inf_nan=False)
    cpu_seconds: float | None = Field(default=None, gt=0, le=86_400, allow_inf_nan=False)
    memory_bytes: int = Field(default=1024 * _MIB, ge=32 * _MIB)
    processes: int = Field(default=64, ge=1, le=4096)
    open_files: int = Field(default=256, ge=32, le=4096)
    file_bytes: int = Field(default=256 * _MIB, ge=4096)
    disk_bytes: int = Field(default=512 * _MIB, ge=65_536)
    output_bytes: int = Field(default=_MIB, ge=256, le=256 * _MIB)
    value_bytes: int = Field(default=_MIB, ge=256, le=64 * _MIB)
    calls: int = Field(default=10_000, ge=0)
    call_seconds: float = Field(default=60, gt=0, le=86_400, allow_inf_nan=False)
