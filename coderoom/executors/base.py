"""What CodeRoom's executors share: they run blocks in a warm sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from coderoom._util.components import ArgumentsConfig
from coderoom._util.files import name_inside, write_inside
from coderoom._util.tasks import at_end_of_run, await_with_token, note_run, run_uncancellable
from coderoom._util.temporary import empty_folder, remove_folder, temporary_folder
from coderoom._util.text import with_line
from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.outcome import Outcome
from coderoom.sandbox import STATE_LOST, ExecutionResult, OutputChunk, remark_on

if TYPE_CHECKING:
    from coderoom.executors.config import SandboxCodeExecutorConfig
    from coderoom.sandbox import Artifact, Checkpoint, HostFunction, Sandbox, Session


class WarmSandboxes:
    """Sandboxes that executors leave behind, for others with the same settings; sessions are never shared.

    Batches on a cluster use them, whose items share a folder.

    Attributes:
        idle: Those that nobody uses now.
    """

    def __init__(self) -> None:
        self.idle: list[Sandbox] = []

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Have all executors that start in this block take their sandboxes from here, and leave them here."""
        token = LENDER.set(self)
        try:
            yield
        finally:
            LENDER.reset(token)

    def take(self, new: Sandbox) -> Sandbox:
        """A warm sandbox with the settings of a new one, or that itself."""
        found = next((sandbox for sandbox in self.idle if sandbox.config == new.config), new)
        if found is not new:
            self.idle.remove(found)
        return found

    def leave(self, sandbox: Sandbox) -> None:
        """Keep a sandbox whose sessions are closed."""
        self.idle.append(sandbox)

    async def close(self) -> None:
        """Close all that are kept."""
        while self.idle:
            await self.idle.pop().close()


LENDER: ContextVar[WarmSandboxes | None] = ContextVar("warm_sandboxes", default=None)
"""Where executors get warm sandboxes now, if anywhere."""
TIMEOUT_CODE = 124
CANCELLED_CODE = 125


@dataclass
class SandboxCodeResult(CodeResult):
    """AutoGen's code result, together with the sandbox's.

    Attributes:
        execution: The result of all blocks; its `output` is the same text.
        code_file: The file that the first block named and was saved to, as AutoGen's executors give it; else `None`.
    """

    execution: ExecutionResult
    code_file: str | None = None

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The files that the code created or changed, with their places on this machine."""
        return self.execution.artifacts

    @property
    def output_files(self) -> list[Path]:
        """The paths of `artifacts`, as AutoGen's executor for Jupyter gives them."""
        return [artifact.path for artifact in self.artifacts if artifact.path is not None]


def combined(results: Sequence[ExecutionResult]) -> ExecutionResult:
    """Return the results of several blocks as one, whose outcome is that of the last."""
    if not results:
        return ExecutionResult(Outcome.OK, 0)
    if len(results) == 1:
        return results[0]
    return replace(
        results[-1],
        stdout="".join(result.stdout for result in results),
        stderr="".join(result.stderr for result in results),
        output="".join(result.output for result in results),
        duration=sum(result.duration for result in results),
        truncated=any(result.truncated for result in results),
        output_size=sum(result.output_size for result in results),
        # A file that a later block has changed again is listed once.
        artifacts=tuple({artifact.name: artifact for result in results for artifact in result.artifacts}.values()),
        artifacts_left_out=sum(result.artifacts_left_out for result in results),
        code="\n".join(result.code for result in results),
        state_lost=any(result.state_lost for result in results),
        calls=tuple(call for result in results for call in result.calls),
    )


OnOutput = Callable[[OutputChunk], None]

_END_SECONDS = 2.0
_FILE_NAME = re.compile(r"\s*(?:#|//)\s*filename:\s*(.*?)\s*", re.IGNORECASE)


def _named_file(block: CodeBlock) -> str | None:
    """The file that the first line of a block names."""
    named = _FILE_NAME.fullmatch(block.code.partition("\n")[0])
    return None if named is None else named[1].strip("\"'`")


