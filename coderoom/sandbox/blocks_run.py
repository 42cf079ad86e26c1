"""Runs blocks of code in a sandbox, up to the first that fails. Used by executors and by `coderoom exec`."""

from __future__ import annotations

import asyncio
import contextlib
import re
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from coderoom._util.files import name_inside, write_inside
from coderoom._util.tasks import run_uncancellable
from coderoom._util.temporary import empty_folder, remove_folder
from coderoom._util.text import with_line
from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.outcome import Outcome
from coderoom.sandbox.cell import STATE_LOST, remark_on
from coderoom.sandbox.editing import EDITING_NAMES, applying
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.process_tools import ProcessTools
from coderoom.sandbox.result import CANCELLED_CODE, Artifact, ExecutionResult, OnOutput, network_sum
from coderoom.sandbox.sandbox import Sandbox
from coderoom.sandbox.session import Checkpoint, Session

_END_SECONDS = 2.0
_ENDED = "This fork has ended: make another one of the session."
_running: ContextVar[Session] = ContextVar("running_session")  # Whose code calls a function.
_FILE_NAME = re.compile(r"\s*(?:#|//)\s*filename:\s*(.*?)\s*", re.IGNORECASE)


class Code(Protocol):
    """A block of code: the project's own, or AutoGen's."""

    @property
    def code(self) -> str:
        """The text of the code."""
        ...

    @property
    def language(self) -> str:
        """The name of its language."""
        ...


def named_file(block: Code) -> str | None:
    """The file that the first line of a block names."""
    named = _FILE_NAME.fullmatch(block.code.partition("\n")[0])
    return None if named is None else named[1].strip("\"'`")


async def save_named(block: Code, sandbox: Sandbox, work_dir: Path, session: Session | None = None) -> str:
    """Save a block to the file that it names, if any; return why that is not possible, or an empty text.

    With a session, it is a change of that one.
    """
    name = named_file(block)
    if name is None:
        return ""
    try:
        sandbox.reject("", block.language)
        content = block.code.encode("utf-8", "replace")
        if session is None:
            await asyncio.to_thread(write_inside, work_dir, name_inside(name), content)
        else:
            await session.put(name_inside(name), content)
    except RequestError as error:
        return str(error)
    except OSError as error:
        return (
            f"Filename is not in the workspace: the file {name!r} cannot be written ({error.strerror or error}). "
            "Name a plain file whose folders are not links."
        )
    return ""


def combined(results: Sequence[ExecutionResult]) -> ExecutionResult:
    """Return the results of several blocks as one, whose outcome is that of the last."""
    if not results:
        return ExecutionResult(Outcome.OK, 0)
    if len(results) == 1:
        return results[0]
    artifacts, before = dict[str, Artifact](), 0
    for result in results:
        for each in result.artifacts:  # A file that a later block has changed again is listed once.
            place = None if each.position is None else each.position + before
            artifacts[each.name] = replace(each, position=place)
        before += len(result.output)
    return replace(
        results[-1],
        stdout="".join(result.stdout for result in results),
        stderr="".join(result.stderr for result in results),
        output="".join(result.output for result in results),
        duration=sum(result.duration for result in results),
        truncated=any(result.truncated for result in results),
        output_size=sum(result.output_size for result in results),
        artifacts=tuple(artifacts.values()),
        artifacts_left_out=sum(result.artifacts_left_out for result in results),
        code="\n".join(result.code for result in results),
        state_lost=any(result.state_lost for result in results),
        calls=tuple(call for result in results for call in result.calls),
        network=network_sum(use for result in results for use in result.network),
    )


