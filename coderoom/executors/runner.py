"""One way to run code through any AutoGen executor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom._util.text import encodable
from coderoom.errors import CodeRoomError, RequestError, SandboxUnavailable
from coderoom.executors.calls import CallEnded, CallGaveUp, Calls
from coderoom.executors.checkpoints import Checkpoints
from coderoom.executors.execution import TIMEOUT_CODE, Execution
from coderoom.executors.raw_local import RawLocal
from coderoom.executors.sandbox import SandboxCodeExecutor
from coderoom.executors.sandbox_runtime import OnOutput
from coderoom.outcome import Outcome

if TYPE_CHECKING:
    from coderoom.executors.raw_docker import RawDocker
    from coderoom.executors.raw_jupyter import RawJupyter

__all__ = ["ExecutorRunner"]

_END_PATIENCE = 1.5

T = TypeVar("T")


class ExecutorRunner:
    """Starts, uses and stops an AutoGen code executor, whichever it is.

    An executor that was started before is used as it is. `stop` stops it all the same: whoever gave it away, for
    instance to an agent that is closed at the end, need not think of it any more.

    Args:
        executor: The executor. AutoGen's `LocalCommandLineCodeExecutor` is run under CodeRoom's launcher, so that
            nothing is left running; its folder, its timeout and its environment stay as its owner chose them. So do
            those of its `DockerCommandLineCodeExecutor` and its `JupyterCodeExecutor`.
    """

    def __init__(self, executor: CodeExecutor) -> None:
        self._executor = executor
        self._calls = Calls(_END_PATIENCE)
        self._lock = asyncio.Lock()
        self._starting: asyncio.Task[None] | None = None
        self._raw: RawLocal | None = None
        self._keeper = _keeper_of(executor)
        if isinstance(executor, SandboxCodeExecutor):
            executor.has_owner = True

    @property
    def executor(self) -> CodeExecutor:
        """The executor."""
        return self._executor

    @property
    def work_dir(self) -> Path | None:
        """The folder on this machine that the code works in; `None` before the start, or if the executor has none."""
        if self._starting is None or not self._starting.done():
            return None  # Some executors make the folder when they are asked for it.
        try:
            folder = getattr(self._executor, "work_dir", None)
        except Exception:  # Executors of all sorts; one without an answer has no folder.
            return None
        return Path(folder).absolute() if isinstance(folder, str | Path) else None

    async def start(self) -> None:
        """Start the executor if it is not started.

        Raises:
            SandboxUnavailable: It could not be started.
        """
        if self._starting is None or self._starting.cancelled():
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(_look_at)
        starting = self._starting
        try:
            # Whoever waits may be cancelled; others wait for the same start.
            await asyncio.shield(starting)
        except Exception:
            if self._starting is starting:
                self._starting = None
            raise

    async def stop(self) -> None:
        """End what runs and stop the executor; the next run starts it again.

        Raises:
            SandboxUnavailable: It could not be stopped.
        """
        await self._calls.end_all()
        # Not under the lock, which a start takes too.
        while (starting := self._starting) is not None and not starting.done():
            await asyncio.wait((starting,))
        async with self._lock:
            starting = self._starting
            if starting is not None and starting.done():
                self._starting = None
            elif not _is_started(self._executor):
                return  # What is to start begins when we have ended.
            if self._raw is not None:
                self._raw.close()
                self._raw = None
            try:
                await (self._keeper or self._executor).stop()
            except CodeRoomError:
                raise
            except Exception as error:
                raise self._unavailable("could not be stopped", error) from error

    async def restart(self) -> None:
        """End what runs and bring the executor back to its first state, if it was started at all.

        Raises:
            SandboxUnavailable: It could not be restarted.
        """
        await self._calls.end_all()
        if self._starting is None:
            return
        await self.start()
        try:
            if isinstance(self._executor, LocalCommandLineCodeExecutor):
                # It has no state to lose, and warns that it does nothing.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    await self._executor.restart()
            else:
                await (self._keeper or self._executor).restart()
        except CodeRoomError:
            raise
        except Exception as error:
            raise self._unavailable("could not be restarted", error) from error

    async def run(
        self,
        blocks: Sequence[CodeBlock],
        cancellation_token: CancellationToken | None = None,
        on_output: OnOutput | None = None,
    ) -> Execution:
        """Run blocks in order, up to the first that fails; start the executor before, if need be.

        Args:
            blocks: The blocks.
            cancellation_token: Ends the code when it is cancelled, from any thread.
            on_output: Called with what the code prints while it prints it, if the executor can tell.

        Returns:
            What is known of the run. Its outcome is `cancelled` if `stop` or `restart` ended it.

        Raises:
            asyncio.CancelledError: The token or the surrounding task was cancelled. The code has been ended, unless
                the executor is deaf to that; it is not waited for.
            SandboxUnavailable: The executor failed. That says nothing about the code.
        """
        try:
            return await self._calls.run(lambda token: self._run(list(blocks), token, on_output), cancellation_token)
        except CallEnded:
            return Execution.cancelled()
        except CallGaveUp as error:
            raise self._unavailable("ended the run, which nobody had asked for", error) from error

    async def checkpoint(self, cancellation_token: CancellationToken | None = None) -> Any:
        """Keep the executor's state; start it before, if need be. Only for one of the kind `Checkpoints`.

        Args:
            cancellation_token: Ends the wait.

        Raises:
            asyncio.CancelledError: The token or the surrounding task was cancelled.
            RequestError: There is more than can be kept.
            SandboxUnavailable: The executor failed.
        """
        return await self._go("its state could not be kept", self._rolling.checkpoint, cancellation_token)

    async def rollback(self, mark: Any, cancellation_token: CancellationToken | None = None) -> str:
        """Go back to a kept state.

        Args:
            mark: What `checkpoint` returned.
            cancellation_token: Ends the wait.

        Returns:
            What is as it was then, in words.

        Raises:
            asyncio.CancelledError: The token or the surrounding task was cancelled.
            RequestError: The state is gone.
            SandboxUnavailable: The executor failed.
        """
        what = "could not go back to an earlier state"
        return await self._go(what, lambda: self._rolling.rollback(mark), cancellation_token)

    async def release(self, mark: Any) -> None:
        """Let go of a kept state.

        Args:
            mark: What `checkpoint` returned.
        """
        await self._rolling.release(mark)

    @property
    def _rolling(self) -> Checkpoints:
        if not isinstance(self._executor, Checkpoints):
            raise RequestError(f"The code executor {type(self._executor).__name__!r} cannot go back to earlier states.")
        return self._executor

    async def _go(
        self, what: str, call: Callable[[], Coroutine[Any, Any, T]], cancellation_token: CancellationToken | None
    ) -> T:
        async def started(_: CancellationToken) -> T:
            await self.start()
            return await call()

        try:
            return await self._calls.run(started, cancellation_token)
        except CallEnded:
            raise asyncio.CancelledError from None
        except CodeRoomError:
            raise
        except Exception as error:
            raise self._unavailable(what, error) from error

    async def _start(self) -> None:
        async with self._lock:
            if not _is_started(self._executor):
                try:
                    await (self._keeper or self._executor).start()
                except CodeRoomError:
                    raise
                except Exception as error:
                    raise self._unavailable("could not be started", error) from error
            if isinstance(self._executor, LocalCommandLineCodeExecutor) and os.name == "posix":
                self._raw = RawLocal(self._executor)

    async def _run(self, blocks: list[CodeBlock], token: CancellationToken, on_output: OnOutput | None) -> Execution:
        await self.start()
        begin = time.monotonic()
        try:
            if self._raw is not None:
                return await self._raw.run(blocks)
            if self._keeper is not None:
                return await self._keeper.run(blocks)
            if isinstance(self._executor, SandboxCodeExecutor):
                result: CodeResult = await self._executor.execute_code_blocks(blocks, token, on_output)
            else:
                result = await self._executor.execute_code_blocks(blocks, token)
            execution = getattr(result, "execution", None)
            if isinstance(execution, Execution):
                return execution
            return _from_result(result, time.monotonic() - begin)
        except CodeRoomError:
            raise
        except TimeoutError as error:
            output = str(error)
            return Execution(Outcome.TIMEOUT, TIMEOUT_CODE, output, time.monotonic() - begin, None, len(output))
        except Exception as error:
            raise self._unavailable("failed", error) from error

    def _unavailable(self, what: str, error: BaseException) -> SandboxUnavailable:
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return SandboxUnavailable(
            f"The code executor {type(self._executor).__name__!r} {what} ({cause}). This is no failure of the code; "
            "check the executor's settings and that what it needs is installed and running, or use another executor."
        )


def _from_result(result: CodeResult, duration: float) -> Execution:
    code, output = result.exit_code, result.output
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(output, str):
        raise TypeError(f"its result has exit code {code!r} and an output of type {type(output).__name__!r}")
    output = encodable(output)
    if code == 0:
        outcome = Outcome.OK
    elif code == TIMEOUT_CODE and output.rstrip().endswith("Timeout"):
        outcome = Outcome.TIMEOUT
    else:
        outcome = Outcome.ERROR
    return Execution(outcome, code, output, duration, total_chars=len(output))


def _is_started(executor: CodeExecutor) -> bool:
    # AutoGen's executors keep this to themselves, under one of two names. A second start would cost, for instance,
    # the container that runs already.
    return any(getattr(executor, name, False) is True for name in ("_running", "_started"))


def _keeper_of(executor: CodeExecutor) -> RawDocker | RawJupyter | None:
    """What starts, uses and stops an executor in its place: for two of AutoGen's, whose packages not everybody has."""
    if os.name != "posix":
        return None
    docker = sys.modules.get("autogen_ext.code_executors.docker")
    if docker is not None and isinstance(executor, docker.DockerCommandLineCodeExecutor):
        from coderoom.executors.raw_docker import RawDocker

        return RawDocker(executor)
    jupyter = sys.modules.get("autogen_ext.code_executors.jupyter")
    if jupyter is not None and isinstance(executor, jupyter.JupyterCodeExecutor):
        from coderoom.executors.raw_jupyter import RawJupyter

        return RawJupyter(executor)
    return None


def _look_at(task: asyncio.Task[None]) -> None:
    """Take note of a failed start that nobody waits for any more, so that asyncio does not log it."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
