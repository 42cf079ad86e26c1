"""How a cell ended. Used by every package that runs code."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Outcome"]


class Outcome(StrEnum):
    """How a cell ended, computed from what happened to its process.

    A broken sandbox is not an outcome but an exception: `coderoom.errors.SandboxUnavailable`.
    """

    OK = "ok"
    """It ran to its end, with exit code 0."""
    ERROR = "error"
    """It raised an exception, or exited with another code."""
    TIMEOUT = "timeout"
    """It reached its time limit."""
    MEMORY = "memory"
    """It reached its memory limit."""
    REJECTED = "rejected"
    """The policy or the approval refused it; it never ran."""
    CANCELLED = "cancelled"
    """It was cancelled from outside."""
