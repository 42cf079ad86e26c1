"""Running the blocks of a file, in order, without a model. Nothing here needs AutoGen."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from coderoom.blocks import Block
from coderoom.outcome import Outcome
from coderoom.runs.exec_interrupt import Interrupt
from coderoom.runs.exec_result import BlockRun, FileResult, remarks
from coderoom.runs.exec_setup import check_request, code_to_run, keep_file, open_workspace, prelude
from coderoom.runs.exec_source import Source, read_blocks
from coderoom.runs.exec_view import ExecView
from coderoom.sandbox import ExecutionResult, Limits, OutputChunk, Sandbox, Session

__all__ = ["BlockRun", "FileResult", "read_blocks", "run_file"]


async def run_file(
    source: Source,
    console: Console,
    *,
    arguments: Sequence[str] = (),
    workspace: Path,
    timeout: float,
    wall: str = "auto",
    network: bool = False,
    fresh: bool = False,
) -> FileResult:
    """Run a file's blocks in order, as cells of one session in a sandbox; the first that fails is the last.

    What they print is shown while they print it. Ctrl-C (SIGINT) and SIGTERM end it and are noted as `cancelled`.

    Args:
        source: The file.
        console: Where to show it.
        arguments: What scripts find in `sys.argv` and in `$@`.
        workspace: The folder to run in. It is made if it is not there, but not what is above it.
        timeout: Seconds for each block.
        wall: The name of the wall around the code, or `auto`.
        network: Whether the code may use the network.
        fresh: Whether each block has a state of its own, so that variables do not last.

    Raises:
        SandboxUnavailable: If the place where code runs broke, or cannot be had at all.
        RequestError: If there is no such wall, or code cannot run in that folder.
    """
    check_request(source, arguments)
    Sandbox(wall)  # Refuses a name that is none.
    folder, made = open_workspace(workspace)
    sandbox = Sandbox(wall, limits=Limits(wall_seconds=timeout), workspace=folder, network=network)
    result = FileResult(source, folder, made)
    run = _FileRun(result, sandbox, ExecView(console), arguments, fresh)
    await run.run()
    return result


class _FileRun:
    """One run of a file: what there is while it lasts."""

    def __init__(
        self, result: FileResult, sandbox: Sandbox, view: ExecView, arguments: Sequence[str], fresh: bool
    ) -> None:
        self._result = result
        self._source = result.source
        self._sandbox = sandbox
        self._view = view
        self._arguments = arguments
        self._fresh = fresh
        self._prelude = prelude(self._source, arguments, result.workspace)
        self._interrupt = Interrupt()
        self._begun: float | None = None

    async def run(self) -> None:
        """Run it, show it, and leave nothing behind."""
        result = self._result
        try:
            with self._interrupt.caught():
                await self._start()
                await self._run_blocks()
        except asyncio.CancelledError:
            if not self._interrupt.asked:
                raise
            self._tear_away()
        finally:
            self._view.stop()
            await self._sandbox.close()
        result.cancelled = self._interrupt.asked and not result.succeeded
        self._view.end(result)

    def _tear_away(self) -> None:
        """Note a block that had not begun, or that did not end when it was asked to."""
        result = self._result
        seconds = 0.0 if self._begun is None else time.monotonic() - self._begun
        if len(result.runs) < result.total:
            result.runs.append(BlockRun.torn_away(self._source, len(result.runs) + 1, seconds))
        if self._begun is not None:
            self._view.show_run(result.runs[-1])

    async def _start(self) -> None:
        try:
            await self._sandbox.start()
        except BaseException:
            if self._result.workspace_made:
                with contextlib.suppress(OSError):
                    self._result.workspace.rmdir()
            raise
        self._result.isolation = self._sandbox.wall
        self._view.begin(self._result)

    async def _run_blocks(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            session: Session | None = None
            for number, block in enumerate(self._source.blocks, start=1):
                self._view.show_block(self._source, number)
                if session is None or self._fresh:
                    await stack.aclose()
                    session = await stack.enter_async_context(self._sandbox.session())
                    if self._prelude:
                        await session.run(self._prelude)
                self._begun = time.monotonic()
                with self._interrupt.ends_cell(session):
                    run = await self._run_block(session, number, block)
                self._begun = None
                self._result.runs.append(run)
                self._view.show_run(run)
                if run.outcome is not Outcome.OK or self._interrupt.asked:
                    break

    async def _run_block(self, session: Session, number: int, block: Block) -> BlockRun:
        keeping = keep_file(self._source, block)
        result = await self._run_cell(session, keeping, "sh") if keeping else None
        if result is None or result.success:
            code = code_to_run(block, self._arguments)
            result = await self._run_cell(session, code, block.run_language)
        more = remarks(result)
        self._view.show_output(more)
        return BlockRun.of(self._source, number, result, result.output + more)

    async def _run_cell(self, session: Session, code: str, language: str) -> ExecutionResult:
        async with contextlib.aclosing(session.stream(code, language=language)) as items:
            async for item in items:
                if not isinstance(item, OutputChunk):
                    return item
                self._view.show_output(item.text)
        raise AssertionError("unreachable: the result comes last")
