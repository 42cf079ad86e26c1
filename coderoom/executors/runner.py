"""Runs code in any AutoGen executor: starts it, limits its time, and separates its failures from those of the code."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from coderoom._util.autogen import is_executor_started, says_timeout
from coderoom._util.tasks import await_with_token, retrieve_exception, run_uncancellable
from coderoom._util.text import encodable
from coderoom.errors import CodeRoomError, RequestError, SandboxUnavailable
from coderoom.executors.base import SandboxedExecutor
from coderoom.outcome import Outcome
from coderoom.sandbox import CANCELLED_CODE, ExecutionResult, OnOutput

if TYPE_CHECKING:
    from coderoom.contracts import Executor


@runtime_checkable
class Checkpoints(Protocol):
    """An executor that can restore an earlier state."""

    async def checkpoint(self) -> Any:
        """Save the current state.

        Returns:
            The argument of `rollback` and `release`.
        """
        ...

    async def rollback(self, mark: Any) -> str:
        """Restore a state. It can be restored again.

        Args:
            mark: The state, from `checkpoint`.

        Returns:
            What was restored, for a sentence that ends in "are as they were": "variables and files".
        """
        ...

    async def release(self, mark: Any) -> None:
        """Release a state that is no longer needed.

        Args:
            mark: The state, from `checkpoint`.
        """
        ...


@runtime_checkable
class Forks(Protocol):
    """An executor whose session can be forked, as `SandboxCodeExecutor`; see `forks_of`."""

    def check_can_fork(self) -> None:
        """Refuse what can never fork, as far as the settings tell.

        Raises:
            RequestError: It cannot fork; the message says what to use.
        """
        ...

    @property
    def most_forks_in_a_row(self) -> int:
        """How often the session can become a fork of itself."""
        ...

    async def fork(self, count: int) -> Sequence[SandboxedExecutor]:
        """Make executors that go on from the state of the session: variables, files and all; each on its own.

        They run blocks as this one does, and call the same functions of the host. Nothing that they change is seen
        elsewhere: they have no `work_dir` on this machine. `stop` ends one; it is not started again. They end with this
        executor, too.

        Args:
            count: How many.

        Returns:
            The executors.

        Raises:
            RequestError: The session cannot be forked, here or now.
            SandboxUnavailable: The sandbox broke or cannot be built.
        """
        ...

    async def become(self, fork: Any) -> None:
        """Go on from the state of a fork, which ends; the files of the folder are those of the fork then.

        Args:
            fork: One of those that `fork` has returned, or one of its forks.

        Raises:
            RequestError: It is none, or it has ended, or its files cannot be written. Then all is as before.
            SandboxUnavailable: The sandbox broke.
        """
        ...


def forks_of(executor: CodeExecutor) -> Forks:
    """The executor, if its session can be forked as far as is known before it is started.

    Raises:
        RequestError: It cannot; the message says what to use.
    """
    if not isinstance(executor, Forks):
        name = type(executor).__name__
        raise RequestError(f"{name} has no session that can be forked; use SandboxCodeExecutor(state='session').")
    executor.check_can_fork()
    return executor


TIMEOUT_CODE = 124
_JUPYTER = frozenset({"JupyterCodeExecutor", "DockerJupyterCodeExecutor"})


def keeps_variables(executor: CodeExecutor) -> bool:
    """Whether the variables of code stay for later code."""
    # By name, because Jupyter's packages may not be installed.
    is_jupyter = any(kind.__name__ in _JUPYTER for kind in type(executor).__mro__)
    return is_jupyter or getattr(executor, "state", None) == "session"


# How long an executor that ignores a cancellation is waited for.
_CANCEL_SECONDS = 1.5
# How much longer than its own timeout an executor may take.
_EXTRA_SECONDS = 15.0


class ExecutorRunner:
    """Starts, uses and stops an AutoGen code executor.

    An executor that was started before is not started again, but `stop` stops it too.

    The executor ends its code. If it ignores a cancellation or its own timeout, it is abandoned after a short wait, and
    its code may still run. An executor that fails, and not its code, raises `SandboxUnavailable`.
    """

    def __init__(self, executor: CodeExecutor) -> None:
        self._executor = executor
        self._lock = asyncio.Lock()
        self._started = False
        self._starting: asyncio.Task[None] | None = None
        # Each run that is not over, with a future that is set to end it early.
        self._runs: dict[asyncio.Task[ExecutionResult], asyncio.Future[None]] = {}
        self._ends = 0  # How often all runs were ended, also those that wait for the start.

    @property
    def executor(self) -> CodeExecutor:
        """The executor."""
        return self._executor

    @property
    def work_dir(self) -> Path | None:
        """The executor's folder on this machine; `None` before the start, or if it has none."""
        if not self._started:
            return None  # Some executors create the folder when the attribute is read.
        folder = getattr(self._executor, "work_dir", None)
        return Path(folder).absolute() if isinstance(folder, str | Path) else None

    async def start(self) -> None:
        """Start the executor if it is not started."""
        if self._starting is None or self._starting.done():
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(retrieve_exception)
        # Not cancelled with its caller: an interrupted start may leave something that cannot be stopped.
        await asyncio.shield(self._starting)

    async def stop(self) -> None:
        """End all runs and stop the executor; the next run starts it again."""
        await self._end_runs()
        if self._starting is not None and not self._starting.done():
            await asyncio.wait((self._starting,))
        async with self._lock:
            if self._started or is_executor_started(self._executor):
                self._started = False
                with self._translated("could not be stopped"):
                    await self._executor.stop()

    async def restart(self) -> None:
        """End all runs and restart the executor, if it was started."""
        await self._end_runs()
        async with self._lock:
            from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor  # Imports the client of Docker.

            # AutoGen's local executor has no state, and only warns that it does nothing.
            if self._started and not isinstance(self._executor, LocalCommandLineCodeExecutor):
                with self._translated("could not be restarted"):
                    await self._executor.restart()

    async def run(
        self,
        blocks: Sequence[CodeBlock],
        cancellation_token: CancellationToken | None = None,
        on_output: OnOutput | None = None,
    ) -> ExecutionResult:
        """Run blocks; start the executor first if necessary.

        The outcome is `cancelled` if `stop` or `restart` ended the run. `on_output` is not used: AutoGen's executors
        return all output at the end.
        """
        token = cancellation_token or CancellationToken()
        ends = self._ends
        await await_with_token(self.start(), token)
        if self._ends != ends:
            return ExecutionResult(Outcome.CANCELLED, CANCELLED_CODE)
        inner = CancellationToken()
        begin = time.monotonic()
        task = asyncio.create_task(self._execute(list(blocks), inner))
        ended = self._runs[task] = asyncio.get_running_loop().create_future()
        either = asyncio.wait((task, ended), timeout=self._seconds(blocks), return_when=asyncio.FIRST_COMPLETED)
        try:
            await await_with_token(either, token)
            if task.done():
                return task.result()
            if ended.done():
                return ExecutionResult(Outcome.CANCELLED, CANCELLED_CODE)
            return ExecutionResult(Outcome.TIMEOUT, TIMEOUT_CODE, duration=time.monotonic() - begin)
        except asyncio.CancelledError as error:
            if task.cancelled():  # By the executor itself.
                raise self._unavailable("cancelled the run by itself", error) from error
            raise
        finally:
            del self._runs[task]
            ended.cancel()
            if not task.done():
                await run_uncancellable(_cancel(task, inner))

    async def _start(self) -> None:
        async with self._lock:
            if not self._started and not is_executor_started(self._executor):
                with self._translated("could not be started"):
                    await self._executor.start()
            self._started = True

    async def _execute(self, blocks: list[CodeBlock], token: CancellationToken) -> ExecutionResult:
        begin = time.monotonic()
        try:
            with self._translated("failed"):
                result = await self._executor.execute_code_blocks(blocks, token)
                execution = getattr(result, "execution", None)
                if isinstance(execution, ExecutionResult):
                    return execution
                return _from_result(result, time.monotonic() - begin)
        except TimeoutError as error:
            return ExecutionResult(Outcome.TIMEOUT, TIMEOUT_CODE, output=str(error), duration=time.monotonic() - begin)

    def _seconds(self, blocks: Sequence[CodeBlock]) -> float | None:
        seconds = getattr(self._executor, "timeout", None)
        return seconds * len(blocks) + _EXTRA_SECONDS if isinstance(seconds, int | float) else None

    async def _end_runs(self) -> None:
        self._ends += 1
        tasks = list(self._runs)
        for ended in self._runs.values():
            if not ended.done():
                ended.set_result(None)
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)

    @contextlib.contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Raise the executor's errors as `SandboxUnavailable`; a timeout is a failure of the code."""
        try:
            yield
        except (CodeRoomError, TimeoutError):
            raise
        except Exception as error:
            raise self._unavailable(what, error) from error

    def _unavailable(self, what: str, error: BaseException) -> SandboxUnavailable:
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return SandboxUnavailable(
            f"The code executor {type(self._executor).__name__!r} {what} ({cause}). This is not a failure of the code; "
            "check the executor's settings and that what it needs is installed and running, or use another executor."
        )


