"""What other agents and people read about a turn, and what programs read beside it."""

from __future__ import annotations

from coderoom.agents import metadata as keys
from coderoom.agents._attempt import Attempt
from coderoom.agents._decisions import StopReason
from coderoom.blocks import extract_code_blocks, fence

__all__ = ["facts", "report"]


def report(summary: str, attempt: Attempt) -> str:
    """The final message of a turn: the model's words, then the code, the exit code and the output.

    The code is marked `no-run`, so that an agent which runs what others write does not run it again.
    """
    parts = [_whole(summary.strip())] if summary.strip() else []
    if not attempt.ran:
        parts.append(f"Attempt {attempt.number} was not run: {attempt.outcome}. {attempt.reason}".strip())
    else:
        parts.append(f"Attempt {attempt.number}: {attempt.outcome}, exit code {attempt.exit_code}.")
    parts += [fence(block.code, block.language, "no-run") for block in attempt.blocks]
    if attempt.output.strip():
        parts += ["Output:", fence(attempt.output, "text", "no-run")]
    return "\n\n".join([*parts, *attempt.notes])


def _whole(summary: str) -> str:
    # A fence that was never closed would swallow the report behind it.
    if all(block.closed for block in extract_code_blocks(summary)):
        return summary
    return fence(summary, "text", "no-run")


def facts(attempt: Attempt, stop_reason: StopReason | None = None) -> dict[str, str]:
    """The same for programs, as metadata."""
    found = {
        keys.OUTCOME: attempt.outcome.value,
        keys.EXIT_CODE: str(attempt.exit_code),
        keys.RAN: str(attempt.ran).lower(),
        keys.ATTEMPTS: str(attempt.number),
    }
    if stop_reason is not None:
        found[keys.STOP_REASON] = stop_reason.value
    if attempt.failure is not None:
        found[keys.FAILURE] = attempt.failure
    if attempt.output_file is not None:
        found[keys.OUTPUT_FILE] = str(attempt.output_file)
    return found
