"""From selected blocks to an attempt: ask for approval, run, bound the output."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import LLMMessage

from coderoom._util.calls import await_with_token
from coderoom.agents.attempt import Attempt, Selection
from coderoom.approval import Approval, ApprovalFuncType, ApprovalRequest, ask_approval
from coderoom.blocks import fence
from coderoom.errors import RequestError
from coderoom.executors import Checkpoints, bound_output, runner_for, save_output
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult, OutputChunk

__all__ = ["CodeRunner"]


class CodeRunner:
    """Runs what an agent selected, if it may, and says how it went.

    Args:
        executor: Where code runs; it is started on first use.
        approval: Who is asked first, or `None` for nobody.
        max_output_chars: How many characters of output a model gets to see; the rest is kept in a file.

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
        # For the outputs of an executor that works in no folder of this machine.
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._mark: Any = None
        self._began = False

    def ask_instead(self, approval: Approval) -> Approval | ApprovalFuncType | None:
        """Ask somebody else, and return who was asked until now."""
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
            context: The conversation, for whoever decides on the approval.
            cancellation_token: Ends what runs.
            on_output: Called with what the code prints while it prints it, if the executor can tell.

        Raises:
            SandboxUnavailable: If the place where code runs broke.
            asyncio.CancelledError: If the token was cancelled; nothing is left running.
        """
        blocks, notes = selection.blocks, selection.notes
        self._began = False
        if not blocks:
            return Attempt(
                number, (), Outcome.ERROR, 1, "", notes, incomplete=selection.cut, left_out=selection.left_out
            )
        refusal = await self._refusal(selection, context, cancellation_token)
        if refusal is not None:
            return Attempt(number, blocks, Outcome.REJECTED, 1, "", notes, reason=refusal)
        self._began = True
        return self._as_attempt(number, selection, await self.executor.run(blocks, cancellation_token, on_output))

    def interrupted(self, number: int, selection: Selection) -> Attempt | None:
        """What is known of an attempt that was cancelled; `None` if nothing had been run yet."""
        if not self._began:
            return None
        result = getattr(self._given, "interrupted", None)
        return self._as_attempt(number, selection, result or ExecutionResult(Outcome.CANCELLED, 125))

    def _as_attempt(self, number: int, selection: Selection, result: ExecutionResult) -> Attempt:
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
        """Keep the executor's state, if this turn has not done so yet.

        Raises:
            RequestError: There is more than can be kept.
            SandboxUnavailable: If the place where code runs broke.
        """
        if self._mark is None:
            await await_with_token(self.executor.start(), cancellation_token)
            self._mark = await await_with_token(self._checkpoints.checkpoint(), cancellation_token)

    async def undo(self, cancellation_token: CancellationToken) -> str:
        """Go back to the state that was kept in this turn.

        Returns:
            What is as it was, in words; empty if no state was kept.

        Raises:
            SandboxUnavailable: If the place where code runs broke.
        """
        return (
            ""
            if self._mark is None
            else await await_with_token(self._checkpoints.rollback(self._mark), cancellation_token)
        )

    async def let_go(self) -> None:
        """Keep the state no longer: the turn is over."""
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
        """Stop the executor, and let go of what the approval and the outputs hold."""
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
        # By the name that also works for the code: behind a wall the folder is elsewhere.
        named = path.relative_to(folder) if folder is not None and path.is_relative_to(folder) else path
        total = max(len(output), result.output_size) if result.truncated else len(output)
        return bound_output(output, limit, whole=named, total=total, partly=result.truncated), path

    def _save(self, output: str, folder: Path | None) -> Path:
        if folder is not None:
            with contextlib.suppress(OSError):  # It is the code's folder, which may have left no room.
                return save_output(output, folder)
        return save_output(output, self._own_folder())
