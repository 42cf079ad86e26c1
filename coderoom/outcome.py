"""How a piece of code ended."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Outcome"]


class Outcome(StrEnum):
    """How a piece of code ended, as computed from what happened to it.

    That the sandbox itself broke is not among these: that is `coderoom.errors.SandboxUnavailable`.
    """

    OK = "ok"
    """It ran to its end, with exit code 0."""
    ERROR = "error"
    """It raised, or exited with another code."""
    TIMEOUT = "timeout"
    """Its time was up."""
    MEMORY = "memory"
    """It wanted more memory than it may have."""
    REJECTED = "rejected"
    """A policy or an approval said no; it never ran."""
    CANCELLED = "cancelled"
    """The person or the program that asked for it took the request back."""
