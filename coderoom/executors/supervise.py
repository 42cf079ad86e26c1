"""AutoGen's local executor, with the launcher between it and the code.

AutoGen's executor starts `python`, `sh` and the like from the folders of its virtual environment. Here that environment
is a folder of small scripts by those names, each of which starts `launch.py` with the real program.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import math
import os
import shlex
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeResult
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom._util.temporary import remove_folder
from coderoom.errors import SandboxUnavailable
from coderoom.executors import launch
from coderoom.executors.execution import TIMEOUT_CODE, Execution
from coderoom.outcome import Outcome

__all__ = ["Control", "PrivateFolder", "Settings", "run_block", "supervised"]

_LAUNCHER = Path(__file__).with_name("launch.py")
_MARGIN = 4.0  # What the launcher has, beyond the deadline, for ending the code before AutoGen's executor steps in.
_END_PATIENCE = 0.9
_KILL_PATIENCE = 0.2


class PrivateFolder:
    """A temporary folder that only this user can look into, and that is removed at the latest when Python ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="coderoom-")).resolve()
        self._remove = weakref.finalize(self, _remove_tree, self.path, os.getpid())

    def remove(self) -> None:
        """Remove it; a second time does nothing."""
        self._remove()


@dataclass(frozen=True)
class Settings:
    """What the launcher is told.

    Attributes:
        deadline: The seconds that the program has.
        programs: The real programs by the names under which AutoGen's executor starts them; `None` for a missing one.
        names: The environment variables to pass on, or `None` for all.
        prefixes: Beginnings of further names to pass on.
        variables: Environment variables to set.
        command: The command to run in place of the one that AutoGen's executor asks for.
        cwd: The directory to run it in, if not that of AutoGen's executor.
        litter: What else to remove if this process ends before the code does.
    """

    deadline: float
    programs: Mapping[str, str | None]
    names: Sequence[str] | None = None
    prefixes: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] | None = None
    cwd: Path | None = None
    litter: Sequence[Path] = ()


