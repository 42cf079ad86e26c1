"""What came of a file that was run, and of each of its blocks. Used by `coderoom exec` and its view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from coderoom.blocks import Block
from coderoom.outcome import Outcome
from coderoom.runs.exec_source import Source
from coderoom.runs.review import Reviewed
from coderoom.sandbox import Artifact, CodeError, NetworkUse

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
        value: The value of a last expression as JSON-like data; `None` if there is none, or it is not data.
        value_repr: The `repr` of that value; `None` if there is none.
        truncated: Whether `output` is incomplete.
        error: Why it failed; `None` if it did not.
        place: The line of the file where it failed, for instance `notes.md:9`, if it is known.
        cause: The line of the innermost call that failed, if that is another one.
        network: The hosts that it asked for, if there is a list of hosts that it may reach.
        shown: The files that it has displayed.
    """

    number: int
    block: Block
    outcome: Outcome
    exit_code: int
    output: str
    seconds: float
    value: Any = None
    value_repr: str | None = None
    truncated: bool = False
    error: CodeError | None = None
    place: str | None = None
    cause: str | None = None
    network: Sequence[NetworkUse] = ()
    shown: tuple[Artifact, ...] = ()

    def to_json(self, in_notebook: bool) -> dict[str, Any]:
        """The facts, as JSON-like data."""
        error = self.error
        return {
            "number": self.number,
            "line": None if in_notebook else self.block.line,
            "cell": self.block.line if in_notebook else None,
            "language": self.block.language,
            "code": self.block.code,
            "outcome": self.outcome.value,
            "exit_code": self.exit_code,
            "output": self.output,
            "value": self.value,
            "value_repr": self.value_repr,
            "output_file": None,  # No output is kept in a file.
            "truncated": self.truncated,
            "error": error and {"type": error.type, "message": without_state(error.message), "place": self.place},
            "seconds": round(self.seconds, 3),
            "network": [asdict(use) for use in self.network],
        }


@dataclass
class FileResult:
    """The result of running a file.

    Attributes:
        source: The file.
        workspace: The folder that it ran in.
        workspace_made: Whether that folder was created.
        runs: The blocks that ran, in order; the last one may have failed.
        cancelled: Whether it was interrupted.
        broke: Whether the sandbox broke.
        isolation: The wall that the code ran behind.
        files: The files in the folder that were made or changed.
        lock: The packages of the code as a requirements file with exact versions.
        reviewed: What became of changes that were kept apart from the workspace; `None` if there are none.
    """

    source: Source
    workspace: Path
    workspace_made: bool = False
    runs: list[BlockRun] = field(default_factory=list)
    cancelled: bool = False
    broke: bool = False
    isolation: str = ""
    files: list[Path] = field(default_factory=list)
    lock: str = ""
    reviewed: Reviewed | None = None

    @property
    def total(self) -> int:
        """The number of blocks."""
        return len(self.source.blocks)

    @property
    def succeeded(self) -> bool:
        """Whether every block succeeded."""
        return len(self.runs) == self.total and all(run.outcome is Outcome.OK for run in self.runs)

    @property
    def outcome(self) -> str:
        """The outcome of the last block; `failed` if the sandbox broke."""
        if self.broke:
            return "failed"
        return "cancelled" if self.cancelled else self.runs[-1].outcome.value if self.runs else "no_code"

    def to_json(self) -> dict[str, Any]:
        """The facts, as JSON-like data."""
        return {
            "succeeded": self.succeeded,
            "cancelled": self.cancelled,
            "isolation": self.isolation,
            "workspace": str(self.workspace),
            "workspace_made": self.workspace_made,
            "blocks": self.total,
            "files": list(map(str, self.files)),
            **({"lock": self.lock} if self.lock else {}),
            **({"review": self.reviewed.to_json()} if self.reviewed else {}),
            "skipped": [{"line": block.line, "language": block.tag} for block in self.source.skipped],
            "runs": [run.to_json(self.source.kind == "notebook") for run in self.runs],
        }


def without_state(message: str) -> str:
    """A message of the sandbox without what it says about variables: after a failure no further block runs."""
    for words in _STATE:
        message = message.removesuffix(words).rstrip()
    return message
