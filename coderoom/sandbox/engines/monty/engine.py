"""The engine `monty`: cells in pydantic-monty's own interpreter. No other module imports pydantic-monty.

Its workers have neither files nor a network nor other programs, because the interpreter has no means for them. A state
is data that can be copied: a session needs a worker only while a cell runs, a checkpoint is a copy, and stopping a cell
loses nothing but that cell.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.engines.monty.cells import ELSE, MODULES, MontyCell, prelude, returned
from coderoom.sandbox.engines.monty.session import MontySession
from coderoom.sandbox.engines.monty.workers import Guard, launcher, resident
from coderoom.sandbox.functions.function import HostFunction

if TYPE_CHECKING:
    import pydantic_monty

_IDLE_LIMITS = ("processes", "open_files", "file_bytes")
_NO_LIMIT = 86_400.0
_MOST_WORKERS = 32
_BLOATED = 64 * 1024 * 1024  # A worker of this size is replaced: it gives no memory back.


class MontyEngine:
    """pydantic-monty's workers, and the sessions that take turns in them; each cell that runs takes one of `slots`.

    The limits `processes`, `open_files` and `file_bytes` must not be set: code can start no processes and keep no files
    open, and `disk_bytes` limits what a cell writes.
    """

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
                "that is known to work comes with: pip install 'coderoom[monty]'"
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
    if config.wall != "auto":
        raise RequestError(f"The engine 'monty' stands behind no wall, but got wall={config.wall!r}.")
    for name in ("network", "python", "readable", "options"):
        if value := getattr(config, name):
            raise RequestError(f"{name}={value!r}: the engine 'monty' has no such thing; {ELSE}.")
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
            "The engine 'monty' needs pydantic-monty, which is not installed: pip install 'coderoom[monty]'"
        ) from error
