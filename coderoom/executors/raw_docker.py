"""AutoGen's own Docker executor, given by a user, under our supervision."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker  # type: ignore[import-untyped]
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor

from coderoom._util.temporary import remove_folder
from coderoom.executors.cells import CellRefused, named_file
from coderoom.executors.docker_command import Attached
from coderoom.executors.docker_names import free_name, owner_host, sweep_containers
from coderoom.executors.execution import TIMEOUT_CODE, Execution, Transcript
from coderoom.executors.folder import write_inside
from coderoom.executors.launch import KEEP, WHOLE, Output
from coderoom.executors.supervise import PrivateFolder
from coderoom.outcome import Outcome

__all__ = ["RawDocker"]

_PWSH = ("pwsh", "powershell", "ps1")
_LANGUAGES = ("python", "python3", "py", "sh", "bash", "shell", *_PWSH)
_LOOK = 0.25  # between two looks at whether the code has ended while something holds its output open
_LEFTOVER_GRACE = 0.2
_LEFTOVER_ROUNDS = 10


class RawDocker:
    """Starts, uses and stops an executor that stays its owner's: its image, its folders, its timeout.

    All that a run has started is ended with it. Two variables are set for it: `PYTHONUNBUFFERED`, without which the
    output of stopped code would be lost, and `CODEROOM_RUN`, by which its processes are known if there may be others:
    another run, or what the owner started in there. A process that has put off the variable outlives such a run.

    It is no better wall than AutoGen's: the code is root in there, unless the image says otherwise, and has a network.

    Args:
        executor: An executor, perhaps started.
    """

    def __init__(self, executor: DockerCommandLineCodeExecutor) -> None:
        self._executor = executor
        self._private: PrivateFolder | None = None
        self._setting_up = asyncio.Lock()
        self._gate = asyncio.Lock()
        self._running = 0
        self._ours = False  # Nothing but our runs is in the container.
        self._given_name: str | None = None
        self._at_exit: Any = None

    async def start(self) -> None:
        """Start the executor, in a container whose name is nobody else's; what the dead have left is removed first."""
        executor = self._executor
        await asyncio.to_thread(sweep_containers)
        before = executor._container
        self._given_name = executor.container_name
        executor.container_name = await asyncio.to_thread(free_name, executor.container_name)
        executor._setup_functions_complete = not executor._functions
        hosts = executor._extra_hosts
        if executor._stop_container:
            executor._extra_hosts = {**hosts, **owner_host()}
        try:
            await executor.start()
        except BaseException:
            if executor._container is not None and executor._container is not before:
                await asyncio.shield(asyncio.to_thread(_remove, executor._container))
            self._clear_away()
            raise
        finally:
            executor._extra_hosts = hosts
        self._ours = executor._init_command is None
        if executor._stop_container:
            # AutoGen's executor means to do so when the loop is closed, and cannot any more.
            self._at_exit = weakref.finalize(self, _give_up, self._end_container, executor._container, os.getpid())

    async def stop(self) -> None:
        """Stop the executor: first the container, at once, and then its folder."""
        executor = self._executor
        container = executor._container
        if container is not None and (executor._running or self._given_name is not None):
            async with self._gate:  # What is being ended has no say afterwards.
                await asyncio.to_thread(self._end_container, container)
        if self._at_exit is not None:
            self._at_exit.detach()
        self._clear_away()
        try:
            await executor.stop()
        finally:
            # AutoGen's executor looks for the container by this name.
            if self._given_name is not None:
                executor.container_name, self._given_name = self._given_name, None

    async def restart(self) -> None:
        """Restart the container, or make a new one if that fails."""
        container = self._executor._container
        async with self._gate:
            well = container is not None and await asyncio.to_thread(_restart_container, container)
        if not well:
            await self.stop()
            await self.start()

    async def run(self, blocks: Sequence[CodeBlock]) -> Execution:
        """Run the blocks in order, up to the first that fails."""
        if self._private is None:
            self._private = PrivateFolder()
        async with self._setting_up:
            if not self._executor._running and self._given_name is not None:
                # AutoGen's executor has stopped itself together with the loop that it was started in.
                await self.stop()
                await self.start()
                self._private = PrivateFolder()
            if not self._executor._setup_functions_complete:
                await self._supervised(_Run(self, self._private.path))._setup_functions(CancellationToken())
                self._executor._setup_functions_complete = True
        # The work directory is in the hands of the container, which may put links there: we write elsewhere first.
        transcript = Transcript(self._private.path)
        for block in blocks:
            if not await transcript.add(await self._run_block(block, self._private.path)):
                break
        execution = transcript.execution()
        if execution.whole_output is not None:
            whole = await asyncio.to_thread(_hand_over, execution.whole_output, self._executor.work_dir)
            execution = replace(execution, whole_output=whole)
        return execution

    async def _run_block(self, block: CodeBlock, folder: Path) -> Execution:
        work_dir = self._executor.work_dir
        language = block.language.strip().lower()
        if language not in _LANGUAGES:
            known = ", ".join(sorted(_LANGUAGES))
            return Execution.refused(f"Unknown language {block.language!r}: this executor runs {known}.")
        run = _Run(self, folder)
        if language in _PWSH:
            # AutoGen's executor looks for it on this machine, and gives the file an ending that it does not take.
            run.program = "pwsh"
            name = "" if block.code.startswith("# filename:") else f"# filename: tmp_code_{uuid.uuid4().hex}.ps1\n"
            block = CodeBlock(code=name + block.code, language="sh")
        else:
            block = CodeBlock(code=block.code, language=language)
        _prepare(block, work_dir)
        try:
            result = await self._supervised(run).execute_code_blocks([block], CancellationToken())
        except OSError as error:
            if run.begun or not work_dir.is_dir():
                raise
            return Execution.refused(f"The file for the code cannot be written: {error.strerror or error}.")
        if run.execution is not None:
            return run.execution
        outcome = Outcome.ERROR if result.exit_code else Outcome.OK
        return Execution(outcome, result.exit_code, result.output + "\n", total_chars=len(result.output) + 1)

    def _supervised(self, run: _Run) -> DockerCommandLineCodeExecutor:
        # AutoGen's executor writes the file and we run it. A copy, so that the original stays its owner's.
        executor = copy.copy(self._executor)
        executor._execute_command = run  # type: ignore[method-assign]
        return executor

    async def attach(self, command: list[str], mark: str, output: Output) -> Attached:
        """Start a command in the container."""
        container = self._executor._container
        if container is None or not self._executor._running:
            raise RuntimeError("the container is not running")
        async with self._gate:
            attached = await asyncio.to_thread(Attached, container, command, mark, output, asyncio.get_running_loop())
            self._running += 1
            return attached

    async def kill(self, attached: Attached, mark: str) -> None:
        """End a command with all that it has started."""
        async with self._gate:
            self._running -= 1
            alone = self._ours and self._running == 0
            await asyncio.to_thread(attached.kill, None if alone else mark)

    @property
    def timeout(self) -> float:
        """How long a block may take, in seconds."""
        return self._executor.timeout

    @property
    def _end_container(self) -> Callable[[Any], None]:
        return _remove if self._executor._auto_remove else _kill_container

    def _clear_away(self) -> None:
        temporary, self._executor._temp_dir = self._executor._temp_dir, None
        if temporary is not None:
            remove_folder(Path(temporary.name))
            # The code may have been root and we are not: what cannot be removed must not keep us from ending.
            with contextlib.suppress(OSError):
                temporary.cleanup()
        if self._private is not None:
            self._private.remove()
            self._private = None


