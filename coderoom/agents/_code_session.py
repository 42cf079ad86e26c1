"""The session of a `CodeActAgent`: its functions, its cells, and how it comes back after a pause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autogen_core import CancellationToken
from autogen_core.models import LLMMessage

from coderoom.agents._attempt import Attempt, Selection
from coderoom.agents._code_act_config import OnError, PastCell
from coderoom.agents._code_runner import CodeRunner
from coderoom.executors import SandboxCodeExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import CallRecorder, HostFunction, OutputChunk, host_functions

__all__ = ["CodeSession"]


class CodeSession:
    """Runs an agent's cells, and remembers those that ran well.

    Args:
        executor: Where the cells run.
        runner: Runs them.
        offered: What they may call: functions, tools and workbenches.
        on_error: Whether what a failed cell did is kept or undone.
    """

    def __init__(
        self, executor: SandboxCodeExecutor, runner: CodeRunner, offered: Sequence[Any], on_error: OnError
    ) -> None:
        self._executor = executor
        self._runner = runner
        self._offered = list(offered)
        self._on_error = on_error
        self._recorder = CallRecorder()
        self._functions: tuple[HostFunction, ...] | None = None
        self._cells: list[PastCell] = []
        self._to_restore = False

    @property
    def cells(self) -> list[PastCell]:
        """The cells that ran well since the beginning."""
        return list(self._cells)

    async def functions(self) -> tuple[HostFunction, ...]:
        """What the cells may call; workbenches are asked for their tools the first time."""
        if self._functions is None:
            functions = await host_functions(self._offered)
            await self._executor.offer([self._recorder.wrap(function) for function in functions])
            self._functions = functions
        return self._functions

    async def run(
        self,
        number: int,
        selection: Selection,
        context: Sequence[LLMMessage],
        cancellation_token: CancellationToken,
        on_output: Callable[[OutputChunk], None],
    ) -> Attempt:
        """Run the blocks of a reply; what a failure left behind is undone, if that is wanted."""
        if self._on_error == "rollback":
            await self._runner.keep_state(cancellation_token)
        self._recorder.take()
        try:
            attempt = await self._runner.attempt(number, selection, context, cancellation_token, on_output)
            if attempt.outcome is Outcome.OK:
                self._cells.append(PastCell(blocks=list(attempt.blocks), calls=self._recorder.take()))
            elif attempt.ran and self._on_error == "rollback":
                undone = await self._runner.undo(cancellation_token)
                attempt = replace(attempt, notes=(*attempt.notes, _UNDONE.format(undone=undone)))
        finally:
            await self._runner.let_go()
        return attempt

    def load(self, cells: Sequence[PastCell]) -> None:
        """Let the next use begin with these cells."""
        self._cells = list(cells)
        self._to_restore = bool(cells)

    async def restore(self, cancellation_token: CancellationToken) -> str:
        """Run the loaded cells again, if that has not been done; functions of the host are not called again.

        Returns:
            What did not come back, in words for a model; empty if all did.
        """
        if not self._to_restore:
            return ""
        self._to_restore = False
        cells, self._cells = self._cells, []
        await self._runner.executor.restart()
        lost: list[str] = []
        try:
            for number, cell in enumerate(cells, 1):
                self._recorder.answer_from(cell.calls)
                execution = await self._runner.executor.run(cell.blocks, cancellation_token)
                if execution.outcome is Outcome.OK:
                    self._cells.append(cell)
                else:
                    lines = execution.output.strip().splitlines() or ["no output"]
                    lost.append(f"cell {number} ended with {execution.outcome.value!r} ({lines[-1][:200]})")
        finally:
            self._recorder.answer_from(None)
        return "" if not lost else _NOT_RESTORED.format(count=len(cells), lost="; ".join(lost))

    async def close(self) -> None:
        """Stop the executor; if it is used again, the cells are run again first."""
        self._to_restore = bool(self._cells)
        await self._runner.close()

    async def reset(self) -> None:
        """Go back to the beginning."""
        self._cells = []
        self._to_restore = False
        await self._runner.executor.restart()


_UNDONE = "The failed code was undone: {undone} are as they were before it, and nothing that it made of them is left."
_NOT_RESTORED = (
    "The session was started anew, and the {count} pieces of code that had run well before were run again, but not all "
    "with success: {lost}. What these had set is gone. Set it again before you use it."
)
