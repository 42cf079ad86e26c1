"""`coderoom exec`: runs the code blocks of a file in order, without a model and without AutoGen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from rich.console import Console

from coderoom.blocks import Block
from coderoom.errors import RequestError
from coderoom.outcome import Outcome
from coderoom.runs.exec_result import BlockRun, FileResult, remarks
from coderoom.runs.exec_source import STDIN, Source
from coderoom.runs.exec_view import ExecView
from coderoom.runs.interrupts import Interrupt
from coderoom.sandbox import ExecutionResult, Limits, OutputChunk, Sandbox, Session

__all__ = ["run_file"]


_FILE_NAME: Final = re.compile(r"\s*(?:#|//)\s*filename:\s*(.*?)\s*", re.IGNORECASE)
_WORKSPACE: Final = "/workspace/"


def open_workspace(workspace: Path) -> tuple[Path, bool]:
    """Return the workspace, and whether it was created.

    Raises:
        RequestError: It is not a folder, or cannot be created. Its parent must exist, so that a mistyped path does not
            create folders.
    """
    try:
        folder = workspace.resolve()
        if folder.is_dir():
            return folder, False
        there, above = folder.exists(), folder.parent.is_dir()
        if above and not there:
            folder.mkdir()
            return folder, True
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RequestError(f"The workspace {str(workspace)!r} cannot be used: {reason}.") from error
    if there:
        raise RequestError(f"The workspace {str(folder)!r} is not a folder.")
    raise RequestError(
        f"The workspace {str(folder)!r} is not there, nor is the folder {str(folder.parent)!r} in which it could be "
        "made. Check the path, or make that folder first."
    )


def check_request(source: Source, arguments: Sequence[str]) -> None:
    """Check a request before anything runs.

    Raises:
        RequestError: No block takes the arguments, or a block names a file outside of the workspace.
    """
    if arguments and all(block.language == "javascript" for block in source.blocks):
        raise RequestError(
            f"{source.name!r} cannot be given arguments: only code in python, sh and bash can, and not javascript."
        )
    for number, block in enumerate(source.blocks, start=1):
        name = _named_file(source, block)
        if name is not None and _inside(name) is None:
            raise RequestError(
                f"{source.place(number, 1)}: the file {name!r} is not in the workspace. Name one inside of it."
            )


def prelude(source: Source, arguments: Sequence[str], workspace: Path) -> str:
    """The cell that sets `sys.argv`, and `__file__` and `sys.path` for scripts; empty if none of them is needed.

    Args:
        source: The file.
        arguments: What the command line has after the file.
        workspace: The folder that the code works in.
    """
    is_script = source.kind == "script"
    if not (is_script or arguments) or all(block.language != "python" for block in source.blocks):
        return ""
    if source.name == STDIN:
        return f"__import__('sys').argv[:] = {['-', *arguments]!r}"
    path = Path(source.name)
    path = path.parent.resolve() / path.name
    name = path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else path.name
    lines = [f"__import__('sys').argv[:] = {[name, *arguments]!r}"]
    if is_script:
        lines.append(f"__file__ = __import__('os').path.abspath({name!r})")
        if "/" in name:  # Modules beside the script are found, as Python does it.
            lines.append("__import__('sys').path.insert(0, __import__('os').path.dirname(__file__))")
    return "\n".join(lines)


def code_to_run(block: Block, arguments: Sequence[str]) -> str:
    """The code of a block. A shell's sets its arguments on the first line, so that line numbers stay."""
    if not arguments or block.language != "sh":
        return block.code
    return f"set -- {shlex.join(arguments)}; {block.code}"


def keep_file(source: Source, block: Block) -> str:
    """The shell commands that write a block to the file that its first line names; empty if it names none."""
    name = _named_file(source, block)
    inside = None if name is None else _inside(name)
    if inside is None:
        return ""
    path = f"./{inside}"
    folder = str(PurePosixPath(path).parent)
    return f"mkdir -p {shlex.quote(folder)} && printf %s {shlex.quote(block.code)} > {shlex.quote(path)}"


def _named_file(source: Source, block: Block) -> str | None:
    if source.kind == "script":
        return None
    match = _FILE_NAME.fullmatch(block.code.partition("\n")[0])
    return None if match is None else match[1].strip("\"'`")


def _inside(name: str) -> str | None:
    inside = os.path.normpath(name.removeprefix(_WORKSPACE)) if name else "."
    return None if inside.startswith("/") or inside.split("/")[0] in (".", "..") else inside


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
    """Run a file's blocks in order, as cells of one session in a sandbox, up to the first that fails.

    Output is shown as it comes. SIGINT and SIGTERM end the run, whose result is then `cancelled`.

    Args:
        source: The file.
        console: Where to show it.
        arguments: What scripts find in `sys.argv` and in `$@`.
        workspace: The folder to run in. It is created if its parent exists.
        timeout: Seconds for each block.
        wall: The name of the wall around the code, or `auto`.
        network: Whether the code may use the network.
        fresh: Whether each block has a state of its own, so that variables do not last.

    Raises:
        SandboxUnavailable: The sandbox broke, or no wall works.
        RequestError: There is no such wall, or code cannot run in that folder.
    """
    check_request(source, arguments)
    Sandbox(wall)  # Rejects an unknown name.
    folder, made = open_workspace(workspace)
    sandbox = Sandbox(wall, limits=Limits(wall_seconds=timeout), workspace=folder, network=network)
    result = FileResult(source, folder, made)
    run = _FileRun(result, sandbox, ExecView(console), arguments, fresh)
    await run.run()
    return result


class _FileRun:
    """One run of a file."""

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
        self._started_at: float | None = None

    async def run(self) -> None:
        """Run it and show it."""
        result = self._result
        try:
            with self._interrupt.caught():
                await self._start()
                await self._run_blocks()
        except asyncio.CancelledError:
            if not self._interrupt.requested:
                raise
            self._note_interrupted()
        finally:
            self._view.stop()
            await self._sandbox.close()
        result.cancelled = self._interrupt.requested and not result.succeeded
        self._view.end(result)

    def _note_interrupted(self) -> None:
        """Record a block that had not started, or that did not end when it was cancelled."""
        result = self._result
        seconds = 0.0 if self._started_at is None else time.monotonic() - self._started_at
        if len(result.runs) < result.total:
            result.runs.append(BlockRun.interrupted(self._source, len(result.runs) + 1, seconds))
        if self._started_at is not None:
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
                self._started_at = time.monotonic()
                with self._interrupt.ends_cell(session):
                    run = await self._run_block(session, number, block)
                self._started_at = None
                self._result.runs.append(run)
                self._view.show_run(run)
                if run.outcome is not Outcome.OK or self._interrupt.requested:
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
