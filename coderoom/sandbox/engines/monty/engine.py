"""The engine `monty`: cells in pydantic-monty's own interpreter. No other module imports pydantic-monty.

Its workers have neither files nor a network nor other programs, because the interpreter has no means for them. A state
is data that can be copied: a session needs a worker only while a cell runs, a checkpoint is a copy, and stopping a cell
loses nothing but that cell.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import itertools
import os
import signal
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from coderoom._util.distribution import install_command
from coderoom._util.tasks import Deadline, call_in_loop, cancel_and_wait, resolve, run_uncancellable
from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.sandbox.cell import STATE_LOST, artifacts_of, stopped
from coderoom.sandbox.config import MIB, Limits, SandboxConfig
from coderoom.sandbox.engines.monty.cells import ELSE, MODULES, MontyCell, prelude, returned, trip_of
from coderoom.sandbox.engines.monty.workers import Guard, Tap, launcher, resident
from coderoom.sandbox.functions.calls import Calls
from coderoom.sandbox.functions.function import HostFunction
from coderoom.sandbox.guest.files import Workspace
from coderoom.sandbox.guest.frames import encode
from coderoom.sandbox.guest.functions import result_of, too_many
from coderoom.sandbox.guest.values import as_argument
from coderoom.sandbox.languages import Program
from coderoom.sandbox.result import ExecutionResult, FunctionCall, OutputChunk

if TYPE_CHECKING:
    import pydantic_monty

_IDLE_LIMITS = ("processes", "open_files", "file_bytes")
_NO_LIMIT = 86_400.0
_MOST_WORKERS = 32
_BLOATED = 64 * MIB  # A worker of this size is replaced: it gives no memory back.
_EMPTY = 12 * MIB  # What a worker has before any code runs, and a little more.
_LIGHT = 16 * MIB  # A state up to this size is copied before every cell, which takes some milliseconds.
_COPIED = 200 * MIB  # A larger one is never copied: the worker cannot send it.
_KEPT = "Variables are as they were before this cell."


class MontyEngine:
    """pydantic-monty's workers, and the sessions that take turns in them; each cell that runs takes one of `slots`.

    The limits `processes`, `open_files` and `file_bytes` must not be set: code can start no processes and keep no files
    open, and `disk_bytes` limits what a cell writes.
    """

    name = "monty"
    languages = ("python",)
    lacks = (
        "network",
        "local_network",
        "credentials",
        "terminals",
        "workspace_mode",
        "python",
        "packages",
        "allowed_packages",
        "readable",
        "environment",
        "options",
        "wall",
        "stdin",
        "processes",
        "editing",
    )
    wall = "monty"

    def __init__(self, config: SandboxConfig) -> None:
        _check(config)
        self.config = config
        self._workers = min(config.concurrency, _MOST_WORKERS)
        self.slots = asyncio.Semaphore(self._workers)
        self._sessions: set[MontySession] = set()
        self._pool: pydantic_monty.AsyncMonty | None = None
        self._mount: pydantic_monty.MountDir | None = None
        self._guard = Guard()
        self._resources = contextlib.ExitStack()
        # For an engine that is never closed.
        weakref.finalize(self, _end, self._guard, self._resources)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The version of pydantic-monty."""
        return {} if self._pool is None else {"monty": _monty().__version__}

    @property
    def lost(self) -> bool:
        """Whether it is not started."""
        return self._pool is None

    @property
    def is_crowded(self) -> bool:
        """Whether there are more sessions than workers, so that a session must not keep a worker between its cells."""
        return len(self._sessions) > self._workers

    async def start(self) -> None:
        """Start a first worker and check that it does what is needed; a second call does nothing."""
        if self._pool is not None:
            return
        monty = _monty()
        try:
            await self._start(monty)
            await self._try()
        except BaseException as error:
            await self.close()
            if not isinstance(
                error, (OSError, RuntimeError, TypeError, ValueError, monty.MontyError, SandboxUnavailable)
            ):
                raise
            raise SandboxUnavailable(
                f"The engine 'monty' cannot be started with pydantic-monty {monty.__version__}: {error}. A version "
                f"that is known to work comes with: {install_command('monty')}"
            ) from error

    async def close(self) -> None:
        """Close every session and end every worker; a second call does nothing."""
        for session in list(self._sessions):
            await session.close()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__(None, None, None)
        self.kill()

    def kill(self) -> None:
        """As `close`, without an event loop."""
        self._sessions.clear()
        self._pool = None
        _end(self._guard, self._resources)
        self.slots = asyncio.Semaphore(self._workers)  # Another event loop may use the engine next.

    async def open(self, functions: Mapping[str, HostFunction]) -> MontySession:
        """Open a session with a fresh state."""
        if self.lost:
            raise SandboxUnavailable("The engine 'monty' is not started, or closed.")
        session = MontySession(self, functions, self._sessions.discard)
        self._sessions.add(session)
        return session

    async def check_out(self, state: bytes | None) -> MontyWorker:
        """Get a worker with a state; `None` is the fresh one."""
        if self._pool is None:
            raise SandboxUnavailable("The engine 'monty' is closed.")
        checkout = self._pool.checkout(
            limits={
                "max_memory": self.config.limits.memory_bytes,
                "max_feed_duration_secs": self.config.limits.cpu_seconds or _NO_LIMIT,
                "max_suspensions": 2**53,
            },
            os_policy={"sleep_system_max": float("inf")},
        )
        worker = MontyWorker(checkout, self._mount, self._answer)
        try:
            await checkout.__aenter__()
            worker.pid = checkout.worker_pid or 0
            self._guard.watch(worker.pid)
            if state is None:
                await worker.feed(prelude(self.config.limits), {})
            else:
                await checkout.load_session(state)
        except BaseException as error:
            await asyncio.shield(self.give_back(worker, ended=True))
            if isinstance(error, (OSError, RuntimeError, _monty().MontyError)):
                raise SandboxUnavailable(f"A worker of the engine 'monty' could not be started: {error}") from error
            raise
        return worker

    async def give_back(self, worker: MontyWorker, ended: bool = False) -> None:
        """Keep a worker for other sessions, or replace it if it has ended or is too large."""
        if not ended and (resident(worker.pid) or 0) > _BLOATED:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            ended = True
        await worker.leave()
        if ended:
            self._guard.release(worker.pid)

    @staticmethod
    def is_of_code(error: BaseException) -> bool:
        """Whether the code made an error, and not the worker."""
        monty = _monty()
        return isinstance(error, (monty.MontySyntaxError, monty.MontyRuntimeError))

    async def _start(self, monty: Any) -> None:
        if self.config.workspace is not None:
            self.config.workspace.mkdir(parents=True, exist_ok=True)
            mount = monty.MountDir(
                host_path=self.config.workspace,
                virtual_path="/workspace",
                mode="read-write",
                write_bytes_limit=self.config.limits.disk_bytes,
            )
            self._mount = self._resources.enter_context(mount)
        binary = self._resources.enter_context(launcher(self.config.limits))
        # With a bound of the pool's own, checkouts would wait without asking any session to give up its worker.
        pool = monty.AsyncMonty(binary_path=binary, min_processes=1, max_processes=65_536)
        self._pool = await pool.__aenter__()

    async def _try(self) -> None:
        worker = await self.check_out(None)
        try:
            state = await worker.dump()
            shown = await worker.feed(MontyCell.read("[1, 'a']", None).source, {})
        finally:
            await self.give_back(worker)
        if returned(shown, self.config.limits.value_bytes).get("value") != [1, "a"]:
            raise ValueError(f"a list came out as {shown!r}")
        await self.give_back(await self.check_out(state))

    def _answer(self, *, name: str, args: tuple[Any, ...], **_: Any) -> Any:
        """Answer a request of the code to its operating system, apart from files."""
        if name == "os.getenv":
            return self.config.env.get(args[0], args[1])
        return dict(self.config.env) if name == "os.environ" else _monty().NOT_HANDLED


