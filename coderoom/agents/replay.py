"""Code of a session's past that is run again, so that its variables come back. Used by all coding agents."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple, Self

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from pydantic import Field

from coderoom._util.components import StrictConfig
from coderoom.outcome import Outcome
from coderoom.sandbox import RecordedCall

if TYPE_CHECKING:
    from coderoom.contracts import Executor  # It imports the judge.

_BEGINNING = 500
_SHOWN = 200


class PastCell(StrictConfig):
    """Code that has run, with the results of its function calls, and what is known of how it ended."""

    blocks: list[CodeBlock]
    calls: list[RecordedCall] = Field(default_factory=list)
    output: str | None = None
    output_digest: str | None = None
    outcome: Outcome = Outcome.OK

    def with_output(self, output: str) -> Self:
        """The same with this output."""
        known = {"output": output[:_BEGINNING], "output_digest": digest_of(output)}
        return self.model_copy(update=known)

    @property
    def words(self) -> str:
        """What to call it in a sentence."""
        lines = (line.strip() for block in self.blocks for line in block.code.splitlines())
        return f"the code that begins with {next(filter(None, lines), '')[:100]!r}"


class Replayed(NamedTuple):
    """What came of code that was run again.

    Attributes:
        cell: The code with its new output; `None` if what it had set is lost.
        remark: What is lost, or came out otherwise; empty if all is as before.
    """

    cell: PastCell | None
    remark: str


async def run_again(cell: PastCell, executor: Executor, cancellation_token: CancellationToken) -> Replayed:
    """Run code again, unless it was ended from outside: that could not give the same again."""
    if cell.outcome not in (Outcome.OK, Outcome.ERROR):
        return Replayed(None, f"{cell.words} had ended with {cell.outcome.value!r} and was not run again")
    result = await executor.run(cell.blocks, cancellation_token)
    if result.outcome is not cell.outcome:
        end = next((line for line in reversed(result.output.splitlines()) if line.strip()), "no output")
        return Replayed(None, f"{cell.words} ended with {result.outcome.value!r} this time ({end[:_SHOWN]})")
    if cell.output_digest in (None, digest_of(result.output)):
        return Replayed(cell, "")
    before, now = (text.strip()[:_SHOWN] for text in (cell.output or "", result.output))
    return Replayed(cell.with_output(result.output), f"{cell.words} gave {before!r} before and {now!r} now")


def digest_of(output: str, *more: str) -> str:
    """A digest of an output, without addresses and cell numbers, which always differ."""
    text = "\0".join([re.sub(r"0x[0-9a-fA-F]+|<cell \d+>", "#", output), *more])
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