class Runtime:
    """The sandbox, the session and the folder of an executor between its start and its stop.

    `interrupted` is the result of the last run, if that was cancelled.
    """

    def __init__(
        self, config: SandboxCodeExecutorConfig, functions: Sequence[HostFunction], shows_values: bool
    ) -> None:
        self._config = config
        self._functions = functions
        self._shows_values = shows_values
        self._in_session = config.state == "session"
        self._temporary = config.work_dir is None
        folder = config.folder
        try:
            self.work_dir = temporary_folder() if folder is None else folder
            self.work_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            which = "A temporary work directory" if folder is None else f"The work directory {config.work_dir!r}"
            raise SandboxUnavailable(f"{which} cannot be used: {error}") from error
        self._lender = LENDER.get()
        try:
            self.sandbox = config.make_sandbox(self.work_dir)
            if self._lender is not None:
                self.sandbox = self._lender.take(self.sandbox)
        except BaseException:
            self._remove_temporary()
            raise
        self.loop = asyncio.get_running_loop()
        self.interrupted: ExecutionResult | None = None
        self._lock = asyncio.Lock()  # The blocks of two calls must not mix in a session.
        self._session: Session | None = None
        self._lost = False
        self._keeps_files = True
        self._runs: set[asyncio.Task[Any]] = set()
        self._ended_runs: set[asyncio.Task[Any]] = set()

    async def run(self, blocks: Sequence[CodeBlock], on_output: OnOutput | None) -> ExecutionResult:
        """Run blocks in order, up to the first that fails. Call it in its own task, which is cancelled to end them.

        The outcome is `cancelled` if `restart`, `offer` or `close` ended the run.
        """
        self.interrupted = None
        task = asyncio.current_task()
        assert task is not None
        self._runs.add(task)
        results: list[ExecutionResult] = []
        try:
            async with self._lock if self._in_session else contextlib.nullcontext():
                return await self._reject(blocks) or await self._run_blocks(blocks, on_output, results)
        except asyncio.CancelledError:
            result = replace(combined(results), outcome=Outcome.CANCELLED, exit_code=CANCELLED_CODE)
            if task in self._ended_runs:
                return result
            self.interrupted = result
            raise
        finally:
            self._runs.discard(task)
            self._ended_runs.discard(task)

    async def _reject(self, blocks: Sequence[CodeBlock]) -> ExecutionResult | None:
        """Return the result for blocks if the policy rejects one of them."""
        if self._config.policy == "open":
            return None
        for number, block in enumerate(blocks, start=1):
            result = await self.sandbox.check(block.code, block.language)
            if result is not None:
                if len(blocks) == 1:
                    return result
                output = f"Block {number} of {len(blocks)} is not allowed, so none was run.\n{result.output}"
                return replace(result, output=output)
        return None

    async def _run_blocks(
        self, blocks: Sequence[CodeBlock], on_output: OnOutput | None, results: list[ExecutionResult]
    ) -> ExecutionResult:
        for block in blocks:
            problem = await self._keep_file(block)
            if problem:
                results.append(ExecutionResult(Outcome.ERROR, 1, output=f"{problem}\n"))
                break
            async with self._open_session() as session:
                await self._run_cell(session, block, on_output, results)
            if results[-1].outcome is not Outcome.OK:
                break
        return combined(results)

    async def _keep_file(self, block: CodeBlock) -> str:
        """Save a block to the file that it names; return why that is not possible, or an empty text."""
        name, data = _named_file(block), block.code.encode("utf-8", "replace")
        if name is None:
            return ""
        try:
            self.sandbox.reject("", block.language)
            await asyncio.to_thread(write_inside, self.work_dir, name_inside(name), data)
        except RequestError as error:
            return str(error)
        except OSError as error:
            return (
                f"Filename is not in the workspace: the file {name!r} cannot be written ({error.strerror or error}). "
                "Name a plain file whose folders are not links."
            )
        return ""

    @contextlib.asynccontextmanager
    async def _open_session(self) -> AsyncIterator[Session]:
        if not self._in_session:
            async with self.sandbox.session() as session:
                yield session
            return
        try:
            yield await self._get_session()
        except SandboxUnavailable:
            await self._drop_session()
            raise

    async def _run_cell(
        self, session: Session, block: CodeBlock, on_output: OnOutput | None, results: list[ExecutionResult]
    ) -> None:
        lost, self._lost = self._lost, False
        cell = asyncio.ensure_future(
            session.run(block.code, language=block.language, on_output=on_output, final=not self._in_session)
        )
        try:
            await asyncio.wait((cell,))
        except asyncio.CancelledError:
            # If the session ends the code, variables and output are kept.
            with contextlib.suppress(asyncio.CancelledError):  # A second cancellation changes nothing.
                await run_uncancellable(_end_cell(session, cell))
            if cell.done() and not cell.cancelled() and cell.exception() is None:
                self._lost = lost or cell.result().state_lost
                results.append(self._worded(cell.result(), asyncio.current_task() not in self._ended_runs))
            raise
        try:
            result = self._worded(cell.result(), is_kept=True)
        except RequestError as error:  # The language is unknown.
            result = ExecutionResult(Outcome.ERROR, 1, output=f"{error}\n")
        if lost and not result.state_lost:
            result = replace(result, output=f"[{STATE_LOST}]\n{result.output}", state_lost=True)
        results.append(result)

    def _worded(self, result: ExecutionResult, is_kept: bool) -> ExecutionResult:
        """Return the result with the output that the author of the code reads.

        That is the printed output, the value of a last expression as in a notebook, and a remark if the code was
        ended or reached a limit.
        """
        in_session, output = self._in_session and is_kept, result.output
        if self._shows_values and result.value_repr is not None:
            output = with_line(output, result.value_repr)
        if result.outcome is not Outcome.OK or result.state_lost:
            remark = remark_on(result, self.sandbox.limits, in_session)
            output = with_line(output, f"[{remark}]") if remark else output
        return replace(result, output=output, state_lost=in_session and result.state_lost)

    async def _get_session(self) -> Session:
        if self._session is None:
            self._session = self.sandbox.session(self._functions)
        await self._session.start()
        return self._session

    async def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._lost = self._in_session
            with contextlib.suppress(SandboxUnavailable):
                await session.close()

    async def offer(self, functions: Sequence[HostFunction]) -> None:
        """Replace the functions that the code may call; the session is restarted."""
        await self._end_runs()
        async with self._lock:
            self._functions = functions
            await self._drop_session()

    async def restart(self) -> None:
        """End all runs and restart the session; a temporary folder is emptied."""
        await self._end_runs()
        async with self._lock:
            await self._drop_session()
            self._lost = False
            if self._temporary:
                await asyncio.to_thread(empty_folder, self.work_dir)

    async def checkpoint(self) -> Checkpoint:
        """Save the variables, and the files unless there are too many."""
        async with self._lock:
            session = await self._get_session()
            try:
                return await session.checkpoint(files=self._keeps_files)
            except RequestError:
                if not self._in_session or not self._keeps_files:
                    raise
                mark = await session.checkpoint()  # Raises again if files were not the cause.
                self._keeps_files = False  # The attempt costs a copy, so it is not repeated.
                return mark

    async def rollback(self, mark: Checkpoint) -> str:
        """Restore a checkpoint, and return what was restored."""
        async with self._lock:
            if mark.session is not self._session:
                raise RequestError("This checkpoint is gone: the session was restarted, or it is another executor's.")
            await self._session.rollback(mark)
        self._lost = False
        kept = (["variables"] if self._in_session else []) + (["files"] if mark.files else [])
        return " and ".join(kept)

    async def close(self) -> None:
        """End all runs and remove temporary files; can be called from any event loop."""
        await run_uncancellable(self._close())

    async def _close(self) -> None:
        if self.loop is asyncio.get_running_loop():
            await self._end_runs()
            if self._session is not None:
                await self._session.close()
        if self._lender is not None:
            self._lender.leave(self.sandbox)
        else:
            await self.sandbox.close()
        await asyncio.to_thread(self._remove_temporary)

    async def _end_runs(self) -> None:
        tasks = list(self._runs)
        self._ended_runs.update(tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_SECONDS)

    def _remove_temporary(self) -> None:
        if self._temporary:
            remove_folder(self.work_dir)


