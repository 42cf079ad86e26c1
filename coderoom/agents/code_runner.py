"""`CodeRunner`: approves and runs the code of one agent. Used by all coding agents."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_core.models import LLMMessage

from coderoom._util.autogen import current_agent
from coderoom._util.files import write_inside
from coderoom._util.tasks import aside, await_with_token, is_large, run_uncancellable
from coderoom._util.text import bound_output, output_name, save_output
from coderoom.agents.attempt import Attempt, refused
from coderoom.agents.inverses import Functions, Made, Undone, no_functions, undo
from coderoom.agents.replay import PastCell, SessionPast, as_before, dump_result, load_result, run_again
from coderoom.agents.selection import Selection
from coderoom.agents.shared_session import SharedSession
from coderoom.approval import (
    Approval,
    ApprovalFuncType,
    ApprovalRequest,
    CallingCode,
    Edited,
    FinalNo,
    approve_once,
    calling,
    edited_blocks,
)
from coderoom.blocks import fence
from coderoom.errors import RequestError
from coderoom.executors import runner_for
from coderoom.outcome import Outcome
from coderoom.sandbox import Artifact, CallRecorder, ExecutionResult, FunctionCall, OnOutput, RecordedCall
from coderoom.steps import CODE, branch, cell, note, once

_LONGEST_DIFF = 20_000
_CACHE = re.compile(
    r'diff --git "?a/(?:[^\n]*/)?(?:__pycache__|\.(?:(?:pytest|mypy|ruff)_cache|hypothesis|coderoom))/'
    r"[^\n]*\nnew file mode "
)


RunBlocks = Callable[[Sequence[CodeBlock], CancellationToken, OnOutput | None], Awaitable[ExecutionResult]]


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
        past: What has run in the session.
        early: Runs blocks whose beginning runs already, in place of the executor.
        mark: The state before the code that `undo` undoes, if it is saved.
        shared: The session that other agents use, too; `None`: it is only this one's.
        recorder: Has what is recorded of the calls of functions that the last code has made.
        functions: The functions that undo them.
        records: What was recorded of the last code's calls.
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
        self.past = SessionPast()
        self.early: RunBlocks | None = None
        self.shared: SharedSession | None = None
        self.recorder = CallRecorder()
        self.functions: Callable[[], Awaitable[Functions]] = no_functions
        self.records: Sequence[RecordedCall] = ()
        self._reader = object()
        # For whole outputs, if the executor has no folder on this machine.
        self._folders: list[tempfile.TemporaryDirectory[str]] = []
        self.mark: Any = None
        # What was saved since, by paths.
        self._texts: dict[str, bytes] = {}
        # How many of the known cells had run, and how much code had made calls, before the code that `undo` undoes.
        self._before: int | None = None
        self._made_before = 0
        # The same of the cells of a shared session.
        self._before_shared: int | None = None

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
                    return refused(number, selection, f"The code was edited, and cannot run as it is then. {error}")
                made = tuple(CodeBlock(code=block.code, language=block.run_language) for block in blocks)
                is_edited, selection = made != selection.blocks, replace(selection, blocks=made)
            elif not response.approved:
                return refused(number, selection, response.reason, is_final=isinstance(response, FinalNo))
        try:
            result = await self._run(selection.blocks, cancellation_token, on_output, context)
        except asyncio.CancelledError:
            known = self.past.known_of_cut(selection.blocks, self._interrupted)
            done = PastCell(blocks=list(selection.blocks), outcome=Outcome.CANCELLED, calls=list(self.records))
            self._remember(done, known.state_lost)
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

    def share(self, session: SharedSession) -> None:
        """Run the code in a session that other agents use, too, from the first code on."""
        self.given = self.executor = session.executor
        session.executor.has_owner = True
        self.shared, self.past = session, session.past
        self.recorder, self.functions = session.recorder, session.functions

    def news(self) -> str | None:
        """What the agent has to know about a shared session that was restored: what is lost; `None` if it was not."""
        return None if self.shared is None else self.shared.news_for(self._reader)

    def state(self) -> SessionPast:
        """What has run so far, for `go_back`."""
        return self.past.copy()

    def go_back(self, state: SessionPast) -> None:
        """Go on from a `state`, which the executor has again."""
        vars(self.past).update(vars(state.copy()))
        self.last_attempt = None

    async def undo(self, cancellation_token: CancellationToken) -> str:
        """Undo the code since the last `release`; return what was restored, in words, and nothing if nothing was."""

        async def restore() -> str:
            if self.mark is None:
                return "variables" if known else ""
            restored: str = await await_with_token(self.given.rollback(self.mark), cancellation_token)
            for name, data in self._texts.items():  # The conversation names them.
                with contextlib.suppress(OSError, RequestError):
                    await self.given.put(name, data)
            return restored

        if not self.can_undo:
            return ""
        known = bool(self.past.known[self._before or 0 :])
        del self.past.known[self._before or 0 :]
        if self._before_shared is not None:
            del self.past.cells[self._before_shared :]
        return await once("undo", {}, restore, str, str)

    async def undo_calls(self) -> Undone:
        """Undo the calls of functions that code has made since the last `release`."""
        made = self.past.take_made(self._made_before)
        undone = await run_uncancellable(undo(made, await self.functions()))
        if undone.left:
            self.past.made.append(Made.now(undone.left))
        return undone

    @property
    def is_current(self) -> bool:
        """Whether the executor has the state of all code so far, of which no results are only known."""
        return self.past.has_run and not self.past.known

    def go_on(self, branch: CodeRunner) -> None:
        """Go on from what a branch has run: the executor has its state, but for code whose results are only known."""
        self.last_attempt, self.past.count = branch.last_attempt, branch.past.count
        self.past.branchings += 1
        lost = branch.last_attempt is not None and branch.last_attempt.state_lost
        self.past.known = [] if lost else [*self.past.known, *branch.past.known]
        self.past.cells = branch.past.cells
        self.past.made += branch.past.made
        if lost:
            self._lose_variables()
        self.mark = self._before = self._before_shared = None

    def placed(self, artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
        """The files of a branch in the executor's folder, which has them now."""
        folder = None if self._is_overlaid else self.executor.work_dir
        return tuple(each if folder is None else replace(each, path=folder / each.name) for each in artifacts)

    async def release(self) -> None:
        """Keep the code that has run; `undo` does not undo it any more."""
        mark, self.mark, self._before, self._before_shared = self.mark, None, None, None
        self._texts.clear()
        if mark is not None:
            await self.given.release(mark)

    async def restart(self) -> None:
        """Begin the session anew: the code before it is not run again."""
        self.past.known, self.past.branchings, self.past.cells, self.past.to_restore = [], 0, [], False
        self._lose_variables()
        await self.executor.restart()

    async def close(self) -> None:
        """Stop the executor, remove saved outputs and close the approval."""
        await self.executor.stop()
        if self.shared is not None:
            self.shared.end()
        while self._folders:
            self._folders.pop().cleanup()
        if isinstance(self.approval, Approval):
            await self.approval.close()

    async def _run(
        self,
        blocks: Sequence[CodeBlock],
        cancellation_token: CancellationToken,
        on_output: OnOutput | None,
        context: Sequence[LLMMessage] = (),
    ) -> ExecutionResult:
        """Run blocks as a step of the run."""

        async def run() -> ExecutionResult:
            await self.prepare(cancellation_token)
            cell.set(name)
            calling.set(CallingCode(blocks, context))
            self.past.has_run = True
            calls: Sequence[FunctionCall] = ()
            try:
                result = await (self.early or self.executor.run)(blocks, cancellation_token, on_output)
                calls = result.calls
            except asyncio.CancelledError:
                calls = self._interrupted.calls
                raise
            finally:
                self._note_calls(calls, () if self.functions is no_functions else self.recorder.take())
            if self.shared is None:
                return result
            cell_run = PastCell(blocks=list(blocks), calls=list(self.records), outcome=result.outcome)
            self._remember(cell_run.with_output(result.output), result.state_lost)
            news = self.news()
            return replace(result, output=f"[{news}]\n{result.output}") if news else result

        def load(found: Any) -> ExecutionResult:
            result = load_result(found)
            past = PastCell(blocks=list(blocks), outcome=result.outcome).with_output(result.output)
            is_lost = result.state_lost and not self._is_overlaid  # Changes of an overlay are not.
            self.past.known = [] if is_lost else [*self.past.known, (name, branch.get(), current_agent(), past)]
            self._remember(past, result.state_lost)
            self._note_calls(result.calls, ())
            return result

        if self._before is None:
            self._before, self._made_before = len(self.past.known), len(self.past.made)
        self.past.count += 1
        request = {"blocks": [[block.language, block.code] for block in blocks]}
        name = hashlib.sha256(f"{branch.get()}{self.past.count} {request}".encode("utf-8", "replace")).hexdigest()[:16]
        return await once(CODE, request, run, dump_result, load)

    def _remember(self, done: PastCell, state_lost: bool) -> None:
        """Note code that has run in a session that agents share."""
        if self.shared is None:
            return
        if state_lost:
            self.past.cells = []
            self._lose_variables()
        if self._before_shared is None:
            self._before_shared = len(self.past.cells)
        if done.outcome is Outcome.OK or not state_lost:
            self.past.cells.append(done)

    @property
    def _interrupted(self) -> ExecutionResult:
        """What is known of code that a cancellation has ended."""
        unknown = ExecutionResult(Outcome.CANCELLED, 125, output="(not known)")
        return getattr(self.given, "interrupted", None) or unknown

    def _note_calls(self, calls: Sequence[FunctionCall], records: Sequence[RecordedCall]) -> None:
        self.records = records
        if calls or records:
            self.past.made.append(Made.now(calls, records))

    def _lose_variables(self) -> None:
        if self.shared is not None:
            self.shared.lose_variables()

    async def prepare(self, cancellation_token: CancellationToken) -> None:
        """Make the session ready for new code, and save its state if that may be undone."""
        await self.catch_up(cancellation_token)
        if self.can_undo and self.mark is None:
            await await_with_token(self.executor.start(), cancellation_token)
            self.mark = await await_with_token(self.given.checkpoint(), cancellation_token)

    async def catch_up(self, cancellation_token: CancellationToken) -> None:
        """Run the code again whose results are known, since its variables or its changes are needed."""
        if self.shared is not None:
            await self.shared.prepare(cancellation_token)
        past, self.past.known, self._before, here = self.past.known, [], 0, branch.get()
        if not past or not (getattr(self.given, "state", None) == "session" or self._is_overlaid):
            return
        for *context, before in past:
            with as_before(*context):
                if before.calls and not here:  # It has run again, and was undone: the journal gives each call once.
                    self.recorder.answer_from(before.calls)
                try:
                    again = await run_again(before, self.executor, cancellation_token)
                finally:
                    self.recorder.answer_from(None)
            before.calls = before.calls or self.recorder.take()
            if again.remark:
                note(f"{'What earlier code had set is lost:' if again.cell is None else 'Run again,'} {again.remark}.")
        count = sum(bool(before.blocks) for *_, before in past)
        note(
            f"To have again what it had set or changed, code that had run before was run again ({count}), without "
            "calling functions again."
        )

    async def changes(self, cancellation_token: CancellationToken) -> str:
        """What the code has changed in a workspace that stays as it is, as a diff that is not too long."""
        if not (self.past.count and self._is_overlaid):
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
        if self.mark is not None:
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
