"""Workers with pydantic-monty's interpreter. Nothing else here imports pydantic-monty."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from coderoom.errors import MissingDependencyError, SandboxUnavailable
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.engines.monty.cells import MontyCell, prelude, returned
from coderoom.sandbox.engines.monty.workers import Guard, launcher, resident

if TYPE_CHECKING:
    import pydantic_monty

__all__ = ["MontyPool", "MontyWorker"]

_EVER = 86_400.0
_MOST_WORKERS = 32
_BLOATED = 64 * 1024 * 1024  # A worker that has grown to this is replaced: it gives no memory back.


class Parkable(Protocol):
    """A session that has a worker and may give it up."""

    async def park(self) -> bool:
        """Give up the worker; `False` if it is needed."""


class MontyPool:
    """Workers with pydantic-monty's interpreter, in which sessions take turns.

    Args:
        config: The sandbox's configuration.
    """

    def __init__(self, config: SandboxConfig) -> None:
        self.limits = config.limits
        self.result_name = "result" if config.policy == "restricted" else None
        self.workspace = config.workspace
        self._env = config.env
        self._workers = min(config.concurrency, _MOST_WORKERS)
        self._slots = asyncio.Semaphore(self._workers)
        self._waiting = 0
        self._idle: dict[Parkable, None] = {}
        self._pool: pydantic_monty.AsyncMonty | None = None
        self._mount: pydantic_monty.MountDir | None = None
        self._guard = Guard()
        self._ending = contextlib.ExitStack()
        # Nobody may ever close it; the guard ends the workers.
        weakref.finalize(self, _end, self._guard, self._ending)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it says of itself: the version of pydantic-monty."""
        return {} if self._pool is None else {"monty": _monty().__version__}

    @property
    def lost(self) -> bool:
        """Whether it is not started."""
        return self._pool is None

    async def start(self) -> None:
        """Start a first worker and try whether it does what is needed; a second time does nothing.

        Raises:
            MissingDependencyError: pydantic-monty is not installed.
            SandboxUnavailable: No worker can be started, or it does not do what is needed.
        """
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
        """End every worker; a second time does nothing."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__(None, None, None)
        self.kill()

    def kill(self) -> None:
        """The same without waiting, for when there is no event loop any more."""
        self._pool = None
        _end(self._guard, self._ending)
        # Another event loop may come next.
        self._slots = asyncio.Semaphore(self._workers)
        self._idle.clear()
        self._waiting = 0

    async def check_out(self, state: bytes | None) -> MontyWorker:
        """Have a worker with a state; `None` is the fresh one.

        Raises:
            SandboxUnavailable: It cannot be started, or does not take the state.
        """
        if self._pool is None:
            raise SandboxUnavailable("The engine 'monty' is closed.")
        checkout = self._pool.checkout(
            limits={
                "max_memory": self.limits.memory_bytes,
                "max_feed_duration_secs": self.limits.cpu_seconds or _EVER,
                "max_suspensions": 2**53,
            },
            os_policy={"sleep_system_max": float("inf")},
        )
        worker = MontyWorker(checkout, self._mount, self._answer)
        try:
            await checkout.__aenter__()
            worker.pid = checkout.worker_pid or 0
            self._guard.hold(worker.pid)
            if state is None:
                await worker.feed(prelude(self.limits), {})
            else:
                await checkout.load_session(state)
        except BaseException as error:
            await asyncio.shield(self.give_back(worker, ended=True))
            if isinstance(error, (OSError, RuntimeError, _monty().MontyError)):
                raise SandboxUnavailable(f"A worker of the engine 'monty' could not be started: {error}") from error
            raise
        return worker

    async def give_back(self, worker: MontyWorker, ended: bool = False) -> None:
        """Let a worker serve others, or be replaced if it has ended or is too large."""
        if not ended and (resident(worker.pid) or 0) > _BLOATED:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
            ended = True
        await worker.leave()
        if ended:
            self._guard.release(worker.pid)

    async def take_slot(self) -> None:
        """Wait until there may be one worker more; a session that does nothing gives its own up."""
        self._waiting += 1
        try:
            if self._slots.locked():
                for session in list(self._idle):
                    if await session.park():
                        break
            await self._slots.acquire()
        finally:
            self._waiting -= 1

    def give_slot(self) -> None:
        """Let somebody else have a worker."""
        self._slots.release()

    def note_idle(self, session: Parkable) -> bool:
        """Note that a session has a slot and does nothing; whether somebody waits for one."""
        self._idle[session] = None
        return self._waiting > 0

    def note_busy(self, session: Parkable) -> None:
        """Note that it does something, or has no slot any more."""
        self._idle.pop(session, None)

    @staticmethod
    def is_of_code(error: BaseException) -> bool:
        """Whether an error is one that the code has made, and not one of the worker."""
        monty = _monty()
        return isinstance(error, (monty.MontySyntaxError, monty.MontyRuntimeError))

    async def _start(self, monty: Any) -> None:
        if self.workspace is not None:
            self.workspace.mkdir(parents=True, exist_ok=True)
            mount = monty.MountDir(
                host_path=self.workspace,
                virtual_path="/workspace",
                mode="read-write",
                write_bytes_limit=self.limits.disk_bytes,
            )
            self._mount = self._ending.enter_context(mount)
        binary = self._ending.enter_context(launcher(self.limits))
        # The pool's own bound would let checkouts wait without anybody being asked to give up a worker.
        pool = monty.AsyncMonty(binary_path=binary, min_processes=1, max_processes=65_536)
        self._pool = await pool.__aenter__()

    async def _try(self) -> None:
        worker = await self.check_out(None)
        try:
            state = await worker.dump()
            shown = await worker.feed(MontyCell.read("[1, 'a']", None).source, {})
        finally:
            await self.give_back(worker)
        if returned(shown).get("value") != [1, "a"]:
            raise ValueError(f"a list came out as {shown!r}")
        await self.give_back(await self.check_out(state))

    def _answer(self, *, name: str, args: tuple[Any, ...], **_: Any) -> Any:
        """What the code asks of its system, apart from files."""
        if name == "os.getenv":
            return self._env.get(args[0], args[1])
        return dict(self._env) if name == "os.environ" else _monty().NOT_HANDLED


class MontyWorker:
    """A worker that has a state.

    Args:
        checkout: The pool's name for it.
        mount: Its workspace.
        answer: What answers to what the code asks of its system.

    Attributes:
        pid: Its process; 0 as long as it has none.
    """

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
        """Run code; to cancel this ends the worker.

        Args:
            source: The code.
            functions: What the code may call.
            take: Called in another thread with what it prints.
        """
        return await self._checkout.feed_run(
            source, external_lookup=functions, print_callback=take, mount=self._mount, os=self._answer
        )

    async def dump(self) -> bytes:
        """Copy the state.

        Raises:
            SandboxUnavailable: The worker has ended.
        """
        try:
            return await self._checkout.dump()
        except (RuntimeError, _monty().MontyError) as error:
            raise SandboxUnavailable(f"The session's worker has ended: {error}.") from error

    async def leave(self) -> None:
        """Let the pool have it back."""
        with contextlib.suppress(Exception):  # It is gone in any case.
            await self._checkout.__aexit__(None, None, None)


def _end(guard: Guard, ending: contextlib.ExitStack) -> None:
    guard.end()
    ending.close()


def _monty() -> Any:
    try:
        return importlib.import_module("pydantic_monty")
    except ImportError as error:
        raise MissingDependencyError(
            "The engine 'monty' needs pydantic-monty, which is not installed: pip install 'coderoom[monty]'"
        ) from error
