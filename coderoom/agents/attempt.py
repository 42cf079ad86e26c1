"""Choosing, approving and running the code of one attempt, and describing its result. Used by all coding agents."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autogen_agentchat.messages import BaseChatMessage, MultiModalMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import LLMMessage

from coderoom._util.calls import await_with_token
from coderoom.approval import Approval, ApprovalFuncType, ApprovalRequest, ask_approval
from coderoom.blocks import Block, extract_code_blocks, fence, normalize_language
from coderoom.errors import RequestError
from coderoom.executors import Checkpoints, bound_output, runner_for, save_output
from coderoom.outcome import Outcome
from coderoom.sandbox import Artifact, ExecutionResult, FunctionCall, OutputChunk

__all__ = [
    "Attempt",
    "CodeFormat",
    "CodeRunner",
    "Selection",
    "calls_made",
    "select_blocks",
    "texts_of",
]

CodeFormat = Literal["fence", "execute"]


@dataclass(frozen=True)
class Selection:
    """The blocks of a message that will run, and why the others will not.

    Attributes:
        blocks: The blocks to run, in order.
        notes: Why other blocks are not run, one sentence each, for the model.
        is_code: Whether the message contains code to run at all; a table in `json` alone is not code.
        cut: Whether a block has no end, so that code is missing.
        left_out: The code that is not run.
    """

    blocks: tuple[CodeBlock, ...] = ()
    notes: tuple[str, ...] = ()
    is_code: bool = False
    cut: bool = False
    left_out: tuple[str, ...] = ()


def texts_of(message: BaseChatMessage) -> list[str]:
    """The texts of a message that may contain code. The texts around a picture are separate."""
    if isinstance(message, MultiModalMessage):
        return [part for part in message.content if isinstance(part, str)]
    return [message.to_model_text()]


def select_blocks(texts: Sequence[str], languages: Sequence[str], code_format: CodeFormat | None = None) -> Selection:
    """Select the blocks that the agent can run.

    Args:
        texts: The messages' texts, in order.
        languages: The languages that can run, under any of their names.
        code_format: Where code to run is: in fences, or in `<execute>` tags; `None`: in both.
    """
    known = {normalize_language(language) for language in languages}
    run: list[CodeBlock] = []
    notes: list[str] = []
    left_out: list[str] = []
    is_code = cut = False
    for block in (block for text in texts for block in extract_code_blocks(text)):
        is_for_running = block.language != "" and not block.is_data
        if block.no_run:
            continue
        if code_format is not None and (block.tag == "execute") != (code_format == "execute"):
            if code_format == "fence":  # Tags are never for show; blocks are, beside tags.
                is_code = True
                left_out.append(block.code)
                notes.append(_TAGGED)
        elif not block.closed and (is_for_running or block.language == ""):
            is_code = is_code or is_for_running
            cut = cut or is_for_running
            left_out.append(block.code)
            notes.append(_cut_note(block))
        elif block.language in known:
            is_code = True
            run.append(CodeBlock(code=block.code, language=block.run_language))
        else:
            is_code = is_code or is_for_running
            left_out.append(block.code)
            notes.append(_unknown_note(block, languages))
    return Selection(tuple(run), tuple(notes), is_code, cut, tuple(left_out))


def _cut_note(block: Block) -> str:
    label = f"{block.language!r} " if block.language else ""
    closing = "</execute>" if block.tag == "execute" else "fence"
    return (
        f"The {label}block at line {block.line} was not run: it is cut off, its closing {closing} is missing. "
        "Write it again as a whole, shorter if need be."
    )


def _unknown_note(block: Block, languages: Sequence[str]) -> str:
    what = f"it is labelled {block.tag!r}" if block.language else "it has no language"
    return f"The block at line {block.line} was not run: {what}, and what runs here is {', '.join(languages)}."


@dataclass(frozen=True)
class Attempt:
    """One run of code and its result.

    Attributes:
        number: Which attempt of the turn this is, counted from 1.
        blocks: What was run, or would have been run.
        outcome: How it ended.
        exit_code: The exit code; 0 only if the outcome is `ok`.
        output: What it printed, cut to the limit.
        notes: Which blocks were not run, and why.
        output_file: The file with the whole output, if `output` is only its head and tail.
        reason: Why it was rejected.
        by_policy: Whether the sandbox's policy rejected it, and not an approval.
        incomplete: Whether code was missing, so that the attempt cannot succeed.
        left_out: The code that was not run.
        artifacts: The files that it created or changed, if the executor reports them.
        calls: The functions of the host that it called.
        state_lost: Whether earlier variables were lost.
        undone: Whether the files were restored after it.
    """

    number: int
    blocks: tuple[CodeBlock, ...]
    outcome: Outcome
    exit_code: int
    output: str
    notes: tuple[str, ...] = ()
    output_file: Path | None = None
    reason: str = ""
    by_policy: bool = False
    incomplete: bool = False
    left_out: tuple[str, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    calls: tuple[FunctionCall, ...] = ()
    state_lost: bool = False
    undone: bool = False

    @property
    def failure(self) -> str | None:
        """A fingerprint of the code and its failure, or `None` if it did not fail.

        Addresses, decimal numbers (times, for instance) and cell numbers are ignored: they differ between runs.
        """
        if self.outcome is Outcome.OK:
            return None
        # The file with the whole output has a new name each time.
        output = self.output.replace(self.output_file.name, "") if self.output_file else self.output
        error = re.sub(r"0x[0-9a-fA-F]+|\d+\.\d+|<cell \d+>", "#", output.strip())
        code = [f"{block.language}\n{block.code.strip()}" for block in self.blocks]
        parts = [self.outcome, str(self.exit_code), error, *code, *self.left_out]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def result(self) -> CodeResult:
        """The result as AutoGen's type, for events."""
        instead = self.reason if self.rejected else "" if self.blocks else "\n".join(self.notes)
        return CodeResult(exit_code=self.exit_code, output=instead or self.output)

    @property
    def ran(self) -> bool:
        """Whether anything was run at all."""
        return bool(self.blocks) and not self.rejected

    @property
    def rejected(self) -> bool:
        """Whether the code was not allowed to run."""
        return self.outcome is Outcome.REJECTED

    @property
    def refusal(self) -> str:
        """Why it was not allowed to run, in the words of AutoGen's agent; empty if it was allowed."""
        if not self.rejected:
            return ""
        if self.by_policy:
            return f"The sandbox's policy does not allow this code.\n{self.reason}"
        return f"Code execution was not approved. Reason: {self.reason}"

    def describe(self) -> str:
        """Describe what happened, for a model.

        The sentences about exit codes and approval are those of AutoGen's agent, since its users may search for them.
        """
        parts = [self._result_in_words(), *self.notes]
        if self.calls and self.outcome is not Outcome.OK:
            parts.append(calls_made(self.calls))
        if self.artifacts:
            parts.append(f"Files made or changed: {', '.join(_file(artifact) for artifact in self.artifacts)}")
        return parts[0] if len(parts) == 1 else "\n\n".join([parts[0].rstrip(), *parts[1:]])

    def _result_in_words(self) -> str:
        if self.rejected:
            return self.refusal
        if not self.blocks:
            return "Nothing was run."
        if self.outcome is Outcome.OK:
            return self.output if self.output.strip() else _NO_OUTPUT
        output = self.output if self.output.strip() else "(nothing)"
        if self.incomplete:
            return f"Only the complete blocks were run. Their output was:\n{output}"
        if self.outcome is Outcome.TIMEOUT:
            return f"The script took too long and was stopped. Its output until then was:\n{output}"
        if self.outcome is Outcome.CANCELLED:
            return f"The script was stopped from outside. Its output until then was:\n{output}"
        if self.outcome is Outcome.MEMORY:
            return f"The script wanted more memory than it may have and was stopped. Its output was:\n{output}"
        return (
            f"The script ran, then exited with an error (POSIX exit code: {self.exit_code})\nIts output was:\n{output}"
        )


