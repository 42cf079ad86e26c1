"""What a started `SandboxCodeExecutor` has: a sandbox, a session in it, and a folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from autogen_core.code_executor import CodeBlock

from coderoom._util.tasks import to_its_end
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.executors.calls import Calls
from coderoom.executors.cells import CellRefused, file_name_of, not_inside
from coderoom.executors.execution import Execution, Transcript
from coderoom.executors.folder import write_inside
from coderoom.executors.own import absolute
from coderoom.executors.render import STATE_LOST, as_execution
from coderoom.executors.sandbox_config import SandboxCodeExecutorConfig
from coderoom.outcome import Outcome
from coderoom.sandbox import Checkpoint, ExecutionResult, HostFunction, OutputChunk, Sandbox, Session

__all__ = ["OnOutput", "SandboxPlace"]

OnOutput = Callable[[OutputChunk], None]

_END_PATIENCE = 1.2
_ASKED_TO_END = 3
_WORKSPACE = "/workspace/"


class SandboxPlace:
    """What there is between the start and the stop of a `SandboxCodeExecutor`.

    Args:
        config: The executor's configuration.
        functions: Functions of the host that the code may call.

    Attributes:
        interrupted: What is known of the last run, if that was cancelled in its midst.

    Raises:
        SandboxUnavailable: The work directory cannot be made.
        RequestError: The configuration asks for something that cannot be.
    """

    def __init__(self, config: SandboxCodeExecutorConfig, functions: Sequence[HostFunction]) -> None:
        self._functions = functions
        self.calls = Calls(_END_PATIENCE)
        self.loop = asyncio.get_running_loop()
        self._config = config
        self._limits = config.all_limits()
        self._temporary = config.work_dir is None
        try:
            self.work_dir = temporary_folder() if config.work_dir is None else absolute(config.work_dir)
            self.work_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            which = "A temporary work directory" if self._temporary else f"The work directory {config.work_dir!r}"
            raise SandboxUnavailable(f"{which} cannot be used: {error}") from error
        try:
            self.sandbox = Sandbox(
                config.wall,
                engine=config.engine,
                preload=config.preload,
                limits=self._limits,
                workspace=self.work_dir,
                network=config.network,
                policy=config.policy,
                env={name: os.environ[name] for name in config.env if name in os.environ},
                python=config.python,
                readable=config.readable,
                options=config.options,
            )
        except BaseException:
            self._remove_temporary()
            raise
        self._lock = asyncio.Lock()
        self._session: Session | None = None
        self._lost = False
        self.interrupted: Execution | None = None
        self._cut: ExecutionResult | None = None
        self._keeps_files = True

    async def start(self) -> None:
        """Start the sandbox; a second time does nothing.

        Raises:
            SandboxUnavailable: It cannot be started.
            RequestError: The configuration asks for something that cannot be.
            MissingDependencyError: A module of `preload` cannot be imported.
        """
        await self.sandbox.start()

    async def run(self, blocks: Sequence[CodeBlock], on_output: OnOutput | None) -> Execution:
        """Run blocks in order, up to the first that fails."""
        rejected = self._reject(blocks)
        if rejected is not None:
            return rejected
        if self._config.state == "fresh":
            return await self._run_all(blocks, on_output)
        async with self._lock:  # The blocks of two calls must not get between each other.
            return await self._run_all(blocks, on_output)

    def _reject(self, blocks: Sequence[CodeBlock]) -> Execution | None:
        """What the policy refuses is found before anything has run."""
        for number, block in enumerate(blocks, start=1):
            try:
                result = self.sandbox.reject(block.code, block.language)
            except RequestError:  # The language is unknown, which is an error when it is this block's turn.
                continue
            if result is not None:
                execution = as_execution(result, self._limits, in_session=False)
                if len(blocks) == 1:
                    return execution
                output = f"Block {number} of {len(blocks)} is not allowed, so none was run.\n{execution.output}"
                return Execution(Outcome.REJECTED, execution.exit_code, output, total_chars=len(output))
        return None

    async def _run_all(self, blocks: Sequence[CodeBlock], on_output: OnOutput | None) -> Execution:
        self.interrupted = self._cut = None
        transcript = Transcript(self.work_dir)
        try:
            for block in blocks:
                try:
                    self._check_language(block.language)
                    await self._keep_named_file(block)
                except CellRefused as refused:
                    await transcript.add(Execution.refused(str(refused)))
                    break
                result = await self._run_cell(block, on_output)
                if not await transcript.add(self._told(result)):
                    break
        except asyncio.CancelledError:
            await self._note_interruption(transcript)
            raise
        return transcript.execution()

    async def _note_interruption(self, transcript: Transcript) -> None:
        if self._cut is not None:
            await transcript.add(self._in_words(self._cut))
            self.interrupted = transcript.execution()

    def _told(self, result: ExecutionResult) -> Execution:
        execution = self._in_words(result)
        lost, self._lost = self._lost, False
        if not lost or result.state_lost:
            return execution
        return replace(execution, output=f"[{STATE_LOST}]\n{execution.output}", state_lost=True)

    def _in_words(self, result: ExecutionResult) -> Execution:
        return as_execution(result, self._limits, in_session=self._config.state == "session")

    def _check_language(self, language: str) -> None:
        try:
            self.sandbox.reject("", language)
        except RequestError as error:
            raise CellRefused(str(error)) from error

    async def _keep_named_file(self, block: CodeBlock) -> None:
        name = file_name_of(block.code)
        if name is None:
            return
        data = block.code.encode("utf-8", "replace")
        try:
            await asyncio.to_thread(write_inside, self.work_dir, _name_inside(name), data)
        except OSError as error:
            raise CellRefused(
                f"Filename is not in the workspace: the file {name!r} cannot be written ({error.strerror or error}). "
                "Name a plain file whose folders are no links."
            ) from error

    async def _run_cell(self, block: CodeBlock, on_output: OnOutput | None) -> ExecutionResult:
        if self._config.state == "fresh":
            return await _run_and_tell(self.sandbox, block, on_output)
        try:
            session = await self._get_session()
            task = asyncio.ensure_future(_run_and_tell(session, block, on_output))
            try:
                return await asyncio.shield(task)
            finally:
                if not task.done():
                    await self._end_cell(session, task)
        except SandboxUnavailable:
            await self._drop_session()
            raise

    async def _end_cell(self, session: Session, task: asyncio.Task[ExecutionResult]) -> None:
        # Asked to end instead of torn away, the code leaves its variables behind. It may not have begun yet, so it is
        # asked more than once.
        for _ in range(_ASKED_TO_END):
            await session.cancel()
            await asyncio.wait((task,), timeout=_END_PATIENCE / _ASKED_TO_END)
            if task.done():
                break
        else:
            task.cancel()
            await asyncio.wait((task,), timeout=_END_PATIENCE)
        if task.done() and not task.cancelled() and task.exception() is None:
            self._cut = task.result()
            self._lost = self._lost or self._cut.state_lost

    async def _get_session(self) -> Session:
        if self._session is None:
            self._session = self.sandbox.session(self._functions)
        await self._session.start()
        return self._session

    async def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._lost = True
            with contextlib.suppress(SandboxUnavailable):
                await session.close()

    async def offer(self, functions: Sequence[HostFunction]) -> None:
        """Let the code call these functions from now on; a session that stands is ended."""
        await self.calls.end_all()
        async with self._lock:
            self._functions = functions
            await self._drop_session()

    async def restart(self) -> None:
        """End what runs and go back to the beginning; a temporary folder is emptied.

        Raises:
            SandboxUnavailable: It cannot be started again.
        """
        await self.calls.end_all()
        async with self._lock:
            await self._drop_session()
            self._lost = False
            if self._temporary:
                await asyncio.to_thread(_empty, self.work_dir)

    async def checkpoint(self) -> Checkpoint:
        """Keep the variables, and the files unless there are too many.

        Raises:
            RequestError: Files are all that there is to keep, and there are too many.
            SandboxUnavailable: The sandbox broke.
        """
        async with self._lock:
            session = await self._get_session()
            if self._keeps_files:
                try:
                    return await session.checkpoint(files=True)
                except RequestError:
                    if self._config.state == "fresh":
                        raise
                    mark = await session.checkpoint()  # Unless it is not the files that are too many.
                    self._keeps_files = False  # To find that out takes a copy, which is not made again and again.
                    return mark
            return await session.checkpoint()

    async def rollback(self, mark: Checkpoint) -> str:
        """Go back to a checkpoint, and say what is as it was.

        Raises:
            RequestError: The checkpoint is gone.
            SandboxUnavailable: The sandbox broke.
        """
        async with self._lock:
            await (await self._get_session()).rollback(mark)
        self._lost = False
        kept = (["variables"] if self._config.state == "session" else []) + (["files"] if mark.files else [])
        return " and ".join(kept)

    async def release(self, mark: Checkpoint) -> None:
        """Let go of a checkpoint."""
        await mark.session.release(mark)

    async def close(self) -> None:
        """End everything and remove what is temporary."""
        await to_its_end(self._close())

    async def _close(self) -> None:
        await self.calls.end_all()
        if self._session is not None:
            await self._session.close()
        await self.sandbox.close()
        await asyncio.to_thread(self._remove_temporary)

    async def abandon(self) -> None:
        """The same from another event loop than the one that it was started in, which may be closed by now."""
        await to_its_end(self._abandon())

    async def _abandon(self) -> None:
        await self.sandbox.close()
        await asyncio.to_thread(self._remove_temporary)

    def _remove_temporary(self) -> None:
        if self._temporary:
            remove_folder(self.work_dir)


async def _run_and_tell(place: Sandbox | Session, block: CodeBlock, on_output: OnOutput | None) -> ExecutionResult:
    if on_output is None:
        return await place.run(block.code, language=block.language)
    result: ExecutionResult | None = None
    async with contextlib.aclosing(place.stream(block.code, language=block.language)) as items:
        async for item in items:
            if isinstance(item, OutputChunk):
                on_output(item)
            else:
                result = item
    assert result is not None
    return result


def _name_inside(name: str) -> str:
    inside = os.path.normpath(name.removeprefix(_WORKSPACE)) if name else "."
    if inside.startswith("/") or inside.split("/")[0] in (".", "..") or "\0" in inside:
        raise not_inside(name)
    return inside


def _empty(folder: Path) -> None:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            remove_folder(Path(entry.path))
        else:
            with contextlib.suppress(OSError):
                Path(entry.path).unlink()
