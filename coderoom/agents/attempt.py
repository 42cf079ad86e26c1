"""Choosing, approving and running the code of one attempt. Used by all coding agents."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from autogen_agentchat.messages import BaseChatMessage, MultiModalMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import LLMMessage
from pydantic import TypeAdapter

from coderoom._util.files import write_inside
from coderoom._util.tasks import aside, await_with_token, is_large
from coderoom._util.text import bound_output, counted, output_name, save_output, visible
from coderoom.agents.replay import PastCell, digest_of, run_again
from coderoom.approval import (
    Approval,
    ApprovalFuncType,
    ApprovalRequest,
    Edited,
    FinalNo,
    approve_once,
    edited_blocks,
)
from coderoom.blocks import Block, extract_code_blocks, fence, normalize_language, split_thoughts, without_thoughts
from coderoom.errors import RequestError
from coderoom.executors import runner_for
from coderoom.outcome import Outcome
from coderoom.sandbox import Artifact, ExecutionResult, FunctionCall, OnOutput
from coderoom.steps import CODE, branch, cell, note, once

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
    """The texts of a message that may contain code, without a model's thoughts.

    The texts around a picture are separate. In a person's message, a tag of thoughts is text.
    """
    if isinstance(message, MultiModalMessage):
        texts = [part for part in message.content if isinstance(part, str)]
    else:
        texts = [message.to_model_text()]
    return texts if message.source == "user" else [without_thoughts(text) for text in texts]


def select_from_reply(reply: str, find_code: Callable[[str], Selection]) -> Selection:
    """Select the blocks of a model's reply; code in its thoughts is a draft and no code to run."""
    spoken, lone = split_thoughts(reply)
    selection = find_code(spoken)
    is_closed = lone.startswith("</")
    # Many models write the closing tag only. This needs no words as long as code follows.
    if not lone or (is_closed and selection.is_code) or not (draft := find_code(reply)).is_code:
        return selection
    left_out = tuple(block.code for block in draft.blocks if block not in selection.blocks) + draft.left_out
    notes = (*selection.notes, _CLOSED_THOUGHT.format(lone) if is_closed else _OPEN_THOUGHT)
    return replace(selection, notes=notes, is_code=True, left_out=(*selection.left_out, *left_out))


def select_blocks(texts: Sequence[str], languages: Sequence[str], code_format: CodeFormat | None = None) -> Selection:
    """Select the blocks in these languages, in fences or in `<execute>` tags, or without a `code_format` in both."""
    known = {normalize_language(language) for language in languages}
    run: list[CodeBlock] = []
    notes: list[str] = []
    left_out: list[str] = []
    is_code = cut = False
    blocks = [block for text in texts for block in extract_code_blocks(text)]
    if len(blocks) > _MOST_BLOCKS:  # Which no model writes, and each one is shown, sent and kept.
        why = f"the text has {len(blocks):,} blocks, and {_MOST_BLOCKS:,} are read"
        blocks = [Block("code", "", tag="code", unclear=why)]
    if any(block.unclear and not block.no_run for block in blocks):
        return _unclear([block for block in blocks if not block.no_run], known)
    for block in blocks:
        is_for_running = block.language in known or (block.language != "" and not block.is_data)
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
            label = f"{block.language!r} " if block.language else ""
            closing = "</execute>" if block.tag == "execute" else "fence"
            notes.append(
                f"The {label}block at line {block.line} was not run: it is cut off, its closing {closing} is missing. "
                "Write it again as a whole, shorter if need be."
            )
        elif block.language in known:
            is_code = True
            run.append(CodeBlock(code=block.code, language=block.run_language))
        else:
            is_code = is_code or is_for_running
            left_out.append(block.code)
            what = f"it is labelled {block.tag!r}" if block.language else "it has no language"
            runs = ", ".join(languages)
            note = f"The block at line {block.line} was not run: {what}, and what runs here is {runs}."
            notes.append(f"{note} {_UNAPPLIED}" if block.language == "diff" else note)
    return Selection(tuple(run), _few(notes), is_code, cut, tuple(left_out))


def _unclear(blocks: Sequence[Block], known: Collection[str]) -> Selection:
    """Nothing runs if it cannot be told where a block ends: what looks like the next one may be a part of it."""
    notes = [
        f"Nothing was run, since the code cannot be told for sure: in the {block.tag or 'unlabelled'} block at line "
        f"{block.line}, {block.unclear}. Write all of the code again."
        for block in blocks
        if block.unclear
    ]
    is_code = any(block.language in known or (block.language and not block.is_data) for block in blocks)
    return Selection((), _few(notes), is_code, left_out=tuple(block.code for block in blocks))


