"""One way to run code through any AutoGen executor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from coderoom._text import encodable
from coderoom.errors import CodeRoomError, SandboxUnavailable
from coderoom.executors._calls import CallEnded, CallGaveUp, Calls
from coderoom.executors._execution import TIMEOUT_CODE, Execution, LocalCodeResult
from coderoom.executors._raw_local import RawLocal
from coderoom.outcome import Outcome

__all__ = ["ExecutorRunner"]

_END_PATIENCE = 1.5


class ExecutorRunner:
    """Starts, uses and stops an AutoGen code executor, whichever it is.

    An executor that was started before is used as it is. `stop` stops it all the same: whoever gave it away, for
    instance to an agent that is closed at the end, need not think of it any more.

    Args:
        executor: The executor. AutoGen's `LocalCommandLineCodeExecutor` is run under CodeRoom's launcher, so that
            nothing is left running; its folder, its timeout and its environment stay as its owner chose them.
    """

    def __init__(self, executor: CodeExecutor) -> None:
        self._executor = executor
        self._calls = Calls(_END_PATIENCE)
        self._lock = asyncio.Lock()
        self._starting: asyncio.Task[None] | None = None
        self._raw: RawLocal | None = None

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
        async with self._lock:
            starting, self._starting = self._starting, None
            if starting is None and not _is_started(self._executor):
                return
            if starting is not None and not starting.done():
                await asyncio.wait((starting,))
            if self._raw is not None:
                self._raw.close()
                self._raw = None
            try:
                await self._executor.stop()
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
                await self._executor.restart()
        except CodeRoomError:
            raise
        except Exception as error:
            raise self._unavailable("could not be restarted", error) from error

    async def run(self, blocks: Sequence[CodeBlock], cancellation_token: CancellationToken | None = None) -> Execution:
        """Run blocks in order, up to the first that fails; start the executor before, if need be.

        Args:
            blocks: The blocks.
            cancellation_token: Ends the code when it is cancelled, from any thread.

        Returns:
            What is known of the run. Its outcome is `cancelled` if `stop` or `restart` ended it.

        Raises:
            asyncio.CancelledError: The token or the surrounding task was cancelled. The code has been ended, unless
                the executor is deaf to that; it is not waited for.
            SandboxUnavailable: The executor failed. That says nothing about the code.
        """
        try:
            return await self._calls.run(lambda token: self._run(list(blocks), token), cancellation_token)
        except CallEnded:
            return Execution.cancelled()
        except CallGaveUp as error:
            raise self._unavailable("ended the run, which nobody had asked for", error) from error

    async def _start(self) -> None:
        async with self._lock:
            if not _is_started(self._executor):
                try:
                    await self._executor.start()
                except CodeRoomError:
                    raise
                except Exception as error:
                    raise self._unavailable("could not be started", error) from error
            if isinstance(self._executor, LocalCommandLineCodeExecutor) and os.name == "posix":
                self._raw = RawLocal(self._executor)

    async def _run(self, blocks: list[CodeBlock], token: CancellationToken) -> Execution:
        await self.start()
        begin = time.monotonic()
        try:
            if self._raw is not None:
                return await self._raw.run(blocks)
            result = await self._executor.execute_code_blocks(blocks, token)
            if isinstance(result, LocalCodeResult):
                return result.execution
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


def _look_at(task: asyncio.Task[None]) -> None:
    """Take note of a failed start that nobody waits for any more, so that asyncio does not log it."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
