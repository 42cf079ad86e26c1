"""AutoGen's own local executor, given by a user, under our supervision."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom._util.python import default_python
from coderoom.executors.cells import CellRefused, named_file
from coderoom.executors.execution import Execution, Transcript
from coderoom.executors.supervise import Control, PrivateFolder, Settings, run_block, supervised

__all__ = ["RawLocal"]

_SHELLS = ("sh", "bash", "pwsh", "powershell")


class RawLocal:
    """Runs code through an executor that stays its owner's: its folder, its timeout and the whole environment.

    The one variable that is set is `PYTHONUNBUFFERED`, without which the output of stopped code would be lost.

    Args:
        executor: A started executor.
    """

    def __init__(self, executor: LocalCommandLineCodeExecutor) -> None:
        self._executor = executor
        self._private = PrivateFolder()
        self._setting_up = asyncio.Lock()

    async def run(self, blocks: Sequence[CodeBlock]) -> Execution:
        """Run the blocks in order, up to the first that fails."""
        executor = self._executor
        transcript = Transcript(executor.work_dir)
        async with self._setting_up:
            if not executor._setup_functions_complete:
                await self._set_up_functions()
        # One by one, so that each has its own report and a block that is refused does not cost the others' output.
        for block in blocks:
            _make_parents(block, executor.work_dir)
            control = self._control()
            try:
                well = await transcript.add(await run_block(executor, block, control))
            finally:
                control.remove()
            if not well:
                break
        return transcript.execution()

    def close(self) -> None:
        """Remove what is temporary."""
        self._private.remove()

    async def _set_up_functions(self) -> None:
        control = self._control()
        try:
            copy = supervised(self._executor, control)
            # Without any block, AutoGen's executor does just this.
            await copy.execute_code_blocks([], CancellationToken())
            self._executor._setup_functions_complete = copy._setup_functions_complete
        finally:
            control.remove()

    def _control(self) -> Control:
        # Its owner's virtual environment is private in AutoGen 0.7.5 too.
        context = self._executor._virtual_env_context
        path = os.environ.get("PATH", os.defpath)
        python = default_python()
        if context is not None:
            python = str(Path(context.env_exe).absolute())
            path = f"{Path(context.bin_path).absolute()}{os.pathsep}{path}"
        settings = Settings(
            deadline=self._executor.timeout,
            programs={"python": python, **{name: shutil.which(name, path=path) for name in _SHELLS}},
            variables={"PATH": path, "PYTHONUNBUFFERED": "1"},
        )
        return Control(self._private.path, settings)


def _make_parents(block: CodeBlock, work_dir: Path) -> None:
    # AutoGen's executor raises if they are not there. What else may be wrong with the name it says itself.
    with contextlib.suppress(CellRefused, OSError):
        path = named_file(block.code, work_dir)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
