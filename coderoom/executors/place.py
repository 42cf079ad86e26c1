"""The folders and processes of a local executor."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom._util.python import default_python
from coderoom._util.tasks import to_its_end
from coderoom.errors import SandboxUnavailable
from coderoom.executors.calls import Calls
from coderoom.executors.cells import Cell, CellRefused, Programs, write_cell
from coderoom.executors.execution import Execution, Transcript
from coderoom.executors.own import OwnConfig, absolute
from coderoom.executors.supervise import Control, PrivateFolder, Settings, run_block

__all__ = ["LocalCodeExecutorConfig", "LocalPlace"]

_PASSED_ON = (
    "CONDA_PREFIX",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "MPLCONFIGDIR",
    "PATH",
    "REQUESTS_CA_BUNDLE",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
    "XDG_CACHE_HOME",
)
_PASSED_ON_PREFIXES = ("LC_",)
_SET = {
    "MPLBACKEND": "Agg",  # A window would wait for somebody to close it.
    "PYTHONIOENCODING": "utf-8",
    "PYTHONUNBUFFERED": "1",  # What was printed must be there when the code has to be stopped.
    "PYTHONUTF8": "1",
}
_END_PATIENCE = 1.2


class LocalCodeExecutorConfig(OwnConfig):
    """The declarative form of `LocalCodeExecutor`."""


class LocalPlace:
    """What a started `LocalCodeExecutor` has: its folders, and AutoGen's executor.

    Args:
        config: The executor's configuration.

    Raises:
        SandboxUnavailable: The work directory or the interpreter cannot be used.
    """

    def __init__(self, config: LocalCodeExecutorConfig) -> None:
        if os.name != "posix":
            raise SandboxUnavailable("LocalCodeExecutor needs Linux or macOS; use AutoGen's Docker executor here.")
        self.config = config
        self.calls = Calls(_END_PATIENCE)
        self.programs = _find_programs(config.python)
        self.private = PrivateFolder()
        own = self.private.path / "work"
        self.work_dir = own if config.work_dir is None else absolute(config.work_dir)
        try:
            self.work_dir.mkdir(parents=True, exist_ok=True)
            self.work_dir = self.work_dir.resolve()
            with warnings.catch_warnings():
                # AutoGen warns of what the class above says in its first line.
                warnings.simplefilter("ignore")
                self._executor = LocalCommandLineCodeExecutor(
                    timeout=math.ceil(config.timeout), work_dir=self.private.path / "requests"
                )
        except OSError as error:
            self.private.remove()
            raise SandboxUnavailable(f"The work directory {str(self.work_dir)!r} cannot be used: {error}") from error

    async def run(self, blocks: Sequence[CodeBlock]) -> tuple[Execution, Path | None]:
        """Run blocks, and return with the execution the first one's file."""
        transcript = Transcript(self.work_dir)
        first: Path | None = None
        for number, block in enumerate(blocks, start=1):
            try:
                cell = self._write(block, number)
            except CellRefused as refused:
                await transcript.add(Execution.refused(str(refused)))
                break
            first = first or cell.path
            try:
                well = await self._run_cell(cell, transcript)
            finally:
                cell.remove()
            if not well:
                break
        return transcript.execution(), first

    def _write(self, block: CodeBlock, number: int) -> Cell:
        try:
            # Earlier code may have removed it. One of ours has a private folder around it, which is not made here.
            self.work_dir.mkdir(parents=self.config.work_dir is not None, exist_ok=True)
            return write_cell(block, number, self.work_dir, self.programs)
        except OSError as error:
            raise SandboxUnavailable(f"The work directory {str(self.work_dir)!r} cannot be used: {error}") from error

    async def _run_cell(self, cell: Cell, transcript: Transcript) -> bool:
        settings = Settings(
            deadline=self.config.timeout,
            programs={"python": sys.executable},
            names=(*_PASSED_ON, *self.config.env),
            prefixes=_PASSED_ON_PREFIXES,
            variables={
                name: value
                for name, value in (_SET | {"PATH": self.programs.path}).items()
                if name not in self.config.env
            },
            command=cell.command,
            cwd=self.work_dir,
            litter=[cell.path] if cell.temporary else [],
        )
        control = Control(self.private.path, settings)
        try:
            # The command is among the launcher's settings, so this block only says which run it is.
            request = CodeBlock(code=f"# {control.path.name}", language="python")
            return await transcript.add(await run_block(self._executor, request, control))
        except (OSError, LookupError, ValueError) as error:
            cause = f"{type(error).__name__}: {error}"
            raise SandboxUnavailable(f"AutoGen's local executor could not start the code ({cause}).") from error
        finally:
            control.remove()

    async def close(self) -> None:
        """End what runs and remove what is temporary."""
        await to_its_end(self._close())

    async def _close(self) -> None:
        await self.calls.end_all()
        await asyncio.to_thread(self.private.remove)


def _find_programs(python: str | None) -> Programs:
    wanted = python or default_python()
    path = os.environ.get("PATH", os.defpath)
    found = shutil.which(wanted)
    if found is None:
        raise SandboxUnavailable(
            f"python={wanted!r} is not a program that can be started; give the path of a Python interpreter."
        )
    # Links stay as they are: an interpreter knows its virtual environment by the path it was started with.
    interpreter = Path(found).absolute()
    # A shell that calls `python` should get the interpreter that Python blocks get.
    if shutil.which("python", path=path) != str(interpreter):
        path = f"{interpreter.parent}{os.pathsep}{path}"
    return Programs(str(interpreter), path)
