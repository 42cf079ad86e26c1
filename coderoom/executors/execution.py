"""What is known of code that ran."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from autogen_ext.code_executors._common import CommandLineCodeResult

from coderoom.executors.output import new_output_file
from coderoom.outcome import Outcome
from coderoom.sandbox import Artifact, FunctionCall

__all__ = ["CANCELLED_CODE", "TIMEOUT_CODE", "Execution", "LocalCodeResult", "Transcript"]

TIMEOUT_CODE = 124
CANCELLED_CODE = 125


@dataclass(frozen=True)
class Execution:
    """How the code of one request ended, and what it wrote.

    Attributes:
        outcome: How it ended.
        exit_code: The exit code of the last block that ran; 128 + N if signal N ended it, 124 if its time was up.
        output: What the code wrote, in the order written, up to the end of its time if it had to be stopped. The
            executors of CodeRoom keep the beginning and the end of a very long output.
        duration: How long it took, in seconds.
        whole_output: The file with the whole output, if `output` is not all of it.
        total_chars: How many characters the whole output has.
        artifacts: The files that it made or changed, as far as the executor tells.
        calls: What it called on the host, where it could call something.
        state_lost: Whether earlier variables are gone since the run before.
    """

    outcome: Outcome
    exit_code: int
    output: str
    duration: float = 0.0
    whole_output: Path | None = None
    total_chars: int = 0
    artifacts: tuple[Artifact, ...] = ()
    calls: tuple[FunctionCall, ...] = ()
    state_lost: bool = False

    @classmethod
    def refused(cls, message: str) -> Execution:
        """Return the execution of a block that could not be started for a reason that its author can mend."""
        return cls(Outcome.ERROR, 1, message + "\n", total_chars=len(message) + 1)

    @classmethod
    def cancelled(cls) -> Execution:
        """Return the execution of a request whose executor was stopped or restarted under it."""
        return cls(Outcome.CANCELLED, CANCELLED_CODE, "")


@dataclass
class LocalCodeResult(CommandLineCodeResult):
    """AutoGen's code result together with what CodeRoom knows beyond it."""

    execution: Execution


class Transcript:
    """The runs of several blocks as one execution.

    Args:
        folder: Where the file with a whole output goes, if one is needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._runs: list[Execution] = []
        self._whole: Path | None = None

    async def add(self, run: Execution) -> bool:
        """Take the next run; the file of its whole output may be removed afterwards.

        Returns:
            Whether it was well, so that the next block may run.
        """
        if run.whole_output is not None or self._whole is not None:
            await asyncio.to_thread(self._append, run)
        self._runs.append(run)
        return run.outcome is Outcome.OK

    def execution(self) -> Execution:
        """Return the execution."""
        runs = self._runs
        last = runs[-1] if runs else Execution(Outcome.OK, 0, "")
        return Execution(
            outcome=last.outcome,
            exit_code=last.exit_code,
            output="".join(run.output for run in runs),
            duration=sum(run.duration for run in runs),
            whole_output=self._whole,
            total_chars=sum(run.total_chars for run in runs),
            # A file that a later block has changed again is that block's.
            artifacts=tuple({artifact.name: artifact for run in runs for artifact in run.artifacts}.values()),
            calls=tuple(call for run in runs for call in run.calls),
            state_lost=any(run.state_lost for run in runs),
        )

    def _append(self, run: Execution) -> None:
        try:
            if self._whole is None:
                self._whole = new_output_file(self._folder)
                self._write("".join(earlier.output for earlier in self._runs))
            if run.whole_output is None:
                self._write(run.output)
            else:
                with self._whole.open("ab") as target, run.whole_output.open("rb") as source:
                    shutil.copyfileobj(source, target, 1 << 20)
        except OSError:  # No room or no right to write there costs the copy and not the run.
            self._whole = None

    def _write(self, text: str) -> None:
        if self._whole is not None:
            with self._whole.open("ab") as target:
                target.write(text.encode("utf-8", "replace"))