class SandboxedExecutor(ArgumentsConfig, CodeExecutor):
    """Runs blocks in a sandbox, which starts with the first of them.

    `has_owner`: whether its user stops it. AutoGen's own agents and tools do not.
    """

    def __init__(self, config: SandboxCodeExecutorConfig, *, shows_values: bool) -> None:
        note_run()
        self._settings = config
        self._shows_values = shows_values
        self._functions: tuple[HostFunction, ...] = ()
        self._runtime: Runtime | None = None
        self.has_owner = False

    @property
    def timeout(self) -> float:
        """The seconds that each block has."""
        return self._settings.timeout

    @property
    def work_dir(self) -> Path | None:
        """The folder of the code; `None` for a temporary one before the start and after the stop."""
        return self._settings.folder if self._runtime is None else self._runtime.work_dir

    @property
    def interrupted(self) -> ExecutionResult | None:
        """The result of the last run up to its cancellation; `None` if it was not cancelled."""
        return None if self._runtime is None else self._runtime.interrupted

    @property
    def _started(self) -> bool:  # AutoGen's executors have it under this name.
        return self._runtime is not None

    async def execute_code_blocks(
        self,
        code_blocks: Sequence[CodeBlock],
        cancellation_token: CancellationToken,
        on_output: OnOutput | None = None,
    ) -> SandboxCodeResult:
        """Run the blocks in order, up to the first that fails.

        Concurrent calls are allowed; in a session they run one after the other.

        Args:
            code_blocks: The blocks.
            cancellation_token: Ends the code when it is cancelled, from any thread.
            on_output: Called with output while the code runs.

        Returns:
            The result. Failures of the code are in its exit code and its output: 124 for a timeout, 137 for too much
            memory, 126 if the policy rejects it, 125 if `stop` or `restart` ended it.

        Raises:
            asyncio.CancelledError: The token or the surrounding task was cancelled; the code has been ended.
            SandboxUnavailable: The sandbox broke or cannot be built; the code did not cause that.
            RequestError: The configuration is wrong.
            MissingDependencyError: A module of `preload` cannot be imported.
        """
        result = await self.run(code_blocks, cancellation_token, on_output)
        name = _named_file(code_blocks[0]) if code_blocks else ""
        file = None if not name or self.work_dir is None else self.work_dir / name
        code_file = str(file) if file is not None and file.is_file() else None
        return SandboxCodeResult(result.exit_code, result.output, result, code_file)

    async def run(
        self,
        blocks: Sequence[CodeBlock],
        cancellation_token: CancellationToken | None = None,
        on_output: OnOutput | None = None,
    ) -> ExecutionResult:
        """Run the blocks; see `execute_code_blocks`."""
        return await await_with_token(self._run(blocks, on_output), cancellation_token or CancellationToken())

    async def start(self) -> None:
        """Start the sandbox; a second call does nothing.

        Raises:
            SandboxUnavailable: No wall is available, or it cannot be built.
            RequestError: The configuration is wrong.
            MissingDependencyError: A module of `preload` cannot be imported.
        """
        runtime = await self._get_runtime()
        try:
            await runtime.sandbox.start()
        except BaseException:
            if self._runtime is runtime:
                await self.stop()
            raise

    async def stop(self) -> None:
        """End all runs and remove temporary files; the next code starts it again."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()

    async def restart(self) -> None:
        """End all runs and restart with a fresh state, if it was started; a temporary work directory is emptied.

        Raises:
            SandboxUnavailable: The sandbox broke.
        """
        if self._runtime is not None:
            runtime = await self._get_runtime()
            await runtime.restart()

    async def _run(self, blocks: Sequence[CodeBlock], on_output: OnOutput | None) -> ExecutionResult:
        if not self.has_owner:
            at_end_of_run(self.stop)
        runtime = await self._get_runtime()
        return await runtime.run(blocks, on_output)

    async def _get_runtime(self) -> Runtime:
        if self._runtime is not None and self._runtime.loop is not asyncio.get_running_loop():
            await self.stop()
        # Without an `await` from here on, so that concurrent calls get the same runtime.
        if self._runtime is None:
            self._runtime = Runtime(self._settings, self._functions, self._shows_values)
        return self._runtime


async def _end_cell(session: Session, cell: asyncio.Task[ExecutionResult]) -> None:
    await session.cancel()
    await asyncio.wait((cell,), timeout=_END_SECONDS)
    if not cell.done():
        cell.cancel()
        await asyncio.wait((cell,), timeout=_END_SECONDS)
