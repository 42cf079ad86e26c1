"""The result of running a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from coderoom.blocks import Block
from coderoom.outcome import Outcome
from coderoom.runs.exec_source import Source
from coderoom.sandbox import CodeError, ExecutionResult

__all__ = ["BlockRun", "FileResult", "remarks"]

CANCELLED_CODE: Final = 125

_STATE: Final = (
    "The session was restarted: earlier variables are gone.",
    "Variables that were set before are still there.",
)


@dataclass(frozen=True)
class BlockRun:
    """The result of one block of a file.

    Attributes:
        number: The block's number among those that are run, counted from 1.
        block: The block.
        outcome: How it ended.
        exit_code: Its exit code.
        output: What it printed, the value of a last expression, and why it was ended. Long output keeps its beginning
            and its end.
        seconds: How long it took.
        truncated: Whether something is left out of `output`.
        error: Why it failed; `None` if it did not.
        place: The place in the file where it failed, for instance `notes.md:9`, if that is known.
    """

    number: int
    block: Block
    outcome: Outcome
    exit_code: int
    output: str
    seconds: float
    truncated: bool = False
    error: CodeError | None = None
    place: str | None = None

    @classmethod
    def of(cls, source: Source, number: int, result: ExecutionResult, output: str) -> BlockRun:
        """The result of a block from what the sandbox returned.

        Args:
            source: The file.
            number: The block's number in it.
            result: What the sandbox returned.
            output: All of its output.
        """
        error = result.error
        return cls(
            number=number,
            block=source.blocks[number - 1],
            outcome=result.outcome,
            exit_code=result.exit_code,
            output=output,
            seconds=result.duration,
            truncated=result.truncated,
            error=error,
            place=None if error is None or error.line is None else source.place(number, error.line),
        )

    @classmethod
    def interrupted(cls, source: Source, number: int, seconds: float) -> BlockRun:
        """A block that had not started, or did not end when it was cancelled."""
        return cls(number, source.blocks[number - 1], Outcome.CANCELLED, CANCELLED_CODE, "", seconds)


@dataclass
class FileResult:
    """What running a file came to.

    Attributes:
        source: The file.
        workspace: The folder that it ran in.
        workspace_made: Whether that folder was created.
        runs: The blocks that were run, in order; the last one may have failed.
        cancelled: Whether it was interrupted.
        isolation: The wall that the code ran behind.
    """

    source: Source
    workspace: Path
    workspace_made: bool = False
    runs: list[BlockRun] = field(default_factory=list)
    cancelled: bool = False
    isolation: str = ""

    @property
    def total(self) -> int:
        """The number of blocks."""
        return len(self.source.blocks)

    @property
    def succeeded(self) -> bool:
        """Whether every block succeeded."""
        return len(self.runs) == self.total and all(run.outcome is Outcome.OK for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """The facts, as JSON-like data."""
        return {
            "succeeded": self.succeeded,
            "cancelled": self.cancelled,
            "isolation": self.isolation,
            "workspace": str(self.workspace),
            "workspace_made": self.workspace_made,
            "blocks": self.total,
            "skipped": [{"line": block.line, "language": block.tag} for block in self.source.skipped],
            "runs": [self._run_to_json(run) for run in self.runs],
        }

    def _run_to_json(self, run: BlockRun) -> dict[str, Any]:
        in_notebook = self.source.kind == "notebook"
        return {
            "number": run.number,
            "line": None if in_notebook else run.block.line,
            "cell": run.block.line if in_notebook else None,
            "language": run.block.language,
            "code": run.block.code,
            "outcome": run.outcome.value,
            "exit_code": run.exit_code,
            "output": run.output,
            "output_file": None,  # No output is kept in a file.
            "truncated": run.truncated,
            "error": None if run.error is None else _error_to_json(run.error, run.place),
            "seconds": round(run.seconds, 3),
        }


def remarks(result: ExecutionResult) -> str:
    """What follows the printed output of a cell: its value, or why it was ended.

    Whether variables are kept is left out: after a failure nothing runs that could use them.
    """
    said = [] if result.value_repr is None else [result.value_repr]
    error = result.error
    if error is not None and not error.traceback and error.type != "Exit":
        said.append(f"[{_without_state(error.message)}]")
    if not said:
        return ""
    gap = "" if not result.output or result.output.endswith("\n") else "\n"
    return gap + "\n".join(said) + "\n"


def _error_to_json(error: CodeError, place: str | None) -> dict[str, Any]:
    return {"type": error.type, "message": _without_state(error.message), "place": place}


def _without_state(message: str) -> str:
    for words in _STATE:
        message = message.removesuffix(words).rstrip()
    return message