def runner_for(executor: CodeExecutor) -> Executor:
    """Return the runner for an executor: CodeRoom's own, unless a subclass changes how they run, need no other.

    Raises:
        ValueError: It is not an executor.
    """
    if not isinstance(executor, CodeExecutor):
        raise ValueError(f"code_executor must be a code executor, not {executor!r}; as SandboxCodeExecutor() is.")
    if not isinstance(executor, SandboxedExecutor):
        return ExecutorRunner(executor)
    executor.has_owner = True
    own = type(executor).execute_code_blocks is SandboxedExecutor.execute_code_blocks
    return executor if own else ExecutorRunner(executor)


async def _cancel(task: asyncio.Task[ExecutionResult], token: CancellationToken) -> None:
    task.add_done_callback(retrieve_exception)
    with contextlib.suppress(Exception):  # This calls the executor's callbacks.
        token.cancel()
    # AutoGen's local executor only ends a process that it knows. One that is starting is either ended by the token, or
    # known after this step of the event loop.
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,), timeout=_CANCEL_SECONDS)


def _from_result(result: CodeResult, duration: float) -> ExecutionResult:
    code, output = result.exit_code, result.output
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(output, str):
        raise TypeError(f"its result has exit code {code!r} and an output of type {type(output).__name__!r}")
    output = encodable(output)
    if code == 0:
        outcome = Outcome.OK
    elif code == TIMEOUT_CODE and says_timeout(output):
        outcome = Outcome.TIMEOUT
    else:
        outcome = Outcome.ERROR
    return ExecutionResult(outcome, code, output=output, duration=duration)
