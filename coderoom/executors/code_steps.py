"""An agent's code as steps of a run: each is run once, also when the run is resumed, and failed code can be undone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from pydantic import TypeAdapter

from coderoom._util.calls import await_with_token
from coderoom._util.steps import CODE, cell, note, once
from coderoom.executors.base import OnOutput
from coderoom.executors.runner import runner_for
from coderoom.outcome import Outcome
from coderoom.sandbox import ExecutionResult

_RESULT: Final = TypeAdapter(ExecutionResult)
_SHOWN: Final = 200


class CodeSteps:
    """Runs the code of one agent.

    In a resumed run, code that has run before has the same result and is not run again, as long as nobody needs its
    variables. Before the first new code in a session, it is run again, without new calls of functions of the host.

    Args:
        executor: Where the code runs.
        can_undo: Whether the state before the code is saved, so that failed code can be undone.

    Attributes:
        executor: Starts, runs and stops the code without steps.
    """

    def __init__(self, executor: CodeExecutor, *, can_undo: bool = False) -> None:
        self.executor = runner_for(executor)
        self._given: Any = executor
        self._can_undo = can_undo
        self._mark: Any = None
        self._past: list[tuple[str, Sequence[CodeBlock], ExecutionResult]] = []
        self._before: int | None = None
        self._count = 0

    async def run(
        self, blocks: Sequence[CodeBlock], cancellation_token: CancellationToken, on_output: OnOutput | None
    ) -> ExecutionResult:
        """Run blocks; the arguments are those of an executor."""

        async def run() -> ExecutionResult:
            await self._run_past(cancellation_token)
            if self._can_undo and self._mark is None:
                await await_with_token(self.executor.start(), cancellation_token)
                self._mark = await await_with_token(self._given.checkpoint(), cancellation_token)
            cell.set(name)
            return await self.executor.run(blocks, cancellation_token, on_output)

        def load(found: Any) -> ExecutionResult:
            result = _RESULT.validate_python(found)
            self._past = [] if result.state_lost else [*self._past, (name, blocks, result)]
            return result

        if self._before is None:
            self._before = len(self._past)
        self._count += 1
        request = {"blocks": [[block.language, block.code] for block in blocks]}
        name = hashlib.sha256(f"{self._count} {request}".encode("utf-8", "replace")).hexdigest()[:16]
        return await once(CODE, request, run, _dump, load)

    async def undo(self, cancellation_token: CancellationToken) -> str:
        """Undo the code since the last `release`; return what was restored, in words, and nothing if nothing was."""

        async def restore() -> str:
            if self._mark is None:
                return "variables" if known else ""
            restored: str = await await_with_token(self._given.rollback(self._mark), cancellation_token)
            return restored

        known = bool(self._past[self._before or 0 :])
        del self._past[self._before or 0 :]
        return await once("undo", {}, restore, str, str) if self._can_undo else ""

    async def release(self) -> None:
        """Keep the code that has run; `undo` does not undo it any more."""
        mark, self._mark, self._before = self._mark, None, None
        if mark is not None:
            await self._given.release(mark)

    def forget(self) -> None:
        """The session begins anew: the code before it is not run again."""
        self._past = []

    async def _run_past(self, cancellation_token: CancellationToken) -> None:
        past, self._past, self._before = self._past, [], 0
        if not past or getattr(self._given, "state", None) != "session":
            return
        for name, blocks, before in past:
            if before.outcome not in (Outcome.OK, Outcome.ERROR):
                note(
                    f"The code that begins with {_beginning(blocks)!r} had ended with {before.outcome.value!r}: it was "
                    "not run again, so that what it set is lost."
                )
            else:
                cell.set(name)
                again = await self.executor.run(blocks, cancellation_token)
                if digest_of(again.output) != digest_of(before.output):
                    old, new = (each.output.strip()[:_SHOWN] for each in (before, again))
                    note(
                        f"Run again, the code that begins with {_beginning(blocks)!r} gave {new!r}, and {old!r} before."
                    )
        note(
            f"To have its variables again, code that had run before was run again ({len(past)}), without calling "
            "functions again."
        )


def digest_of(output: str) -> str:
    """A digest of an output, without addresses and cell numbers, which always differ."""
    text = re.sub(r"0x[0-9a-fA-F]+|<cell \d+>", "#", output)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _dump(result: ExecutionResult) -> dict[str, Any]:
    # The value is for callers of the sandbox; agents read the output.
    plain = replace(result, value=None, value_is_data=False)
    dumped: dict[str, Any] = _RESULT.dump_python(
        plain, mode="json", exclude={"code": True, "artifacts": {"__all__": {"data"}}}, fallback=str
    )
    return dumped


def _beginning(blocks: Sequence[CodeBlock]) -> str:
    lines = (line for block in blocks for line in block.code.splitlines() if line.strip())
    return next(lines, "").strip()[:100]
