"""From the results of blocks to one result, with the output that the code's author reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autogen_core.code_executor import CodeResult

from coderoom._util.text import encodable
from coderoom.outcome import Outcome
from coderoom.sandbox import Artifact, ExecutionResult, Limits

__all__ = ["CANCELLED_CODE", "STATE_LOST", "TIMEOUT_CODE", "SandboxCodeResult", "cancelled", "combined", "worded"]

TIMEOUT_CODE = 124
CANCELLED_CODE = 125

STATE_LOST = "The session was restarted: earlier variables are gone."
_STATE_KEPT = "Variables that were set before are still there."
_NOT_IN_OUTPUT = ("Limit", "Timeout", "Cancelled", "Signal")
_MIB = 1 << 20


@dataclass
class SandboxCodeResult(CodeResult):
    """AutoGen's code result, together with the sandbox's.

    Attributes:
        execution: The result of all blocks; its `output` is the same text.
    """

    execution: ExecutionResult

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The files that the code created or changed, with their places on this machine."""
        return self.execution.artifacts


def cancelled() -> ExecutionResult:
    """Return the result of a run that was ended before it had one."""
    return ExecutionResult(Outcome.CANCELLED, CANCELLED_CODE)


def combined(results: Sequence[ExecutionResult]) -> ExecutionResult:
    """Return the results of several blocks as one, whose outcome is that of the last."""
    if not results:
        return ExecutionResult(Outcome.OK, 0)
    if len(results) == 1:
        return results[0]
    return replace(
        results[-1],
        stdout="".join(result.stdout for result in results),
        stderr="".join(result.stderr for result in results),
        output="".join(result.output for result in results),
        duration=sum(result.duration for result in results),
        truncated=any(result.truncated for result in results),
        output_size=sum(result.output_size for result in results),
        # A file that a later block has changed again is listed once.
        artifacts=tuple({artifact.name: artifact for result in results for artifact in result.artifacts}.values()),
        artifacts_left_out=sum(result.artifacts_left_out for result in results),
        code="\n".join(result.code for result in results),
        state_lost=any(result.state_lost for result in results),
        calls=tuple(call for result in results for call in result.calls),
    )


def worded(result: ExecutionResult, limits: Limits, *, in_session: bool, shows_value: bool) -> ExecutionResult:
    """Return a result whose output says all that the code's author needs to know.

    The output is what was printed, then the value of a last expression as a notebook shows it, then, if the code was
    ended or met a limit, a line that says so and what is left.

    Args:
        result: The result.
        limits: What the code could use.
        in_session: Whether there are variables that could be lost.
        shows_value: Whether the value of a last expression is shown.
    """
    output = result.output
    if shows_value and result.value_repr is not None:
        output = _with_line(output, result.value_repr)
    remark = _remark(result, limits, in_session)
    if remark:
        output = _with_line(output, f"[{remark}]")
    return replace(result, output=encodable(output), state_lost=in_session and result.state_lost)


def _with_line(output: str, text: str) -> str:
    gap = "" if not output or output.endswith("\n") else "\n"
    return f"{output}{gap}{text}\n"


def _remark(result: ExecutionResult, limits: Limits, in_session: bool) -> str:
    error, message, is_printed = result.error, "", False
    # An error with a traceback is the code's own, whatever its name.
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
            return f"The code may write {limits.disk_bytes // _MIB:,} MiB."
        case _:
            return ""