def _few(notes: Sequence[str]) -> tuple[str, ...]:
    """The notes that a model may need; it could get as many as there are blocks."""
    more = len(notes) - _MOST_NOTES
    return (*notes[:_MOST_NOTES], *([f"{counted(more, 'more block')} were not run either."] if more > 0 else []))


@dataclass(frozen=True, kw_only=True)
class Attempt(ExecutionResult):
    """The result of code in a turn, with its output cut to the limit.

    Attributes:
        number: Which attempt of the turn this is, counted from 1.
        selection: What was run, or would have been run, and what was not, and why.
        output_file: The file with the whole output, if `output` is only its head and tail.
        reason: Why it was rejected.
        refusal: The same in a sentence; empty if it was allowed.
        is_final: Whether there is no other attempt after it was rejected.
        edited: Whether a person has edited the code before it ran.
        incomplete: Whether it succeeded but for the code that is missing.
        undone: Whether the files were restored after it.
    """

    number: int
    selection: Selection
    output_file: Path | None = None
    reason: str = ""
    refusal: str = ""
    is_final: bool = True
    edited: bool = False
    incomplete: bool = False
    undone: bool = False

    @property
    def blocks(self) -> tuple[CodeBlock, ...]:
        """What was run, or would have been run."""
        return self.selection.blocks

    @property
    def failure(self) -> str | None:
        """A fingerprint of the code and its failure, or `None` if it did not fail.

        Addresses, decimal numbers (times, for instance) and cell numbers are ignored: they differ between runs.
        """
        if self.outcome is Outcome.OK:
            return None
        # The file with the whole output has a new name each time.
        output = self.output.replace(self.output_file.name, "") if self.output_file else self.output
        error = re.sub(r"(?<!\d)\d++\.\d++", "#", output.strip())
        code = [f"{block.language}\n{block.code.strip()}" for block in self.blocks]
        return digest_of(error, self.outcome, str(self.exit_code), *code, *self.selection.left_out)

    @property
    def code_result(self) -> CodeResult:
        """The result as AutoGen's type, for events."""
        instead = self.reason if self.refusal else "" if self.blocks else "\n".join(self.selection.notes)
        return CodeResult(exit_code=self.exit_code, output=instead or self.output)

    def fenced(self) -> list[str]:
        """The blocks as Markdown. No agent that finds them runs them."""
        return [fence(block.code, block.language, "no-run") for block in self.blocks]

    @property
    def ran(self) -> bool:
        """Whether anything was run at all."""
        return bool(self.blocks) and not self.refusal

    def describe(self) -> str:
        """Describe what happened, for a model.

        The sentences about exit codes and approval are those of AutoGen's agent, since its users may search for them.
        """
        parts = [self._result_in_words(), *self.selection.notes]
        if self.edited:
            parts.insert(0, "\n\n".join([EDITED, *self.fenced()]))
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
    shown = [f"- {call}" for call in calls[:MOST_CALLS]]
    if len(calls) > len(shown):
        shown.append(f"- and {len(calls) - len(shown):,} more")
    return "\n".join(["These calls of functions were made before that, and are not undone:", *shown])


MOST_CALLS = 20
EDITED = "A person has edited the code. It is now:"
_NOT_A_SENTENCE = re.compile(r"\n|```|~~~|<")
_OPEN_THOUGHT = (
    "The code in your thoughts was not run, and the tag of these thoughts is never closed. Close it, and write the "
    "code that is to run after it."
)
_CLOSED_THOUGHT = (
    "The code before {} was not run: before a closing tag without an opening one, all is thought. Write the code that "
    "is to run after the tag, or without one."
)
_MOST_NOTES = 20
_LONGEST_DIFF = 20_000
_CACHE = re.compile(
    r'diff --git "?a/(?:[^\n]*/)?(?:__pycache__|\.(?:(?:pytest|mypy|ruff)_cache|hypothesis|coderoom))/'
    r"[^\n]*\nnew file mode "
)
_MOST_BLOCKS = 1_000
_TAGGED = "Code in <execute> tags is not run here. Put it into a fenced block with its language, as in ```python."
_UNAPPLIED = "No diff is applied here: write code that changes the files."
_NO_OUTPUT = (
    "The script ran but produced no output to console. The POSIX exit code was: 0. If you were expecting output, "
    "consider revising the script to ensure content is printed to stdout."
)