class BlocksRun:
    """Runs blocks in a sandbox: in one session, or each with a fresh state.

    Args:
        sandbox: The sandbox, whose workspace is `work_dir`.
        work_dir: The folder of the code.
        functions: The functions of the host that the code may call.
        in_session: Whether variables are kept from block to block.
        shows_values: Whether the output has the value of a last expression.
        temporary: Whether the folder is emptied by a restart, and removed at the end.
        processes: Whether the code of the session may call the functions of `ProcessTools`.
        editing: Whether Python code of the session has the functions for files of a repository, and diffs are applied.
        leave: Takes the sandbox at the end.

    Attributes:
        interrupted: The result of the last run, if that was cancelled.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        work_dir: Path,
        functions: Sequence[HostFunction],
        *,
        in_session: bool,
        shows_values: bool,
        temporary: bool,
        processes: bool,
        editing: bool,
        leave: Callable[[Sandbox], Awaitable[object]],
    ) -> None:
        self.sandbox = sandbox
        self.work_dir = work_dir
        self._functions = functions
        self._in_session = in_session
        self._shows_values = shows_values
        self._temporary = temporary
        self._processes = processes
        self._editing = editing
        self._lacks_names = editing
        self._leave = leave
        self.loop = asyncio.get_running_loop()
        self.interrupted: ExecutionResult | None = None
        self._overlaid = sandbox.config.workspace_mode == "overlay"  # The files are those of one session then.
        self._before: Session | None = None  # The session whose changes the next one takes over.
        self._lock = asyncio.Lock()  # The blocks of two calls must not mix in a session.
        self._session: Session | None = None
        self._lost = False
        self._keeps_files = True
        self._is_fork = False
        self._forks: weakref.WeakSet[BlocksRun] = weakref.WeakSet()
        self._runs: set[asyncio.Task[Any]] = set()
        self._ended_runs: set[asyncio.Task[Any]] = set()

    async def run(self, blocks: Sequence[Code], on_output: OnOutput | None) -> ExecutionResult:
        """Run blocks in order, up to the first that fails. Call it in its own task, which is cancelled to end them.

        The outcome is `cancelled` if `restart`, `offer` or `close` ended the run.
        """
        self.interrupted = None
        task = asyncio.current_task()
        assert task is not None
        self._runs.add(task)
        results: list[ExecutionResult] = []
        try:
            async with self._lock if self._in_session or self._overlaid else contextlib.nullcontext():
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

    async def _reject(self, blocks: Sequence[Code]) -> ExecutionResult | None:
        """Return the result for blocks if the policy rejects one of them."""
        if self.sandbox.config.policy == "open":
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
        self, blocks: Sequence[Code], on_output: OnOutput | None, results: list[ExecutionResult]
    ) -> ExecutionResult:
        for block in blocks:
            async with self._open_session() as session:
                problem = await save_named(
                    block, self.sandbox, self.work_dir, session if self._overlaid or self._is_fork else None
                )
                if problem:
                    results.append(ExecutionResult(Outcome.ERROR, 1, output=f"{problem}\n"))
                    break
                await self._run_cell(session, block, on_output, results)
            if results[-1].outcome is not Outcome.OK:
                break
        return combined(results)

    @contextlib.asynccontextmanager
    async def _open_session(self) -> AsyncIterator[Session]:
        if not self._in_session and not self._overlaid:
            async with self.sandbox.session() as session:
                yield session
            return
        try:
            yield await self._get_session()
        except SandboxUnavailable:
            await self._drop_session()
            raise

    async def _run_cell(
        self, session: Session, block: Code, on_output: OnOutput | None, results: list[ExecutionResult]
    ) -> None:
        lost, self._lost = self._lost, False
        code, language = block.code, block.language
        if self._editing and language == "diff":
            code, language = applying(code), "python"
        _running.set(session)
        cell = asyncio.ensure_future(
            session.run(code, language=language, on_output=on_output, final=not self._in_session)
        )
        try:
            await asyncio.wait((cell,))
        except asyncio.CancelledError:
            # If the session ends the code, variables and output are kept.
            with contextlib.suppress(asyncio.CancelledError):  # A second cancellation changes nothing.
                await run_uncancellable(_end_cell(session, cell))
            if cell.done() and not cell.cancelled() and cell.exception() is None:
                self._lost = lost or cell.result().state_lost
                self._lacks_names = self._editing and (self._lacks_names or self._lost)
                results.append(self._worded(cell.result(), asyncio.current_task() not in self._ended_runs))
            else:  # It was ended with its session.
                results.append(ExecutionResult(Outcome.CANCELLED, CANCELLED_CODE, state_lost=self._in_session))
            raise
        try:
            result = self._worded(cell.result(), is_kept=True)
        except (MissingDependencyError, RequestError) as error:  # The language is unknown, or not installed.
            result = ExecutionResult(Outcome.ERROR, 1, output=f"{error}\n")
        self._lacks_names = self._editing and (self._lacks_names or result.state_lost)
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
            if self._is_fork:
                raise RequestError(_ENDED)
            tools = ProcessTools(_running.get).functions if self._processes else ()
            self._session = self.sandbox.session([*self._functions, *tools])
        await self._session.start()
        if self._lacks_names:
            await self._session.run(EDITING_NAMES)
            self._lacks_names = False
        if self._before is not None:
            await self._session.take_over(self._before)
            self._before = None
        return self._session

    async def _drop_session(self) -> None:
        session, self._session = self._session, None
        self._lacks_names = self._editing
        if session is not None:
            self._lost = self._in_session
            with contextlib.suppress(SandboxUnavailable):
                await session.close()
            self._before = session if self._overlaid else None

    @contextlib.asynccontextmanager
    async def overlaid(self) -> AsyncIterator[Session]:
        """The session that has the changes of the workspace, while no block runs."""
        async with self._lock:
            yield await self._get_session()

    async def start_session(self) -> None:
        """Start the session, if it is not started."""
        async with self._lock:
            await self._get_session()

    async def put(self, name: str, content: bytes) -> None:
        """Write a file into the folder as the code sees it."""
        if self._overlaid or self._is_fork:
            async with self.overlaid() as session:
                await session.put(name, content)
        else:
            await asyncio.to_thread(write_inside, self.work_dir, name, content)

    async def offer(self, functions: Sequence[HostFunction]) -> None:
        """Replace the functions that the code may call; the session is restarted."""
        if self._is_fork:
            raise RequestError("A fork has the functions of its session, and no others.")
        await self._end_runs()
        async with self._lock:
            self._functions = functions
            await self._drop_session()

    async def restart(self) -> None:
        """End all runs and restart the session; a temporary folder is emptied."""
        await self._end_runs()
        async with self._lock:
            if self._is_fork:
                await (await self._get_session()).restart()
                self._lacks_names = self._editing
            else:
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

    async def fork(self, count: int) -> list[BlocksRun]:
        """Make others that go on from the state of the session; the end of this one ends them."""
        async with self._lock:
            session = await self._get_session()
            return [self._with_fork(each) for each in await session.fork(count)]

    async def become(self, fork: BlocksRun) -> None:
        """Go on from the state of a fork, which ends."""
        await fork._end_runs()
        async with fork._lock, self._lock:
            if fork._session is None:
                raise RequestError(_ENDED)
            if self._session is None:
                raise RequestError("The session of this fork has ended or was restarted, so it cannot become the fork.")
            try:
                await self._session.become(fork._session)
            except SandboxUnavailable:
                await self._drop_session()
                raise
            fork._session = None
            self._lost, self._lacks_names = fork._lost, fork._lacks_names

    def _with_fork(self, session: Session) -> BlocksRun:
        made = BlocksRun(
            self.sandbox,
            self.work_dir,
            self._functions,
            in_session=True,
            shows_values=self._shows_values,
            temporary=False,
            processes=self._processes,
            editing=self._editing,
            leave=_stay,
        )
        made._is_fork, made._session = True, session
        made._lost, made._lacks_names = self._lost, self._lacks_names
        self._forks.add(made)
        return made

    async def close(self) -> None:
        """End all runs and remove temporary files; can be called from any event loop."""
        await run_uncancellable(self._close())

    async def _close(self) -> None:
        if self.loop is asyncio.get_running_loop():
            await self._end_runs()
            for fork in list(self._forks):
                await fork.close()
            session, self._session = self._session, None
            if session is not None:
                await session.close()
        await self._leave(self.sandbox)
        if self._temporary:
            await asyncio.to_thread(remove_folder, self.work_dir)

    async def _end_runs(self) -> None:
        tasks = list(self._runs)
        self._ended_runs.update(tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_SECONDS)


async def _stay(sandbox: Sandbox) -> None:
    """Leave the sandbox to the session of a fork."""


async def _end_cell(session: Session, cell: asyncio.Task[ExecutionResult]) -> None:
    await session.cancel()
    await asyncio.wait((cell,), timeout=_END_SECONDS)
    if not cell.done():
        cell.cancel()
        await asyncio.wait((cell,), timeout=_END_SECONDS)
