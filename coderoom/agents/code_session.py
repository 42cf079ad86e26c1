"""The session of a `CodeActAgent`: its functions, its cells, and how it comes back after a pause."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal
from weakref import WeakKeyDictionary, ref

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_core.models import LLMMessage
from autogen_core.tools import Workbench
from pydantic import BaseModel, ConfigDict, Field

from coderoom._util.calls import await_with_token
from coderoom._util.tasks import run_uncancellable
from coderoom.agents.attempt import Attempt, CodeRunner, Selection, calls_made
from coderoom.agents.tools import Workbenches
from coderoom.errors import CodeRoomError, RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import CallRecorder, FunctionCall, HostFunction, OutputChunk, RecordedCall, host_functions

__all__ = ["CodeSession", "OnError", "PastCell"]

OnError = Literal["keep", "rollback"]

_BEGINNING = 500
_users: WeakKeyDictionary[SandboxCodeExecutor, ref[CodeSession]] = WeakKeyDictionary()


class PastCell(BaseModel):
    """A reply's code that ran well, with what the host answered it.

    Attributes:
        blocks: The blocks, in order.
        calls: The answers of host functions.
        output: The beginning of what it printed.
        output_digest: What the whole of it comes to; `None` if nobody knows.
    """

    model_config = ConfigDict(extra="forbid")

    blocks: list[CodeBlock]
    calls: list[RecordedCall] = Field(default_factory=list)
    output: str | None = None
    output_digest: str | None = None


class CodeSession:
    """Runs an agent's cells, and remembers those that ran well.

    Args:
        executor: Where the cells run.
        runner: Runs them.
        tools: Functions and tools that they may call.
        workbenches: Workbenches whose tools they may call.
        on_error: Whether what a failed cell did is kept or undone.
    """

    def __init__(
        self,
        executor: SandboxCodeExecutor,
        runner: CodeRunner,
        tools: Sequence[Any],
        workbenches: Sequence[Workbench],
        on_error: OnError,
    ) -> None:
        self._executor = executor
        self._runner = runner
        self._tools = list(tools)
        self._workbenches = Workbenches(workbenches)
        self._on_error = on_error
        self._recorder = CallRecorder()
        self._functions: tuple[HostFunction, ...] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cells: list[PastCell] = []
        self._failed = 0
        self._to_restore = False
        self._called: list[FunctionCall] = []
        self._forgotten: list[FunctionCall] = []

    async def functions(self) -> tuple[HostFunction, ...]:
        """What the cells may call; workbenches are asked for their tools the first time.

        Raises:
            RequestError: Something cannot be offered, a workbench cannot be used, or another agent uses the executor.
        """
        self._take_executor()
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:  # The session and the workbenches were left in the other.
            self._to_restore, self._functions = True, None
            await self._workbenches.stop()
        self._loop = loop
        if self._functions is None:
            functions = await host_functions([*self._tools, *await self._workbenches.functions()])
            await self._executor.offer([self._recorder.wrap(function) for function in functions])
            self._functions = functions
        return self._functions

    def _take_executor(self) -> None:
        """Let no other agent use the executor: what is offered there, and what is run again, is one agent's."""
        user = _users.get(self._executor)
        if (user and user()) not in (None, self):
            raise RequestError(
                "Another CodeActAgent uses this executor. Give each agent one of its own, or close the other one first."
            )
        _users[self._executor] = ref(self)

    async def run(
        self,
        number: int,
        selection: Selection,
        context: Sequence[LLMMessage],
        cancellation_token: CancellationToken,
        on_output: Callable[[OutputChunk], None] | None,
    ) -> Attempt:
        """Run the blocks of a reply; what a failure left behind is undone, if that is wanted."""
        await await_with_token(self._workbenches.mend(), cancellation_token)
        if self._on_error == "rollback":
            await self._runner.keep_state(cancellation_token)
        self._recorder.take()
        undo = True
        try:
            try:
                attempt = await self._runner.attempt(number, selection, context, cancellation_token, on_output)
                undo = attempt.outcome is not Outcome.CANCELLED
            finally:
                # Also after a cancellation, which then leaves what is known of the attempt.
                await run_uncancellable(self._conclude(undo))
        finally:
            await self._runner.release_state()
        return self._runner.last_attempt or attempt

    async def _conclude(self, undo: bool) -> None:
        """Remember code that succeeded; undo other code, unless its executor was stopped, which is not undone."""
        attempt = self._runner.last_attempt
        if attempt is None:
            return
        self._workbenches.note(attempt.calls)
        self._called += attempt.calls
        undone = ""
        if attempt.ran and attempt.outcome is not Outcome.OK and undo and self._on_error == "rollback":
            with suppress(CodeRoomError):  # Then the model is not told that it was undone.
                undone = await self._runner.undo(CancellationToken())
        if undone:
            notes = (*attempt.notes, _UNDONE.format(undone=undone))
            self._runner.last_attempt = replace(attempt, notes=notes, undone="files" in undone)
            return
        if attempt.state_lost:
            self._cells, self._failed = [], 0
        if attempt.outcome is Outcome.OK:
            self._cells.append(_remember(attempt, self._recorder.take()))
        elif attempt.ran:
            self._failed += 1

    def end_turn(self) -> None:
        """The turn went well: all that it called is in the conversation."""
        self._called = []

    async def save(self) -> dict[str, Any]:
        """What `load` takes."""
        return {"cells": self._cells, "failed": self._failed, "workbench": await self._workbenches.save_state()}

    async def load(self, cells: Sequence[PastCell], failed: int, workbench: Sequence[Mapping[str, Any]]) -> None:
        """Let the next use begin with these cells."""
        self._cells, self._failed = list(cells), failed
        self._to_restore = True
        # A team that puts a failed turn back makes the conversation forget what was called in it.
        self._forgotten += self._called
        self._called = []
        await self._workbenches.load_state(workbench)

    async def restore(self, cancellation_token: CancellationToken) -> str:
        """Run the loaded cells again, if that has not been done; functions of the host are not called again.

        Returns:
            What did not come back or came out otherwise, and what was called in a turn that is forgotten, in words for
            a model; empty if there is nothing to tell.
        """
        if not self._to_restore:
            return ""
        await self._runner.executor.restart()
        back: list[PastCell] = []
        lost: list[str] = []
        changed: list[str] = []
        try:
            for cell in self._cells:
                self._recorder.answer_from(cell.calls)
                result = await self._runner.executor.run(cell.blocks, cancellation_token)
                if result.outcome is not Outcome.OK:
                    lost.append(lost_cell(cell, result.outcome, result.output))
                    continue
                if differs := changed_cell(cell, result.output):
                    changed.append(differs)
                    cell = cell.model_copy(update=_output_of(result.output))
                back.append(cell)
        finally:
            self._recorder.answer_from(None)
        if self._failed:
            lost.append(_FAILED_BEFORE.format(count=self._failed))
        self._cells, self._failed, self._to_restore = back, 0, False
        told = [restored(lost, changed)]
        if self._forgotten:
            told.append(f"{_PUT_BACK}\n{calls_made(self._forgotten)}")
            self._forgotten = []
        return "\n\n".join(part for part in told if part)

    async def close(self) -> None:
        """Stop the executor and the workbenches; if they are used again, the cells are run again first."""
        self._to_restore = bool(self._cells or self._failed)
        self._functions = None
        try:
            await self._runner.close()
        finally:
            if (user := _users.get(self._executor)) and user() is self:
                del _users[self._executor]
            await self._workbenches.stop()

    async def reset(self) -> None:
        """Go back to the beginning."""
        self._cells, self._failed, self._to_restore = [], 0, False
        self._called, self._forgotten = [], []
        await self._runner.executor.restart()
        await self._workbenches.reset()


