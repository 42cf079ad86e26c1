"""What came of a cell in a sandbox, in words for whoever wrote it."""

from __future__ import annotations

from coderoom._util.text import encodable
from coderoom.executors.execution import Execution
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, Limits

__all__ = ["STATE_LOST", "as_execution"]

STATE_LOST = "The session was restarted: earlier variables are gone."
_STATE_KEPT = "Variables that were set before are still there."
_TELLING = ("Limit", "Timeout", "Cancelled", "Signal")  # Errors that the output does not have.
_MIB = 1 << 20


def as_execution(result: ExecutionResult, limits: Limits, *, in_session: bool) -> Execution:
    """Put a result into the words of an execution.

    The output is what was printed, then the value of a last expression as a notebook shows it, then, if the code was
    ended or met a limit, a line that says so and what is left.

    Args:
        result: The result.
        limits: What the code could use.
        in_session: Whether there is a state that could be lost.
    """
    output = result.output
    if result.value_repr is not None:
        output = _on_a_line_of_its_own(output, result.value_repr)
    remark = _remark(result, limits, in_session)
    if remark:
        output = _on_a_line_of_its_own(output, f"[{remark}]")
    output = encodable(output)
    # What was left out is known in bytes, which is near enough.
    total = max(len(output), result.output_size) if result.truncated else len(output)
    return Execution(
        result.outcome,
        result.exit_code,
        output,
        result.duration,
        total_chars=total,
        artifacts=result.artifacts,
        calls=result.calls,
        state_lost=in_session and result.state_lost,
    )


def _on_a_line_of_its_own(output: str, text: str) -> str:
    gap = "" if not output or output.endswith("\n") else "\n"
    return f"{output}{gap}{text}\n"


def _remark(result: ExecutionResult, limits: Limits, in_session: bool) -> str:
    error, message, told = result.error, "", False
    # What has a traceback is the code's own, by whatever name.
    if error is not None and not error.traceback and error.type in _TELLING:
        if in_session:
            return error.message
        return error.message.partition(". ")[0].rstrip(".") + "."  # The rest is about the session.
    if result.outcome is Outcome.MEMORY:
        message = f"The code wanted more memory than the {limits.memory_bytes // _MIB:,} MiB that it may have."
        told = error is not None and message in error.message
        if told:  # The output has it.
            message = ""
    elif result.outcome is Outcome.ERROR:
        message = _limit(result, limits)
    if in_session and result.state_lost:
        return f"{message} {STATE_LOST}".strip()
    return f"{message} {_STATE_KEPT}".strip() if in_session and (message or told) else message


def _limit(result: ExecutionResult, limits: Limits) -> str:
    match result.limit:
        case "open_files":
            return f"The code may have {limits.open_files} files open at a time."
        case "processes":
            return f"The code may have {limits.processes} processes and threads at a time."
        case "file_size":
            return f"The code may write files of up to {limits.file_bytes:,} bytes."
        case "disk":
            return f"The code may write {limits.disk_bytes // _MIB:,} MiB."
        case _:
            return ""
