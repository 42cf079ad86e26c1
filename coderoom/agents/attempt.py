"""Choosing, approving and running the code of one attempt, and the messages about it. Used by all coding agents."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autogen_agentchat.messages import (
    BaseChatMessage,
    CodeExecutionEvent,
    CodeGenerationEvent,
    MultiModalMessage,
    TextMessage,
)
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import CreateResult, LLMMessage

from coderoom._util.text import named
from coderoom.agents import metadata as keys
from coderoom.agents.metadata import StopReason
from coderoom.approval import Approval, ApprovalFuncType, ApprovalRequest, approve_once
from coderoom.blocks import Block, extract_code_blocks, fence, normalize_language
from coderoom.executors import CodeSteps, bound_and_save
from coderoom.outcome import Outcome
from coderoom.sandbox import Artifact, ExecutionResult, FunctionCall, OutputChunk

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
    """Select the blocks in these languages, in fences or in `<execute>` tags, or without a `code_format` in both."""
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
        instead = self.reason if self.refusal else "" if self.blocks else "\n".join(self.notes)
        return CodeResult(exit_code=self.exit_code, output=instead or self.output)

    @property
    def ran(self) -> bool:
        """Whether anything was run at all."""
        return bool(self.blocks) and not self.refusal

    @property
    def refusal(self) -> str:
        """Why it was not allowed to run, in the words of AutoGen's agent; empty if it was allowed."""
        if self.outcome is not Outcome.REJECTED:
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
        made = [f"{each.name} ({each.media_type}, {each.size:,} bytes)" for each in self.artifacts]
        if made:
            parts.append(f"Files made or changed: {', '.join(made)}")
        return parts[0] if len(parts) == 1 else "\n\n".join([parts[0].rstrip(), *parts[1:]])

    def _result_in_words(self) -> str:
        if self.refusal:
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


_MOST_CALLS = 20
_TAGGED = "Code in <execute> tags is not run here. Put it into a fenced block with its language, as in ```python."
_NO_OUTPUT = (
    "The script ran but produced no output to console. The POSIX exit code was: 0. If you were expecting output, "
    "consider revising the script to ensure content is printed to stdout."
)


def report(summary: str, attempt: Attempt) -> str:
    """The final message of a turn: the model's words, then the code, the exit code and the output.

    The code is marked `no-run`, so that an agent that runs code found in messages does not run it again.
    """
    parts = [_whole(summary.strip())] if summary.strip() else []
    if attempt.ran:
        parts.append(f"Attempt {attempt.number}: {attempt.outcome}, exit code {attempt.exit_code}.")
    else:
        parts.append(f"Attempt {attempt.number} was not run. {attempt.refusal}".strip())
    parts += [fence(block.code, block.language, "no-run") for block in attempt.blocks]
    if attempt.output.strip():
        parts += ["Output:", fence(attempt.output, "text", "no-run")]
    if attempt.artifacts:
        parts.append(f"Files: {', '.join(named(artifact.name) for artifact in attempt.artifacts)}")
    return "\n\n".join([*parts, *attempt.notes])


def _whole(summary: str) -> str:
    # A fence without an end would contain the report after it.
    if all(block.closed for block in extract_code_blocks(summary)):
        return summary
    return fence(summary, "text", "no-run")


def facts(attempt: Attempt, stop_reason: StopReason | None = None) -> dict[str, str]:
    """An attempt as metadata, for programs."""
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
    if attempt.artifacts:
        listed = [
            {"name": item.name, "media_type": item.media_type, "path": None if item.path is None else str(item.path)}
            for item in attempt.artifacts
        ]
        found[keys.ARTIFACTS] = json.dumps(listed)
    if attempt.output_file is not None:
        found[keys.OUTPUT_FILE] = str(attempt.output_file)
    return found