def calls_made(calls: Sequence[FunctionCall]) -> str:
    """Describe function calls, which cannot be undone, for a model."""
    shown = [f"- {call}" for call in calls[:_MOST_CALLS]]
    if len(calls) > len(shown):
        shown.append(f"- and {len(calls) - len(shown):,} more")
    return "\n".join(["These calls of functions were made before that, and are not undone:", *shown])


def _file(artifact: Artifact) -> str:
    return f"{artifact.name} ({artifact.media_type}, {artifact.size:,} bytes)"


_MOST_CALLS = 20
_CANCELLED_CODE = 125
_OUTPUT_UNKNOWN = "(not known)"
_TAGGED = "Code in <execute> tags is not run here. Put it into a fenced block with its language, as in ```python."
_NO_OUTPUT = (
    "The script ran but produced no output to console. The POSIX exit code was: 0. If you were expecting output, "
    "consider revising the script to ensure content is printed to stdout."
)


class CodeRunner:
    """Asks for approval, runs the selected code and returns the attempt.

    Args:
        executor: Where code runs; it is started on first use.
        approval: Is asked before code runs; `None` for no approval.
        max_output_chars: The most characters of output for the model; the whole output is kept in a file.

    Attributes:
        last_attempt: The last attempt, as far as known if it was cancelled; `None` if its code was not started.

    Raises:
        ValueError: `max_output_chars` is below 200.
    """

    def __init__(
        self, executor: CodeExecutor, approval: Approval | ApprovalFuncType | None, max_output_chars: int
    ) -> None:
        if max_output_chars < 200:
            raise ValueError(f"max_output_chars must be 200 or more, not {max_output_chars}.")
        self.executor = runner_for(executor)
        self._given = executor
        self._approval = approval
        self._max_output_chars = max_output_chars
        # For whole outputs, if the executor has no folder on this machine.
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._mark: Any = None
        self.last_attempt: Attempt | None = None

    def ask_instead(self, approval: Approval) -> Approval | ApprovalFuncType | None:
        """Replace the approval and return the previous one."""
        own, self._approval = self._approval, approval
        return own

    async def attempt(
        self,
        number: int,
        selection: Selection,
        context: Sequence[LLMMessage],
        cancellation_token: CancellationToken,
        on_output: Callable[[OutputChunk], None] | None = None,
    ) -> Attempt:
        """Run the selected blocks as attempt `number`.

        Args:
            number: The attempt's number, counted from 1.
            selection: What to run.
            context: The conversation, for the approval.
            cancellation_token: Ends the run.
            on_output: Called with output while the code runs, if the executor supports that.

        Raises:
            SandboxUnavailable: The executor broke.
            asyncio.CancelledError: The token was cancelled; nothing is left running.
        """
        blocks, notes = selection.blocks, selection.notes
        self.last_attempt = None
        if not blocks:
            return Attempt(
                number, (), Outcome.ERROR, 1, "", notes, incomplete=selection.cut, left_out=selection.left_out
            )
        refusal = await self._refusal(selection, context, cancellation_token)
        if refusal is not None:
            return Attempt(number, blocks, Outcome.REJECTED, 1, "", notes, reason=refusal)
        try:
            result = await self.executor.run(blocks, cancellation_token, on_output)
        except asyncio.CancelledError:
            known = getattr(self._given, "interrupted", None) or ExecutionResult(
                Outcome.CANCELLED, _CANCELLED_CODE, output=_OUTPUT_UNKNOWN
            )
            self.last_attempt = self._to_attempt(number, selection, known)
            raise
        self.last_attempt = self._to_attempt(number, selection, result)
        return self.last_attempt

    def _to_attempt(self, number: int, selection: Selection, result: ExecutionResult) -> Attempt:
        blocks, notes = selection.blocks, selection.notes
        if result.outcome is Outcome.REJECTED:
            reason, code = result.output.strip(), result.exit_code
            return Attempt(number, blocks, Outcome.REJECTED, code, "", notes, reason=reason, by_policy=True)
        output, output_file = self._bound(result)
        outcome, exit_code = result.outcome, result.exit_code
        incomplete = selection.cut and outcome is Outcome.OK
        if incomplete:
            outcome, exit_code = Outcome.ERROR, 1
        return Attempt(
            number,
            blocks,
            outcome,
            exit_code,
            output,
            notes,
            output_file,
            incomplete=incomplete,
            left_out=selection.left_out,
            artifacts=result.artifacts,
            calls=result.calls,
            state_lost=result.state_lost,
        )

    async def keep_state(self, cancellation_token: CancellationToken) -> None:
        """Save the executor's state, unless this turn has saved it already.

        Raises:
            RequestError: There are too many files.
            SandboxUnavailable: The executor broke.
        """
        if self._mark is None:
            await await_with_token(self.executor.start(), cancellation_token)
            self._mark = await await_with_token(self._checkpoints.checkpoint(), cancellation_token)

    async def undo(self, cancellation_token: CancellationToken) -> str:
        """Restore the state that this turn has saved.

        Returns:
            What was restored, in words; empty if no state was saved.

        Raises:
            SandboxUnavailable: The executor broke.
        """
        return (
            ""
            if self._mark is None
            else await await_with_token(self._checkpoints.rollback(self._mark), cancellation_token)
        )

    async def release_state(self) -> None:
        """Release the saved state; the turn is over."""
        mark, self._mark = self._mark, None
        if mark is not None:
            await self._checkpoints.release(mark)

    @property
    def _checkpoints(self) -> Checkpoints:
        executor = self._given
        if not isinstance(executor, Checkpoints):
            raise RequestError(f"The code executor {type(executor).__name__!r} cannot go back to earlier states.")
        return executor

    def _own_folder(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="coderoom-", ignore_cleanup_errors=True)
        return Path(self._folder.name)

    async def close(self) -> None:
        """Stop the executor, remove saved outputs and close the approval."""
        await self.executor.stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        if isinstance(self._approval, Approval):
            await self._approval.close()

    async def _refusal(
        self, selection: Selection, context: Sequence[LLMMessage], cancellation_token: CancellationToken
    ) -> str | None:
        if self._approval is None:
            return None
        code = "\n\n".join(fence(block.code, block.language) for block in selection.blocks)
        request = ApprovalRequest(code=code, context=list(context))
        response = await await_with_token(ask_approval(self._approval, request), cancellation_token)
        return None if response.approved else response.reason or "no reason was given"

    def _bound(self, result: ExecutionResult) -> tuple[str, Path | None]:
        limit, output = self._max_output_chars, result.output
        if len(output) <= limit:
            return output, None
        folder = self.executor.work_dir
        path = self._save(output, folder)
        # Relative to the folder: behind a wall the code sees it at another path.
        named = path.relative_to(folder) if folder is not None and path.is_relative_to(folder) else path
        total = max(len(output), result.output_size) if result.truncated else len(output)
        return bound_output(output, limit, whole=named, total=total, partly=result.truncated), path

    def _save(self, output: str, folder: Path | None) -> Path:
        if folder is not None:
            with contextlib.suppress(OSError):  # The code may have filled the disk.
                return save_output(output, folder)
        return save_output(output, self._own_folder())
