"""The executor for code as ordinary local processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from autogen_core import CancellationToken, Component
from autogen_core.code_executor import CodeBlock, CodeExecutor

from coderoom._util.components import DumpsAsItself
from coderoom.executors.calls import CallEnded
from coderoom.executors.execution import Execution, LocalCodeResult
from coderoom.executors.own import WorksInFolder, texts
from coderoom.executors.place import LocalCodeExecutorConfig, LocalPlace
from coderoom.outcome import Outcome

__all__ = ["LocalCodeExecutor", "LocalCodeExecutorConfig"]


class LocalCodeExecutor(
    DumpsAsItself,
    WorksInFolder[LocalCodeExecutorConfig, LocalPlace],
    CodeExecutor,
    Component[LocalCodeExecutorConfig],
):
    """Runs code as ordinary processes of the user, within limits but without isolation.

    The code can read and write whatever the user can, and can use the network. What it cannot do by accident: run on
    after its time, leave processes behind, take the terminal's input, or find the secrets of the host's environment in
    its own. Code that looks for them will find them, for instance in the memory of other processes of this user.

    Each block runs in a process of its own, in order, up to the first that fails. Languages: `python`, `sh` (`shell`),
    `bash`, and `javascript` where `node` is installed. A first line `# filename: src/a.py` names the file that the
    block is kept in; what the code writes is kept as well. Of more than 1 MiB that a block prints the result has the
    beginning and the end, and a file in the work directory's `.coderoom` has the first 64 MiB. It starts by itself with
    the first code.

    Args:
        work_dir: The folder that the code runs in. It is made if it is not there, and stays. `None`: a temporary
            folder, made at the start and removed by `stop`.
        timeout: The seconds that each block has.
        env: Names of environment variables to pass on to the code, besides those that programs need to run at all
            (`PATH`, `HOME`, the locale, ...). Their values are read when the code is started and are not in the config.
        python: The Python interpreter for the code, as a path or a name in `PATH`; `None`: the one that
            `CODEROOM_PYTHON` names, else the one that runs this.
    """

    component_type = "code_executor"
    component_config_schema = LocalCodeExecutorConfig
    component_provider_override = "coderoom.executors.LocalCodeExecutor"

    def __init__(
        self,
        work_dir: str | Path | None = None,
        timeout: float = 60,
        env: Sequence[str] = (),
        python: str | Path | None = None,
    ) -> None:
        self._config = LocalCodeExecutorConfig(
            work_dir=None if work_dir is None else str(work_dir),
            timeout=timeout,
            env=texts("env", env),
            python=None if python is None else str(python),
        )
        self._place: LocalPlace | None = None

    async def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken
    ) -> LocalCodeResult:
        """Run the blocks in order, up to the first that fails.

        Several calls may run at the same time.

        Args:
            code_blocks: The blocks.
            cancellation_token: Ends the code when it is cancelled, from any thread.

        Returns:
            The result. What the code can be blamed for is in its exit code and its output: 124 if its time was up,
            125 if `stop` or `restart` ended it.

        Raises:
            asyncio.CancelledError: The token or the surrounding task was cancelled; the code has been ended.
            SandboxUnavailable: The code could not be run for a reason of ours.
        """
        await self.start()
        place = self._place
        assert place is not None
        try:
            execution, file = await place.calls.run(lambda _: place.run(code_blocks), cancellation_token)
        except CallEnded:
            execution, file = Execution.cancelled(), None
        output = execution.output
        if execution.outcome is Outcome.TIMEOUT:
            gap = "" if not output or output.endswith("\n") else "\n"
            output += f"{gap}The code was stopped after {self.timeout:g} seconds: Timeout"
        return LocalCodeResult(execution.exit_code, output, None if file is None else str(file), execution)

    async def start(self) -> None:
        """Make the work directory ready; a second time does nothing."""
        # Without an `await` in it: runs that begin together find one place.
        if self._place is None:
            self._place = LocalPlace(self._config)

    async def stop(self) -> None:
        """End what runs and remove what is temporary; the next code starts it again."""
        place, self._place = self._place, None
        if place is not None:
            await place.close()

    async def restart(self) -> None:
        """End what runs, if it was started; a temporary work directory is replaced by an empty one."""
        if self._place is not None:
            await self.stop()
            await self.start()

    @classmethod
    def _from_config(cls, config: LocalCodeExecutorConfig) -> Self:
        return cls(work_dir=config.work_dir, timeout=config.timeout, env=config.env, python=config.python)
