"""What CodeRoom's executors share: they run blocks in a warm sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from coderoom._util.closing import at_end_of_run, note_run
from coderoom._util.components import ArgumentsConfig
from coderoom._util.tasks import await_with_token
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.errors import SandboxUnavailable

if TYPE_CHECKING:
    from coderoom.executors.config import SandboxCodeExecutorConfig
    from coderoom.sandbox import Artifact, BlocksRun, ExecutionResult, HostFunction, OnOutput, Sandbox


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

    async def leave(self, sandbox: Sandbox) -> None:
        """Keep a sandbox whose sessions are closed."""
        self.idle.append(sandbox)

    async def close(self) -> None:
        """Close all that are kept."""
        while self.idle:
            await self.idle.pop().close()


LENDER: ContextVar[WarmSandboxes | None] = ContextVar("warm_sandboxes", default=None)
"""Where executors get warm sandboxes now, if anywhere."""


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


class SandboxedExecutor(ArgumentsConfig, CodeExecutor):
    """Runs blocks in a sandbox, which starts with the first of them.

    Attributes:
        has_owner: Whether its user stops it. AutoGen's own agents and tools do not.
        workspace_mode: Whether the code changes its folder (`direct`) or not (`overlay`).
    """

    def __init__(self, config: SandboxCodeExecutorConfig, *, shows_values: bool) -> None:
        note_run()
        self._settings = config
        self.workspace_mode = config.workspace_mode
        self._shows_values = shows_values
        self._functions: tuple[HostFunction, ...] = ()
        self._runtime: BlocksRun | None = None
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
        from coderoom.sandbox import named_file

        name = named_file(code_blocks[0]) if code_blocks else ""
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

    def take_over(self, other: object) -> bool:
        """Go on with the sandbox and the session of another executor, which begins anew.

        Args:
            other: The other executor.

        Returns:
            Whether it does: the other one has equal settings and offers no functions, and this one has not started.
        """
        if not isinstance(other, SandboxedExecutor) or self._settings != other._settings:
            return False
        if other._functions or self._runtime is not None:
            return False
        self._runtime, other._runtime = other._runtime, None
        return True

    async def put(self, name: str, content: bytes) -> None:
        """Write a file into the folder as the code sees it.

        Args:
            name: Its path below the folder.
            content: Its content.

        Raises:
            OSError: A folder or a link is in the way.
            SandboxUnavailable: The sandbox broke or cannot be built.
        """
        await (await self._get_runtime()).put(name, content)

    async def _run(self, blocks: Sequence[CodeBlock], on_output: OnOutput | None) -> ExecutionResult:
        if not self.has_owner:
            at_end_of_run(self.stop)
        runtime = await self._get_runtime()
        return await runtime.run(blocks, on_output)

    async def _get_runtime(self) -> BlocksRun:
        if self._runtime is not None and self._runtime.loop is not asyncio.get_running_loop():
            await self.stop()
        # Without an `await` from here on, so that concurrent calls get the same runtime.
        if self._runtime is None:
            self._runtime = self._make_runtime()
        return self._runtime

    def _make_runtime(self) -> BlocksRun:
        from coderoom.sandbox import (  # Imports the engines, which a check of the config does not need.
            BlocksRun,
            Sandbox,
        )

        config = self._settings
        temporary = config.work_dir is None
        try:
            work_dir = temporary_folder() if config.folder is None else config.folder
            work_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            which = "A temporary work directory" if temporary else f"The work directory {config.work_dir!r}"
            raise SandboxUnavailable(f"{which} cannot be used: {error}") from error
        lender = LENDER.get()
        try:
            sandbox = config.make_sandbox(work_dir)
        except BaseException:
            if temporary:
                remove_folder(work_dir)
            raise
        return BlocksRun(
            sandbox if lender is None else lender.take(sandbox),
            work_dir,
            self._functions,
            in_session=config.state == "session",
            shows_values=self._shows_values,
            temporary=temporary,
            processes=config.processes,
            editing=config.editing,
            leave=Sandbox.close if lender is None else lender.leave,
        )