class MontyWorker:
    """A worker with a state; `pid` is its process, 0 before it has one."""

    def __init__(
        self,
        checkout: pydantic_monty.AsyncMontySession,
        mount: pydantic_monty.MountDir | None,
        answer: Callable[..., Any],
    ) -> None:
        self.pid = 0
        self._checkout = checkout
        self._mount = mount
        self._answer = answer

    async def feed(
        self,
        source: str,
        functions: dict[str, Any],
        take: Callable[[Literal["stdout", "stderr"], str], None] | None = None,
    ) -> Any:
        """Run code; cancelling this ends the worker. `take` is called in another thread with what the code prints."""
        return await self._checkout.feed_run(
            source, external_lookup=functions, print_callback=take, mount=self._mount, os=self._answer
        )

    async def dump(self) -> bytes:
        """Copy the state."""
        try:
            return await self._checkout.dump()
        except (RuntimeError, _monty().MontyError) as error:
            raise SandboxUnavailable(f"The session's worker has ended: {error}.") from error

    async def leave(self) -> None:
        """Return it to the pool."""
        with contextlib.suppress(Exception):  # It is gone in any case.
            await self._checkout.__aexit__(None, None, None)


def _check(config: SandboxConfig) -> None:
    names = [each if isinstance(each, str) else each.name for each in config.preload]
    unknown = [name for name in names if name not in MODULES]
    if unknown:
        raise RequestError(f"preload={unknown!r}: the engine 'monty' has only {', '.join(MODULES)}; {ELSE}.")
    idle = [name for name in _IDLE_LIMITS if name in config.limits.model_fields_set]
    if idle:
        raise RequestError(
            f"limits: the engine 'monty' has no {' and no '.join(idle)}; leave that out, or use engine='cpython'."
        )