class _Run:
    """Runs one command in place of AutoGen's executor.

    Args:
        raw: Whose container it is.
        folder: For the output.

    Attributes:
        program: The program to run in place of the one that AutoGen's executor asks for.
        begun: Whether it came to that.
        execution: How it ended.
    """

    def __init__(self, raw: RawDocker, folder: Path) -> None:
        self._raw = raw
        self._folder = folder
        self.program: str | None = None
        self.begun = False
        self.execution: Execution | None = None

    async def __call__(self, command: list[str], cancellation_token: CancellationToken) -> tuple[str, int]:
        self.begun = True
        mark = uuid.uuid4().hex
        path = self._folder / mark
        output = Output(str(path), KEEP, WHOLE)
        # The first two words are `timeout` and its seconds, which an image may not have and code may ignore.
        program, *arguments = command[2:]
        begin = time.monotonic()
        attaching = asyncio.ensure_future(self._raw.attach([self.program or program, *arguments], mark, output))
        try:
            attached = await asyncio.shield(attaching)
            code = await self._wait(attached, output, begin + self._raw.timeout)
        finally:
            # Also if we are cancelled while it starts.
            await asyncio.shield(self._end(attaching, mark, output))
        duration = time.monotonic() - begin
        outcome = Outcome.TIMEOUT if code is None else Outcome.ERROR if code else Outcome.OK
        code = TIMEOUT_CODE if code is None else code
        whole = path if output.truncated and path.exists() else None
        text = output.text()
        self.execution = Execution(outcome, code, text, duration, whole, output.total_chars)
        if whole is None:
            path.unlink(missing_ok=True)
        return text, code

    async def _wait(self, attached: Attached, output: Output, end: float) -> int | None:
        """Return the exit code, or `None` if the time is up."""
        pause = 0.01
        while (left := end - time.monotonic()) > 0:
            # Its output may be held open by others after its end, or closed before.
            await asyncio.wait((attached.closed,), timeout=min(_LOOK, left))
            code = await asyncio.to_thread(attached.exit_code)
            if code is not None:
                await self._take_rest(attached, output)
                return code
            if attached.closed.done():
                await asyncio.sleep(min(pause, left))
                pause = min(2 * pause, _LOOK)
        return None

    async def _take_rest(self, attached: Attached, output: Output) -> None:
        """Take what is under way, also from what outlives the code by a moment."""
        total = -1
        for _ in range(_LEFTOVER_ROUNDS):
            if attached.closed.done() or output.total_bytes == total:
                break
            total = output.total_bytes
            await asyncio.wait((attached.closed,), timeout=_LEFTOVER_GRACE)

    async def _end(self, attaching: asyncio.Future[Attached], mark: str, output: Output) -> None:
        await asyncio.wait((attaching,))
        if not attaching.cancelled() and attaching.exception() is None:
            attached = attaching.result()
            try:
                await self._raw.kill(attached, mark)
            finally:
                await asyncio.to_thread(attached.close)
        output.close()


