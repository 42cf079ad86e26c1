"""From selected blocks to an attempt: ask for approval, run, bound the output."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import LLMMessage

from coderoom._components import linked
from coderoom.agents._attempt import Attempt, Selection
from coderoom.approval import Approval, ApprovalFuncType, ApprovalRequest, ask_approval
from coderoom.blocks import fence
from coderoom.executors import Execution, ExecutorRunner, bound_output, save_output
from coderoom.outcome import Outcome

__all__ = ["CodeRunner"]


class CodeRunner:
    """Runs what an agent selected, if it may, and says how it went.

    Args:
        executor: Where code runs; it is started on first use.
        approval: Who is asked first, or `None` for nobody.
        max_output_chars: How many characters of output a model gets to see; the rest is kept in a file.
    """

    def __init__(
        self, executor: CodeExecutor, approval: Approval | ApprovalFuncType | None, max_output_chars: int
    ) -> None:
        self.executor = ExecutorRunner(executor)
        self._approval = approval
        self._max_output_chars = max_output_chars
        # For the outputs of an executor that works in no folder of this machine.
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def attempt(
        self,
        number: int,
        selection: Selection,
        context: Sequence[LLMMessage],
        cancellation_token: CancellationToken,
    ) -> Attempt:
        """Run the selected blocks as attempt `number`.

        Args:
            number: The attempt's number, counted from 1.
            selection: What to run.
            context: The conversation, for whoever decides on the approval.
            cancellation_token: Ends what runs.

        Raises:
            SandboxUnavailable: If the place where code runs broke.
            asyncio.CancelledError: If the token was cancelled; nothing is left running.
        """
        blocks, notes = selection.blocks, selection.notes
        if not blocks:
            return Attempt(
                number, (), Outcome.ERROR, 1, "", notes, incomplete=selection.cut, left_out=selection.left_out
            )
        refusal = await self._refusal(selection, context, cancellation_token)
        if refusal is not None:
            return Attempt(number, blocks, Outcome.REJECTED, 1, "", notes, reason=refusal)
        execution = await self.executor.run(blocks, cancellation_token)
        output, output_file = self._bound(execution)
        outcome, exit_code = execution.outcome, execution.exit_code
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
        )

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
        response = await linked(ask_approval(self._approval, request), cancellation_token)
        return None if response.approved else response.reason or "no reason was given"

    def _bound(self, execution: Execution) -> tuple[str, Path | None]:
        limit = self._max_output_chars
        if len(execution.output) <= limit and execution.whole_output is None:
            return execution.output, None
        whole = execution.whole_output
        if whole is None:
            whole = save_output(execution.output, self.executor.work_dir or self._own_folder())
        return bound_output(execution.output, limit, whole=whole, total=execution.total_chars), whole