def _end(guard: Guard, resources: contextlib.ExitStack) -> None:
    guard.end()
    resources.close()


def _monty() -> Any:
    try:
        return importlib.import_module("pydantic_monty")
    except ImportError as error:
        raise MissingDependencyError(
            f"The engine 'monty' needs pydantic-monty, which is not installed: {install_command('monty')}"
        ) from error


@dataclass(frozen=True, eq=False)
class Mark:
    """A state that a session can return to; `None` is the fresh one."""

    state: bytes | None


class MontySession:
    """A state, and the cells that run in it; made by `MontyEngine.open`, with the methods of `CPythonSession`."""

    def __init__(
        self, engine: MontyEngine, functions: Mapping[str, HostFunction], on_close: Callable[[MontySession], object]
    ) -> None:
        self._engine = engine
        self._on_close = on_close
        self._limits = engine.config.limits
        # The worker needs three times the size of a copy to make it, within its memory limit.
        self._copied = min(_COPIED, engine.config.limits.memory_bytes // 5)
        self._functions = functions
        self._worker: MontyWorker | None = None
        self._state: bytes | None = None  # What the worker began with, to go back to.
        self._changed = False  # Whether the worker's state differs from it.
        self._marks: list[Mark] = []
        self._lost = self._closed = False
        self._deadline: Deadline | None = None  # Of the cell that runs.
        self._lock = asyncio.Lock()
        self._cancelled = asyncio.Event()
        self._tap: Tap | None = None

    async def run(
        self,
        code: str,
        program: Program | None = None,
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
    ) -> ExecutionResult:
        """Run a cell; see `Session.run`."""
        async with self._use():
            self._cancelled.clear()
            slots = self._engine.slots
            turn = asyncio.ensure_future(slots.acquire())
            try:
                if await self._race(turn, None) != "done":
                    return ExecutionResult(**stopped(None, None, "" if final else _KEPT), code=code)
                cell = MontyCell.read(code, "result" if self._engine.config.policy == "restricted" else None)
                try:
                    if not final:
                        await self._keep(min(_LIGHT, self._copied))
                    if self._worker is None:
                        self._worker = await self._engine.check_out(self._state)
                    return await self._run(cell, self._worker, timeout or self._limits.wall_seconds, final, on_chunk)
                finally:
                    if not final:
                        await self._park()
            finally:
                if turn.done() and not turn.cancelled():
                    slots.release()

    async def cancel(self) -> None:
        """End the cell that runs."""
        self._cancelled.set()

    async def checkpoint(self) -> Mark:
        """Save the state; see `Session.checkpoint`."""
        async with self._use():
            if not await self._keep(self._copied):
                raise RequestError(
                    "The state is too large for a checkpoint: the engine 'monty' keeps up to "
                    f"{self._copied // MIB} MiB with memory_bytes={self._limits.memory_bytes:,}."
                )
            mark = Mark(self._state)
            self._marks.append(mark)
            return mark

    async def rollback(self, mark: Mark) -> None:
        """Go back to a state; see `Session.rollback`."""
        async with self._use():
            if mark not in self._marks:
                raise RequestError(
                    "This checkpoint is gone: the session was rolled back behind it, restarted or closed."
                )
            del self._marks[self._marks.index(mark) + 1 :]
            await self._go_back(mark.state)

    def release(self, mark: Mark) -> None:
        """Drop a saved state; dropping it twice is not an error."""
        if mark in self._marks:
            self._marks.remove(mark)

    async def restart(self) -> None:
        """Go back to the fresh state; checkpoints are released."""
        async with self._use():
            self._marks.clear()
            await self._go_back(None)

    async def close(self) -> None:
        """End the cell that runs and drop the state; a second call does nothing."""
        self._closed = True
        self._cancelled.set()
        async with self._lock:
            self._marks.clear()
            await self._go_back(None)
            self._on_close(self)

    def abandon(self) -> None:
        """As `close`, without waiting."""
        self._abandoning = asyncio.ensure_future(self.close())

    def suspend_output(self, suspended: bool) -> None:
        """Stop or continue the cell that runs."""
        if self._tap is not None:
            self._tap.suspend(suspended)

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Start no cell within the context; between cells nothing runs."""
        async with self._use():
            yield

    @contextlib.asynccontextmanager
    async def _use(self) -> AsyncIterator[None]:
        async with self._lock:
            if self._closed:
                raise RequestError("The session is closed; open a new one.")
            yield

    async def _run(
        self,
        cell: MontyCell,
        worker: MontyWorker,
        seconds: float,
        final: bool,
        on_chunk: Callable[[OutputChunk], None] | None,
    ) -> ExecutionResult:
        folder = self._engine.config.workspace
        files = None if folder is None else Workspace(str(folder), bring=False)
        if files is not None:
            await asyncio.to_thread(files.remember)
        tap = self._tap = Tap(self._limits.output_bytes, on_chunk, worker.pid)
        if self._lost and not final:  # The cell that lost it had no result to say so.
            tap.take("stderr", f"{STATE_LOST}\n")
        begin = time.monotonic()
        calls = MontyCalls(self, self._functions, self._limits, functools.partial(self._stopped, tap))
        lookup = {"input": _no_input, "exit": _exit, "quit": _exit, **calls.lookup()}
        feed = asyncio.ensure_future(worker.feed(cell.source, lookup, tap.take))
        try:
            ending = await self._race(feed, seconds)
            duration = time.monotonic() - begin
            tap.finish()
            facts = await self._judge(cell, ending, feed, seconds, final)
        except BaseException:
            # The caller was cancelled, or the worker has ended.
            await asyncio.shield(self._drop(final))
            raise
        finally:
            self._tap = None
            tap.finish()
            called = await calls.close()
        if files is not None:
            facts["artifacts"] = artifacts_of((await asyncio.to_thread(files.changes))[0], b"", folder, {})
            facts["artifacts_left_out"] = files.left_out
        tap.output.add("stderr", facts.pop("stderr", "").encode("utf-8", "replace"))
        tap.finish()
        if tap.output.truncated and facts.get("limit") in (None, "value"):
            facts["limit"] = "output"
        lost, self._lost = self._lost and not final, False
        return tap.output.make_result(**facts, duration=duration, state_lost=lost, calls=called, code=cell.code)

    async def _judge(
        self, cell: MontyCell, ending: str, feed: asyncio.Future[Any], seconds: float, final: bool
    ) -> dict[str, Any]:
        """The facts of the result. A worker that was interrupted is dropped."""
        if ending != "done":
            return stopped(seconds if ending == "timeout" else None, "wall", await self._drop(final))
        error: Any = feed.exception()
        if error is None:
            self._changed = True
            return returned(feed.result(), self._limits.value_bytes, self._engine.config.describe_tables)
        of_code = self._engine.is_of_code(error)
        trip = trip_of(error) if of_code else None
        if of_code and trip is None:
            self._changed = True
            return cell.failed(error, self._engine.config.workspace is not None)
        rest = await self._drop(final)
        if trip == "memory":
            return cell.outgrew(error, self._limits, rest)
        if trip == "cpu" or getattr(error, "timed_out", False):
            return stopped(self._limits.cpu_seconds or 0, "cpu", rest)
        raise SandboxUnavailable(
            f"The worker of the engine 'monty' ended while it ran code: {error}. {rest}"
        ) from error

    async def _race(self, work: asyncio.Future[Any], seconds: float | None) -> Literal["done", "timeout", "cancelled"]:
        """Wait for work until a time limit, or until the cell is cancelled."""
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deadline = None if seconds is None else Deadline(seconds, functools.partial(resolve, late))
        try:
            await asyncio.wait((work, cancelled, late), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return "done"
            return "cancelled" if cancelled.done() else "timeout"
        finally:
            cancelled.cancel()
            if self._deadline is not None:
                self._deadline.cancel()
            await cancel_and_wait(work)

    @contextlib.asynccontextmanager
    async def _stopped(self, tap: Tap) -> AsyncIterator[None]:
        """Stop the cell and its time limit."""
        tap.suspend(True)
        try:
            with contextlib.nullcontext() if self._deadline is None else self._deadline.paused():
                yield
        finally:
            tap.suspend(False)

    async def _keep(self, most: int) -> bool:
        """Copy the state unless it is larger than `most`; return whether there is a copy."""
        worker = self._worker
        if worker is None or not self._changed:
            return True
        if (resident(worker.pid) or 0) - _EMPTY > most:
            return False
        try:
            self._state = await run_uncancellable(worker.dump())  # Cancelling it would lose the state.
        except SandboxUnavailable as error:
            await self._drop()
            raise SandboxUnavailable(f"{error} {STATE_LOST}") from error
        self._changed = False
        return True

    async def _drop(self, final: bool = False) -> str:
        """Drop the worker with its state; return what a message has to say about the variables."""
        worker, self._worker = self._worker, None
        if self._changed:
            self._state, self._lost = None, True
        self._changed = False
        if worker is not None:
            await self._engine.give_back(worker, ended=True)
        return "" if final else STATE_LOST if self._lost else _KEPT

    async def _go_back(self, state: bytes | None) -> None:
        worker, self._worker = self._worker, None
        self._state, self._changed, self._lost = state, False, False
        if worker is not None:
            await self._engine.give_back(worker)

    async def _park(self) -> None:
        """Give up the worker if other sessions may wait for one, unless its state is too large to copy."""
        if self._worker is None or not self._engine.is_crowded:
            return
        with contextlib.suppress(SandboxUnavailable):  # The next result will say that the state is lost.
            if await self._keep(self._copied) and self._worker is not None:
                worker, self._worker = self._worker, None
                await self._engine.give_back(worker)


class MontyCalls:
    """The calls of one cell, with the same limits and the same log as in the engine `cpython`; see `Calls`."""

    def __init__(
        self,
        owner: object,
        functions: Mapping[str, HostFunction],
        limits: Limits,
        stop: Callable[[], contextlib.AbstractAsyncContextManager[None]],
    ) -> None:
        self._functions = functions
        self._limits = limits
        self._calls = Calls(owner, functions, limits, self, stop)
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    def lookup(self) -> dict[str, Callable[..., Any]]:
        """The functions for pydantic-monty, which calls plain ones in its own threads."""
        return {name: self._make(name, function.is_async) for name, function in self._functions.items()}

    async def close(self) -> tuple[FunctionCall, ...]:
        """End the calls that still run, and return all calls in their order."""
        calls = await self._calls.close()
        for future in self._waiting.values():
            future.cancel()
        return calls

    def send_now(self, message: dict[str, Any]) -> bool:
        """Take an answer, from any thread; see `Calls`."""
        call_in_loop(self._loop, self._settle, message)
        return True

    async def send(self, message: dict[str, Any]) -> None:
        """As `send_now`, which never has to wait."""
        self.send_now(message)

    def _settle(self, message: dict[str, Any]) -> None:
        future = self._waiting.get(message.get("call", 0))
        if future is not None and not future.done():
            future.set_result(message)

    def suspend_reading(self, suspended: bool) -> None:
        """Nothing to do: each caller waits for its answer."""

    def limit_input(self) -> None:
        """Nothing to do: calls come one by one."""

    def _make(self, name: str, is_async: bool) -> Callable[..., Any]:
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, list(args), kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(self._call(name, list(args), kwargs), self._loop).result()

        return call_async if is_async else call

    async def _call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        args = [as_argument(name, number, value) for number, value in enumerate(args, 1)]
        kwargs = {key: as_argument(name, key, value) for key, value in kwargs.items()}
        number = next(self._numbers)
        if number > self._limits.calls + 1:  # The first call too many is in the log.
            raise too_many(name, self._limits.calls)
        future = self._waiting[number] = self._loop.create_future()
        try:
            message = {"call": number, "name": name, "args": args, "kwargs": kwargs}
            self._calls.take(message, len(encode(message)))
            return result_of(await future)
        except asyncio.CancelledError:
            self._calls.leave(number)
            raise
        finally:
            del self._waiting[number]


def _no_input(*_: object) -> str:
    raise RuntimeError("input() is not available: nobody can answer here. Put the values into the code.")


def _exit(code: object = None) -> None:
    raise SystemExit(*(() if code is None else (str(code),)))