def _remember(attempt: Attempt, calls: list[RecordedCall]) -> PastCell:
    # Of a long output there is only a part.
    known = _output_of(attempt.output) if attempt.output_file is None else {}
    return PastCell(blocks=list(attempt.blocks), calls=calls, **known)


def _output_of(output: str) -> dict[str, Any]:
    return {"output": output[:_BEGINNING], "output_digest": digest_of(output)}


_UNDONE = "The failed code was undone: {undone} are as they were before it, and nothing that it made of them is left."
_PUT_BACK = "An earlier turn was cut short, and the conversation and the variables were put back to before it."
_FAILED_BEFORE = "code that had not ended well ({count} times) was not run again"


_SHOWN = 200
_MOST_NAMES = 20


def digest_of(output: str) -> str:
    """What two outputs have in common that say the same; addresses and the numbers of cells differ in any case."""
    text = re.sub(r"0x[0-9a-fA-F]+|<cell \d+>", "#", output)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def lost_cell(cell: PastCell, outcome: Outcome, output: str) -> str:
    """A cell that ran well before and did not this time."""
    end = next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    return f"the code that begins with {_beginning(cell)!r} ended with {outcome.value!r} this time ({end[:_SHOWN]})"


def changed_cell(cell: PastCell, output: str) -> str:
    """A cell that gave something else than before; empty if it gave the same, or nobody knows."""
    if cell.output_digest is None or cell.output_digest == digest_of(output):
        return ""
    before, now = (text.strip()[:_SHOWN] for text in (cell.output or "", output))
    names = sorted({name for block in cell.blocks for name in _names_set(block)})
    told = f"the code that begins with {_beginning(cell)!r} gave {before!r} before and {now!r} now"
    if not names:
        return told
    more = "" if len(names) <= _MOST_NAMES else f" and {len(names) - _MOST_NAMES} more"
    return f"{told}; it sets {', '.join(names[:_MOST_NAMES])}{more}"


def restored(lost: Sequence[str], changed: Sequence[str]) -> str:
    """What did not come back as it was; empty if all did."""
    parts = []
    if lost:
        parts.append(f"Not everything came back:\n{_listed(lost)}\n{_SET_AGAIN}")
    if changed:
        parts.append(f"Some of it came out otherwise this time:\n{_listed(changed)}\n{_LOOK}")
    return "\n\n".join([f"{_ANEW} {parts[0]}", *parts[1:]]) if parts else ""


def _beginning(cell: PastCell) -> str:
    lines = (line for block in cell.blocks for line in block.code.splitlines() if line.strip())
    return next(lines, "").strip()[:100]


def _listed(items: Sequence[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _names_set(block: CodeBlock) -> Iterator[str]:
    """The variables that a block of Python sets, as far as its text says."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(block.code, mode="exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


_ANEW = (
    "The session was started anew, and the code that had run well in it was run again, without calling functions again."
)
_SET_AGAIN = "What that code had set is gone. Set it again before you use it."
_LOOK = "What it has set may differ from what you saw before; look at it again before you rely on it."