def _remove(container: Any) -> None:
    with contextlib.suppress(docker.errors.APIError):  # It is gone, or is going.
        container.remove(force=True, v=True)


def _kill_container(container: Any) -> None:
    with contextlib.suppress(docker.errors.APIError):
        container.kill()


def _give_up(end: Callable[[Any], None], container: Any, owner: int) -> None:
    if os.getpid() == owner:  # A fork of the process that made it ends without it.
        with contextlib.suppress(Exception):
            end(container)


def _restart_container(container: Any) -> bool:
    try:
        container.restart(timeout=0)
        container.reload()
    except docker.errors.APIError:
        return False
    return bool(container.status == "running")


def _prepare(block: CodeBlock, work_dir: Path) -> None:
    # AutoGen's executor would follow a link that code has put in the place of the next file, to anywhere.
    for path in work_dir.glob("tmp_code_*"):
        if path.is_symlink():
            path.unlink()
    # And it raises if the folders are not there. What else may be wrong with the name it says itself.
    with contextlib.suppress(CellRefused, OSError):
        named = named_file(block.code, work_dir)
        if named is not None:
            named.parent.mkdir(parents=True, exist_ok=True)


def _hand_over(whole: Path, work_dir: Path) -> Path | None:
    try:
        return write_inside(work_dir.absolute(), f".coderoom/{whole.name}", whole.read_bytes())
    except OSError:  # No room or no right to write there costs the copy and not the run.
        return None
