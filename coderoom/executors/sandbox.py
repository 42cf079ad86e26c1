"""The executor for code in a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from coderoom._util.components import DumpsAsItself
from coderoom._util.watching import at_end_of_run, note_run
from coderoom.errors import RequestError
from coderoom.executors.calls import CallEnded
from coderoom.executors.execution import Execution
from coderoom.executors.own import WorksInFolder, texts
from coderoom.executors.sandbox_config import EngineName, Policy, SandboxCodeExecutorConfig, State, WallName
from coderoom.executors.sandbox_runtime import OnOutput, SandboxPlace
from coderoom.sandbox import Artifact, Checkpoint, HostFunction, Limits

__all__ = ["SandboxCodeExecutor", "SandboxCodeExecutorConfig", "SandboxCodeResult"]


@dataclass
class SandboxCodeResult(CodeResult):
    """AutoGen's code result together with what CodeRoom knows beyond it.

    Attributes:
        execution: How the code ended.
    """

    execution: Execution

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The files that the code made or changed, with their places on this machine."""
        return self.execution.artifacts


@dataclass(frozen=True, eq=False)
class SandboxMark:
    """A state that a `SandboxCodeExecutor` can go back to."""

    place: SandboxPlace
    checkpoint: Checkpoint


class SandboxCodeExecutor(
    DumpsAsItself,
    WorksInFolder[SandboxCodeExecutorConfig, SandboxPlace],
    CodeExecutor,
    Component[SandboxCodeExecutorConfig],
):
    """Runs code behind a wall that keeps it from this machine: see `coderoom.sandbox`.

    The code sees its work directory, as `/workspace` behind most walls, and the interpreter, read-only. It has no
    network unless it is given one, an environment of its own, and limits. When it ends, is cancelled or runs out of
    time, nothing of it is left running.

    Blocks run in order, up to the first that fails. Under `state="session"` each is a cell of one session: variables
    and imports stay, from block to block and from call to call, also over a failure; where they are lost the output
    says so. Under `state="fresh"` each begins with nothing but the files. The output is what was printed, in order, and
    the value of a last expression. Languages: `python`, `sh` (`shell`), `bash`, and `javascript` where `node` is
    installed. A first line `# filename: src/a.py` also keeps the block in that file. It starts by itself with the
    first code, can be used again after `stop`, and in another event loop.

    Args:
        work_dir: The folder that the code works in. It is made if it is not there, and stays. `None`: a temporary
            folder, made at the start and removed by `stop`, or when this process ends.
        timeout: The seconds that each block has; it takes the place of `limits.wall_seconds`.
        state: `session` or `fresh`.
        wall: `auto` for the strongest that this machine has, or `bubblewrap`, `namespaces`, `sandlock`, `landlock`,
            `docker`; `none` for no wall at all.
        preload: Modules that are imported once at the start, for all blocks.
        network: Whether the code may use the network.
        policy: `open`, or `restricted` for a small Python whose rules are told to whoever wrote the code. It is early
            feedback and no wall.
        limits: What the code may use, as `Limits` or a mapping of what differs from them.
        env: Names of environment variables to pass on to the code. Their values are read at the start and are not in
            the config.
        python: The interpreter for the code, as a path; `None`: the one that `CODEROOM_PYTHON` names, else the one that
            runs this.
        readable: More folders that the code may read, at their own paths.
        options: What only the chosen wall understands, for instance `image` for `docker`.
        engine: `cpython`, or `monty` for pydantic-monty's small Python, which needs no wall, runs only Python and has
            no network, no packages and no other programs (`pip install 'coderoom[monty]'`).
    """

    component_type = "code_executor"
    component_config_schema = SandboxCodeExecutorConfig
    component_provider_override = "coderoom.executors.SandboxCodeExecutor"

    def __init__(
        self,
        work_dir: str | Path | None = None,
        timeout: float = 60,
        state: State = "session",
        wall: WallName = "auto",
        preload: Sequence[str] = (),
        network: bool = False,
        policy: Policy = "open",
        limits: Limits | Mapping[str, Any] | None = None,
        env: Sequence[str] = (),
        python: str | Path | None = None,
        readable: Sequence[str | Path] = (),
        options: Mapping[str, Any] | None = None,
        engine: EngineName = "cpython",
    ) -> None:
        note_run()
        self._config = SandboxCodeExecutorConfig(
            work_dir=None if work_dir is None else str(work_dir),
            timeout=timeout,
            state=state,
            wall=wall,
            preload=texts("preload", preload),
            network=network,
            policy=policy,
            limits=limits if limits is None or isinstance(limits, Limits) else Limits(**limits),
            env=texts("env", env),
            python=None if python is None else str(python),
            readable=texts("readable", readable),
            options=dict(options or {}),
            engine=engine,
        )
        self._functions: tuple[HostFunction, ...] = ()
        self._place: SandboxPlace | None = None
        self.has_owner = False
        """Whether somebody stops it: AutoGen's own agents and tools do not."""

    async def offer(self, functions: Sequence[HostFunction]) -> None:
        """Let the code call functions of the host, these and no others; a session that stands is restarted.

        They are no part of the config: whoever makes the executor offers them again.

        Args:
            functions: What `coderoom.sandbox.host_functions` returns.

        Raises:
            RequestError: Without `state="session"` there is nothing that could call them.
        """
        if functions and self._config.state != "session":
            raise RequestError("Functions of the host can only be offered with state='session'.")
        self._functions = tuple(functions)
        if self._place is not None:
            place = await self._get_place()
            await place.offer(self._functions)

    @property
    def state(self) -> State:
        """Whether variables last (`session`) or not (`fresh`)."""
        return self._config.state

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that run here."""
        small = self._config.engine == "monty" or self._config.policy == "restricted"
        return ("python",) if small else ("python", "sh", "bash", "javascript")

    @property
    def interrupted(self) -> Execution | None:
        """What is known of the last run, if that was cancelled in its midst; the output goes up to there."""
        return None if self._place is None else self._place.interrupted

    @property
    def wall(self) -> str:
        """The name of the wall; `auto` until one is chosen at the start, `monty` for the engine that needs none."""
        return self._config.wall if self._place is None else self._place.sandbox.wall

    async def execute_code_blocks(
        self,
        code_blocks: Sequence[CodeBlock],
        cancellation_token: CancellationToken,
        on_output: OnOutput | None = None,
    ) -> SandboxCodeResult:
        """Run the blocks in order, up to the first that fails.

        Several calls may be made at the same time; in a session they run one after the other.

        Args:
            code_blocks: The blocks.
            cancellation_token: Ends the code when it is cancelled, from any thread.
            on_output: Called with what the code prints while it prints it.

        Returns:
            The result. What the code can be blamed for is in its exit code and its output: 124 if its time was up,
            137 if it wanted too much memory, 126 if the policy does not allow it, 125 if `stop` or `restart` ended it.

        Raises:
            asyncio.CancelledError: The token or the surrounding task was cancelled; the code has been ended.
            SandboxUnavailable: The sandbox broke or cannot be built; that says nothing about the code.
            RequestError: The configuration asks for something that cannot be.
            MissingDependencyError: A module of `preload` cannot be imported.
        """
        if not self.has_owner:
            at_end_of_run(self.stop)
        place = await self._get_place()
        try:
            execution = await place.calls.run(lambda _: place.run(code_blocks, on_output), cancellation_token)
        except CallEnded:
            execution = Execution.cancelled()
        return SandboxCodeResult(execution.exit_code, execution.output, execution)

    async def start(self) -> None:
        """Choose the wall and start the sandbox; a second time does nothing.

        Raises:
            SandboxUnavailable: There is no wall to be had here, or it cannot be built.
            RequestError: The configuration asks for something that cannot be.
            MissingDependencyError: A module of `preload` cannot be imported.
        """
        place = await self._get_place()
        try:
            await place.start()
        except BaseException:
            if self._place is place:
                await self.stop()
            raise

    async def stop(self) -> None:
        """End what runs and remove what is temporary; the next code starts it again."""
        place, self._place = self._place, None
        if place is not None:
            await (place.close() if place.loop is asyncio.get_running_loop() else place.abandon())

    async def restart(self) -> None:
        """End what runs and go back to a fresh state, if it was started; a temporary work directory is emptied.

        Raises:
            SandboxUnavailable: The sandbox broke.
        """
        if self._place is not None:
            place = await self._get_place()
            await place.restart()

    async def checkpoint(self) -> SandboxMark:
        """Keep the variables and the files of the work directory, unless there are too many of these to be copied.

        Returns:
            What `rollback` and `release` take. It lasts until `restart` or `stop`.

        Raises:
            RequestError: The files are all that there is to keep, and there are too many.
            SandboxUnavailable: The sandbox broke or cannot be built.
        """
        place = await self._get_place()
        return SandboxMark(place, await place.checkpoint())

    async def rollback(self, mark: SandboxMark) -> str:
        """Go back to a checkpoint as if nothing had happened since; as often as wanted.

        Checkpoints that were made after it are gone.

        Args:
            mark: What `checkpoint` returned.

        Returns:
            What is as it was then: "variables and files", or one of the two.

        Raises:
            RequestError: The checkpoint is gone, or another executor's.
            SandboxUnavailable: The sandbox broke.
        """
        if self._place is None or mark.place is not self._place:
            raise RequestError("This checkpoint is gone: the executor was stopped since, or it is another executor's.")
        return await self._place.rollback(mark.checkpoint)

    async def release(self, mark: SandboxMark) -> None:
        """Let go of a checkpoint that nobody goes back to any more.

        Args:
            mark: What `checkpoint` returned.
        """
        if mark.place is self._place:
            await mark.place.release(mark.checkpoint)

    async def _get_place(self) -> SandboxPlace:
        if self._place is not None and self._place.loop is not asyncio.get_running_loop():
            await self.stop()
        # Without an `await` from here on: calls that begin together find one place.
        if self._place is None:
            self._place = SandboxPlace(self._config, self._functions)
        return self._place

    @classmethod
    def _from_config(cls, config: SandboxCodeExecutorConfig) -> Self:
        return cls(**{name: getattr(config, name) for name in SandboxCodeExecutorConfig.model_fields})