class CodeRunner:
    """Runs the code of one agent: asks for approval, runs the selected blocks, and makes an attempt of the result.

    In a resumed run, code that has run before has the same result and is not run again, as long as nobody needs its
    variables. Before the first new code in a session, it is run again, without new calls of functions of the host.

    Args:
        given: Where the code runs; `executor` is what starts, runs and stops it without approval.
        approval: Is asked before code runs.
        max_output_chars: The most characters of an attempt's output.
        can_undo: Whether the state before the code is saved, so that failed code can be undone.

    Attributes:
        last_attempt: The last one, as far as known if it was cancelled; `None` if its code was not started.
        branchings: How often the session has become one of its forks since it began.
    """

    def __init__(
        self,
        given: CodeExecutor,
        approval: Approval | ApprovalFuncType | None,
        max_output_chars: int,
        *,
        can_undo: bool = False,
    ) -> None:
        if max_output_chars < 200:
            raise ValueError(f"max_output_chars must be 200 or more, not {max_output_chars}.")
        self.executor = runner_for(given)
        self.given: Any = given
        self.approval = approval
        self.max_output_chars = max_output_chars
        self.can_undo = can_undo
        self.last_attempt: Attempt | None = None
        self.branchings = 0
        # For whole outputs, if the executor has no folder on this machine.
        self._folders: list[tempfile.TemporaryDirectory[str]] = []
        # The state before the code that `undo` undoes, and how many of the known cells had run before it.
        self._mark: Any = None
        # What was saved since, by paths.
        self._texts: dict[str, bytes] = {}
        self._before: int | None = None
        # The cells whose results are known from before the run was resumed, with their names and branches.
        self._past: list[tuple[str, str, PastCell]] = []
        self._has_run = False
        self._count = 0

    async def attempt(
        self,
        number: int,
        selection: Selection,
        context: Sequence[LLMMessage],
        cancellation_token: CancellationToken,
        on_output: OnOutput | None = None,
    ) -> Attempt:
        """Run the selected blocks as attempt `number`; the approval sees the conversation in `context`."""
        self.last_attempt = None
        if not selection.blocks:
            return Attempt(Outcome.ERROR, 1, number=number, selection=selection)
        is_edited = False
        if self.approval is not None:
            # What is asked about is what runs, whatever readers of the stream do with these blocks meanwhile.
            selection = replace(selection, blocks=tuple(replace(block) for block in selection.blocks))
            code = "\n\n".join(fence(block.code, block.language) for block in selection.blocks)
            request = ApprovalRequest(code=code, context=list(context))
            response = await approve_once(self.approval, request, cancellation_token)
            if isinstance(response, Edited):
                try:
                    blocks = edited_blocks(response.code, code)
                except ValueError as error:
                    return _refused(number, selection, f"The code was edited, and cannot run as it is then. {error}")
                made = tuple(CodeBlock(code=block.code, language=block.run_language) for block in blocks)
                is_edited, selection = made != selection.blocks, replace(selection, blocks=made)
            elif not response.approved:
                return _refused(number, selection, response.reason, is_final=isinstance(response, FinalNo))
        try:
            result = await self._run(selection.blocks, cancellation_token, on_output)
        except asyncio.CancelledError:
            unknown = ExecutionResult(Outcome.CANCELLED, 125, output="(not known)")
            known = getattr(self.given, "interrupted", None) or unknown
            self.last_attempt = replace(self._to_attempt(number, selection, known), edited=is_edited)
            raise
        large, saved = is_large(result.output), await self._put(result.output)
        attempt = await aside(self._to_attempt, number, selection, result, saved, large=large)
        self.last_attempt = replace(attempt, edited=is_edited)
        return self.last_attempt

    async def run_given(
        self,
        blocks: Sequence[CodeBlock],
        cancellation_token: CancellationToken,
        on_output: OnOutput | None = None,
        *,
        kept: bool = True,
    ) -> ExecutionResult:
        """Run code that a person has written, without approval; see `CodingAgent.run_given`."""
        if not kept:
            await self.catch_up(cancellation_token)
            return await self.executor.run(blocks, cancellation_token, on_output)
        try:
            return await self._run(blocks, cancellation_token, on_output)
        finally:
            await self.release()

    def state(self) -> tuple[Any, ...]:
        """What has run so far, for `go_back`."""
        return list(self._past), self._has_run, self._count, self.branchings

    def go_back(self, state: tuple[Any, ...]) -> None:
        """Go on from a `state`, which the executor has again."""
        past, self._has_run, self._count, self.branchings = state
        self._past, self.last_attempt = list(past), None

    async def undo(self, cancellation_token: CancellationToken) -> str:
        """Undo the code since the last `release`; return what was restored, in words, and nothing if nothing was."""

        async def restore() -> str:
            if self._mark is None:
                return "variables" if known else ""
            restored: str = await await_with_token(self.given.rollback(self._mark), cancellation_token)
            for name, data in self._texts.items():  # The conversation names them.
                with contextlib.suppress(OSError, RequestError):
                    await self.given.put(name, data)
            return restored

        if not self.can_undo:
            return ""
        known = bool(self._past[self._before or 0 :])
        del self._past[self._before or 0 :]
        return await once("undo", {}, restore, str, str)

    @property
    def is_current(self) -> bool:
        """Whether the executor has the state of all code so far, of which no results are only known."""
        return self._has_run and not self._past

    def go_on(self, branch: CodeRunner) -> None:
        """Go on from what a branch has run: the executor has its state, but for code whose results are only known."""
        self.last_attempt, self._count = branch.last_attempt, branch._count
        self.branchings += 1
        lost = branch.last_attempt is not None and branch.last_attempt.state_lost
        self._past = [] if lost else [*self._past, *branch._past]
        self._mark = self._before = None

    def placed(self, artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
        """The files of a branch in the executor's folder, which has them now."""
        folder = None if self._is_overlaid else self.executor.work_dir
        return tuple(each if folder is None else replace(each, path=folder / each.name) for each in artifacts)

    async def release(self) -> None:
        """Keep the code that has run; `undo` does not undo it any more."""
        mark, self._mark, self._before = self._mark, None, None
        self._texts.clear()
        if mark is not None:
            await self.given.release(mark)

    async def restart(self) -> None:
        """Begin the session anew: the code before it is not run again."""
        self._past, self.branchings = [], 0
        await self.executor.restart()

    async def close(self) -> None:
        """Stop the executor, remove saved outputs and close the approval."""
        await self.executor.stop()
        while self._folders:
            self._folders.pop().cleanup()
        if isinstance(self.approval, Approval):
            await self.approval.close()

    async def _run(
        self, blocks: Sequence[CodeBlock], cancellation_token: CancellationToken, on_output: OnOutput | None
    ) -> ExecutionResult:
        """Run blocks as a step of the run."""

        async def run() -> ExecutionResult:
            await self.catch_up(cancellation_token)
            if self.can_undo and self._mark is None:
                await await_with_token(self.executor.start(), cancellation_token)
                self._mark = await await_with_token(self.given.checkpoint(), cancellation_token)
            cell.set(name)
            self._has_run = True
            return await self.executor.run(blocks, cancellation_token, on_output)

        def load(found: Any) -> ExecutionResult:
            result = _RESULT.validate_python(found)
            past = PastCell(blocks=list(blocks), outcome=result.outcome).with_output(result.output)
            is_lost = result.state_lost and not self._is_overlaid  # Changes of an overlay are not.
            self._past = [] if is_lost else [*self._past, (name, branch.get(), past)]
            return result

        if self._before is None:
            self._before = len(self._past)
        self._count += 1
        request = {"blocks": [[block.language, block.code] for block in blocks]}
        name = hashlib.sha256(f"{branch.get()}{self._count} {request}".encode("utf-8", "replace")).hexdigest()[:16]
        return await once(CODE, request, run, _dump, load)

    async def catch_up(self, cancellation_token: CancellationToken) -> None:
        """Run the code again whose results are known, since its variables or its changes are needed."""
        past, self._past, self._before = self._past, [], 0
        if not past or not (getattr(self.given, "state", None) == "session" or self._is_overlaid):
            return
        here = branch.get()
        for name, there, before in past:
            cell.set(name)
            branch.set(there)  # The calls of functions that it made are known as those of its branch.
            try:
                again = await run_again(before, self.executor, cancellation_token)
            finally:
                branch.set(here)
            if again.cell is None:
                note(f"What earlier code had set is lost: {again.remark}.")
            elif again.remark:
                note(f"Run again, {again.remark}.")
        note(
            f"To have again what it had set or changed, code that had run before was run again ({len(past)}), without "
            "calling functions again."
        )

    async def changes(self, cancellation_token: CancellationToken) -> str:
        """What the code has changed in a workspace that stays as it is, as a diff that is not too long."""
        if not (self._count and self._is_overlaid):
            return ""

        async def diff() -> str:
            await self.catch_up(cancellation_token)
            patch = await await_with_token(self.given.diff(), cancellation_token)
            parts = re.split(r"^(?=diff --git )", str(patch), flags=re.M)
            return bound_output("".join(each for each in parts if not _CACHE.match(each)), _LONGEST_DIFF)

        return await once("changes", {}, diff, str, str)

    async def keep(self, text: str) -> Path:
        """Save a part of the conversation for the code to read; return its path there."""
        data = text.encode("utf-8", "replace")
        name = output_name(data, "earlier")
        with contextlib.suppress(OSError, RequestError):  # The code may have filled the disk.
            if hasattr(self.given, "put"):
                await self.given.put(name, data)
                self._note_text(name, data)
                return Path(name)
            if self.executor.work_dir is not None:
                await asyncio.to_thread(write_inside, self.executor.work_dir, name, data)
                return Path(name)
        return await asyncio.to_thread(write_inside, self._own_folder(), name, data)

    async def _put(self, output: str) -> Path | None:
        """Save a long output in a workspace that stays as it is; return its path for the code."""
        if not self._is_overlaid or len(output) <= self.max_output_chars:
            return None
        data = output.encode("utf-8", "replace")
        with contextlib.suppress(OSError, RequestError):
            await self.given.put(output_name(data), data)
            self._note_text(output_name(data), data)
            return Path(output_name(data))
        return None

    def _note_text(self, name: str, data: bytes) -> None:
        if self._mark is not None:
            self._texts[name] = data

    @property
    def _is_overlaid(self) -> bool:
        return getattr(self.given, "workspace_mode", "direct") == "overlay"

    def _own_folder(self) -> Path:
        """A folder for what the executor's has no place for."""
        if not self._folders:
            self._folders.append(tempfile.TemporaryDirectory(prefix="coderoom-", ignore_cleanup_errors=True))
        return Path(self._folders[0].name)

    def _to_attempt(
        self, number: int, selection: Selection, result: ExecutionResult, saved: Path | None = None
    ) -> Attempt:
        known: dict[str, Any] = {**vars(result), "number": number, "selection": selection}
        if result.outcome is Outcome.REJECTED:
            reason = result.output.strip()
            refusal = f"The sandbox's policy does not allow this code.\n{reason}"
            return Attempt(**known | {"output": ""}, reason=reason, refusal=refusal)
        known["output"], known["output_file"] = self._bound(result, saved)
        if selection.cut and result.outcome is Outcome.OK:
            known |= {"outcome": Outcome.ERROR, "exit_code": 1, "incomplete": True}
        return Attempt(**known)

    def _bound(self, result: ExecutionResult, saved: Path | None) -> tuple[str, Path | None]:
        """The output up to the limit, which names the file with the whole, and that file on this machine."""
        output = result.output
        if len(output) <= self.max_output_chars:
            return output, None
        path, named = None, saved
        if (folder := self.executor.work_dir) is not None and not self._is_overlaid:
            with contextlib.suppress(OSError):  # The code may have filled the disk.
                path = save_output(output, folder)
                named = path.relative_to(folder)  # Behind a wall, the code sees the folder at another path.
                self._note_text(str(named), output.encode("utf-8", "replace"))
        if path is None:
            path = save_output(output, self._own_folder())
            named = named or path
        total = max(len(output), result.output_size) if result.truncated else len(output)
        return bound_output(output, self.max_output_chars, whole=named, total=total, partly=result.truncated), path


def _refused(number: int, selection: Selection, reason: str, *, is_final: bool = True) -> Attempt:
    reason = visible(reason)
    # Nothing in a reason is code, or looks like output.
    quoted = f"\n{fence(reason, 'text', 'no-run')}" if _NOT_A_SENTENCE.search(reason) else reason
    refusal = f"Code execution was not approved. Reason: {quoted}"  # In the words of AutoGen's agent.
    return Attempt(
        Outcome.REJECTED, 1, number=number, selection=selection, reason=reason, refusal=refusal, is_final=is_final
    )


_RESULT = TypeAdapter(ExecutionResult)


def _dump(result: ExecutionResult) -> Any:
    # Agents read the output, which has the texts that are left out; the value is for callers of the sandbox.
    left_out: Any = {
        **dict.fromkeys(("value", "value_is_data", "value_repr", "code", "stdout", "stderr"), True),
        "error": {"traceback"},
        "artifacts": {"__all__": {"data"}},
    }
    return _RESULT.dump_python(result, mode="json", exclude=left_out, fallback=str)