def code_event(
    source: str, message_id: str, reply: CreateResult, attempt: int, blocks: Sequence[CodeBlock]
) -> CodeGenerationEvent:
    """The model has written code, as attempt number `attempt`."""
    return CodeGenerationEvent(
        id=message_id,
        retry_attempt=attempt - 1,
        content=str(reply.content),
        code_blocks=list(blocks),
        source=source,
        models_usage=reply.usage,
    )


def execution_event(source: str, attempt: Attempt) -> CodeExecutionEvent:
    """The code has run, or was rejected."""
    found = facts(attempt)
    if attempt.calls:
        found[keys.CALLS] = json.dumps([str(call) for call in attempt.calls[:_MOST_CALLS]])
    return CodeExecutionEvent(retry_attempt=attempt.number - 1, result=attempt.result, source=source, metadata=found)


def final_message(
    source: str, message_id: str, summary: CreateResult | None, attempt: Attempt, stop_reason: StopReason
) -> TextMessage:
    """The turn has ended; `summary` is the model's summary, if it was asked for one."""
    words = "" if summary is None else str(summary.content)
    return TextMessage(
        id=message_id,
        content=report(words, attempt),
        source=source,
        models_usage=None if summary is None else summary.usage,
        metadata=facts(attempt, stop_reason) | {keys.SUMMARY: words} | cut_of(summary),
    )


def cut_of(reply: CreateResult | None) -> dict[str, str]:
    """The metadata about a reply that the service has cut off."""
    if reply is None or reply.finish_reason not in ("length", "content_filter"):
        return {}
    return {keys.CUT: reply.finish_reason}


class CodeRunner:
    """Asks for approval, runs the selected code and returns the attempt.

    `last_attempt` is the last one, as far as known if it was cancelled; `None` if its code was not started.
    """

    def __init__(
        self,
        executor: CodeExecutor,
        approval: Approval | ApprovalFuncType | None,
        max_output_chars: int,
        *,
        can_undo: bool = False,
    ) -> None:
        if max_output_chars < 200:
            raise ValueError(f"max_output_chars must be 200 or more, not {max_output_chars}.")
        self.steps = CodeSteps(executor, can_undo=can_undo)
        self.executor = self.steps.executor
        self._given = executor
        self.approval = approval
        self._max_output_chars = max_output_chars
        # For whole outputs, if the executor has no folder on this machine.
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.last_attempt: Attempt | None = None

    async def attempt(
        self,
        number: int,
        selection: Selection,
        context: Sequence[LLMMessage],
        cancellation_token: CancellationToken,
        on_output: Callable[[OutputChunk], None] | None = None,
    ) -> Attempt:
        """Run the selected blocks as attempt `number`; the approval sees the conversation in `context`."""
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
            result = await self.steps.run(blocks, cancellation_token, on_output)
        except asyncio.CancelledError:
            unknown = ExecutionResult(Outcome.CANCELLED, 125, output="(not known)")
            known = getattr(self._given, "interrupted", None) or unknown
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

    async def close(self) -> None:
        """Stop the executor, remove saved outputs and close the approval."""
        await self.executor.stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        if isinstance(self.approval, Approval):
            await self.approval.close()

    async def _refusal(
        self, selection: Selection, context: Sequence[LLMMessage], cancellation_token: CancellationToken
    ) -> str | None:
        if self.approval is None:
            return None
        code = "\n\n".join(fence(block.code, block.language) for block in selection.blocks)
        request = ApprovalRequest(code=code, context=list(context))
        response = await approve_once(self.approval, request, cancellation_token)
        return None if response.approved else response.reason or "no reason was given"

    def _bound(self, result: ExecutionResult) -> tuple[str, Path | None]:
        if len(result.output) <= self._max_output_chars:
            return result.output, None
        folder = self.executor.work_dir
        if folder is not None:
            with contextlib.suppress(OSError):  # The code may have filled the disk.
                return bound_and_save(result, self._max_output_chars, folder)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="coderoom-", ignore_cleanup_errors=True)
        return bound_and_save(result, self._max_output_chars, Path(self._folder.name), is_shared=False)