class Control:
    """The private folder of one program's run: the scripts, the launcher's orders, and its report.

    Args:
        root: The folder to make it in. It goes as well if this process ends before the code does.
        settings: What the launcher is told.

    Raises:
        SandboxUnavailable: It cannot be made.
    """

    def __init__(self, root: Path, settings: Settings) -> None:
        self.settings = settings
        try:
            self.path = Path(tempfile.mkdtemp(prefix="run-", dir=root))
            self.programs = self.path / "bin"
            self._fill(root)
        except OSError as error:
            raise SandboxUnavailable(
                f"CodeRoom's own folder {str(root)!r} cannot be used: {error}; stop the executor to get a new one."
            ) from error

    def _fill(self, root: Path) -> None:
        settings = self.settings
        self.programs.mkdir()
        for name, program in settings.programs.items():
            self._write_script(name, program)
        orders = {
            "host": os.getpid(),
            "deadline": settings.deadline,
            "names": None if settings.names is None else list(settings.names),
            "prefixes": list(settings.prefixes),
            "set": dict(settings.variables),
            "command": None if settings.command is None else list(settings.command),
            "cwd": None if settings.cwd is None else str(settings.cwd),
            "litter": [str(root), *map(str, settings.litter)],
        }
        (self.path / "settings.json").write_text(json.dumps(orders), encoding="utf-8")

    def _write_script(self, name: str, program: str | None) -> None:
        script = self.programs / name
        if program is None:
            lines = [f"echo {shlex.quote(f'{name!r} is not installed here.')} >&2", "exit 127"]
        else:
            # The id stays the same from here to the launcher, and is known before the launcher can tell it.
            start = [sys.executable, "-I", "-S", str(_LAUNCHER), str(self.path), program]
            lines = [f"echo $$ > {shlex.quote(str(self.path / 'pid'))}", f'exec {shlex.join(start)} "$@"']
        script.write_text("\n".join(["#!/bin/sh", *lines, ""]), encoding="utf-8")
        script.chmod(0o700)
        if not os.access(script, os.X_OK):
            raise SandboxUnavailable(
                f"Programs may not run from {str(self.path.parent)!r}, where CodeRoom keeps the script that starts the "
                "code; set TMPDIR to a folder where they may."
            )

    def launcher(self) -> int | None:
        """Return the launcher's process id, or `None` if none was started."""
        try:
            return int((self.path / "pid").read_text())
        except (OSError, ValueError):
            return None

    def was_refused(self) -> bool:
        """Tell whether AutoGen's executor started nothing, as it does for an unknown language or a bad file name."""
        return self.settings.command is None and self.launcher() is None and self.programs.is_dir()

    def report(self) -> dict[str, Any] | None:
        """Return what the launcher reports, or `None` if it did not come to that."""
        try:
            report = json.loads((self.path / "report.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return report if isinstance(report, dict) else None

    def output_so_far(self) -> str:
        """Return, in bounds, what the program wrote up to now."""
        try:
            with (self.path / "whole.txt").open("rb") as file:
                return file.read(launch.KEEP).decode("utf-8", "replace")
        except OSError:
            return ""

    def kill(self) -> None:
        """End the launcher and all below it by force; for one that cannot do so itself."""
        pid = self.launcher()
        # An id may have been given to another process by now.
        if pid is None or (Path("/proc").is_dir() and not self._is_launcher(pid)):
            return
        for _ in range(20):
            below = launch.descendants(pid)
            if not below:
                break
            launch.send(below, 9)
        launch.send([pid], 9)

    def _is_launcher(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return os.fsencode(self.path) in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)


def supervised(executor: LocalCommandLineCodeExecutor, control: Control) -> LocalCommandLineCodeExecutor:
    """Return a copy of AutoGen's local executor that runs its code under the launcher.

    A copy, so that the original stays its owner's: its dump is the same, and runs in parallel do not meet in it.
    """
    executor = copy.copy(executor)
    # AutoGen has no public way to set these two after construction. Its 0.7.5 is frozen, so they stay what they are.
    executor._virtual_env_context = SimpleNamespace(
        env_exe=str(control.programs / "python"), bin_path=str(control.programs)
    )
    executor._timeout = math.ceil(control.settings.deadline + _MARGIN)
    return executor


async def run_block(executor: LocalCommandLineCodeExecutor, block: CodeBlock, control: Control) -> Execution:
    """Run one block through AutoGen's local executor and the launcher.

    When this task is cancelled, the code and all that it started is ended first.

    Args:
        executor: AutoGen's executor. It is copied and not changed.
        block: The block.
        control: The folder of this run.

    Raises:
        SandboxUnavailable: The launcher broke.
    """
    runner = supervised(executor, control)
    task = asyncio.create_task(runner.execute_code_blocks([block], CancellationToken()))
    # The code has its user's rights and may have frozen the launcher, which then enforces nothing.
    overdue = asyncio.get_running_loop().call_later(control.settings.deadline + _MARGIN + 2, control.kill)
    try:
        await asyncio.wait((task,))
    finally:
        overdue.cancel()
        if not task.done():
            task.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())
            task.cancel()
            await asyncio.wait((task,), timeout=_END_PATIENCE)
            if not task.done():
                control.kill()
                await asyncio.wait((task,), timeout=_KILL_PATIENCE)
    return _conclude(task.result(), control)


def _conclude(result: CodeResult, control: Control) -> Execution:
    report = control.report()
    if report is None:
        return _conclude_without_report(result, control)
    outcome, code, output = report["outcome"], int(report["exit_code"]), result.output
    if outcome == "ok" and result.exit_code != code:
        # The launcher ends with the exit code that it reports: somebody else wrote this report.
        outcome, code = Outcome.ERROR, result.exit_code if result.exit_code > 0 else 128 - result.exit_code
    if outcome == "unavailable":
        raise SandboxUnavailable(f"The code could not be run: {report['message']}")
    if outcome == "cancelled":
        # Who cancels does not come here, so it was the code that sent its keeper a signal.
        outcome, code, output = Outcome.ERROR, 143, control.output_so_far()
    return Execution(
        outcome=Outcome(outcome),
        exit_code=code,
        output=output,
        duration=float(report["duration"]),
        total_chars=int(report["total_chars"]),
        whole_output=Path(report["whole"]) if report["truncated"] and report["whole"] else None,
    )


def _conclude_without_report(result: CodeResult, control: Control) -> Execution:
    if control.was_refused():
        outcome = Outcome.ERROR if result.exit_code else Outcome.OK
        return Execution(outcome, result.exit_code, result.output, total_chars=len(result.output))
    output = control.output_so_far()
    if result.exit_code == TIMEOUT_CODE:
        return Execution(Outcome.TIMEOUT, TIMEOUT_CODE, output, control.settings.deadline, total_chars=len(output))
    if result.exit_code < 0:
        code = 128 - result.exit_code
        output += f"\n[The process that watched over this code was ended by signal {-result.exit_code}.]\n"
        return Execution(Outcome.ERROR, code, output, total_chars=len(output))
    raise SandboxUnavailable(f"The code's launcher broke, with exit code {result.exit_code}: {result.output[-2000:]}")


def _remove_tree(path: Path, owner: int) -> None:
    if os.getpid() != owner:  # A fork of the process that made it ends without it.
        return
    remove_folder(path)
