"""Remarks on results for the author of the code. Used by executors and servers."""

from __future__ import annotations

from coderoom.outcome import Outcome
from coderoom.sandbox.config import Limits
from coderoom.sandbox.result import ExecutionResult

STATE_LOST = "The session was restarted: earlier variables are gone."
_STATE_KEPT = "Variables that were set before are still there."
_NOT_IN_OUTPUT = ("Limit", "Timeout", "Cancelled", "Signal")
_MIB = 1 << 20


def remark_on(result: ExecutionResult, limits: Limits, in_session: bool) -> str:
    """Return a remark on why code was ended or which limit it reached; empty if the output says so already."""
    error, message, is_printed = result.error, "", False
    # An error with a traceback was raised by the code.
    if error is not None and not error.traceback and error.type in _NOT_IN_OUTPUT:
        if in_session:
            return error.message
        return error.message.partition(". ")[0].rstrip(".") + "."  # The rest is about the session.
    if result.outcome is Outcome.MEMORY:
        message = f"The code wanted more memory than the {limits.memory_bytes // _MIB:,} MiB that it may have."
        is_printed = error is not None and message in error.message
        if is_printed:
            message = ""
    elif result.outcome is Outcome.ERROR:
        message = _limit(result, limits)
    if in_session and result.state_lost:
        return f"{message} {STATE_LOST}".strip()
    return f"{message} {_STATE_KEPT}".strip() if in_session and (message or is_printed) else message


def _limit(result: ExecutionResult, limits: Limits) -> str:
    match result.limit:
        case "open_files":
            return f"The code may have {limits.open_files} files open at a time."
        case "processes":
            return f"The code may have {limits.processes} processes and threads at a time."
        case "file_size":
            return f"The code may write files of up to {limits.file_bytes:,} bytes."
        case "disk":
            return f"The disk is full, or /tmp has the {limits.disk_bytes // _MIB:,} MiB that it may have."
        case _:
            return ""
