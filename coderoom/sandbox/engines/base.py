"""What interprets cells: the engines, as `Sandbox` and `Session` use them."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Protocol

from coderoom._util.tasks import call_in_loop
from coderoom.errors import RequestError
from coderoom.sandbox.arguments import SourceModule
from coderoom.sandbox.engines.cpython.pool import Worker
from coderoom.sandbox.engines.cpython.session import CPythonSession
from coderoom.sandbox.engines.monty.engine import MontyEngine
from coderoom.sandbox.environment import environment
from coderoom.sandbox.functions import HostFunction
from coderoom.sandbox.policy import Policy
from coderoom.sandbox.result import ExecutionResult, OutputChunk
from coderoom.sandbox.walls import choose, make_wall
from coderoom.sandbox.walls.base import Wall, WallSpec

__all__ = ["CPythonEngine", "Engine", "EngineSession", "make_engine"]

_MONTY_WORKERS = 32


class EngineSession(Protocol):
    """A state that lasts."""

    async def run(
        self,
        code: str,
        language: str = "python",
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
    ) -> ExecutionResult:
        """Run a cell; `final`: nothing comes after it."""
        ...

    async def cancel(self) -> None:
        """End the cell that runs."""
        ...

    async def checkpoint(self) -> Any:
        """Keep the state."""
        ...

    async def rollback(self, held: Any) -> None:
        """Go back to a state."""
        ...

    def release(self, held: Any) -> None:
        """Keep a state no longer; one that is gone already is no error."""
        ...

    async def restart(self) -> None:
        """Go back to the fresh state."""
        ...

    def hold_output(self, held: bool) -> None:
        """Let the cell that runs wait with its output, or go on."""
        ...

    async def close(self) -> None:
        """End everything that it has started; a second time does nothing."""
        ...

    def abandon(self) -> None:
        """The same without waiting, for a session that nobody has any more."""
        ...

    def frozen(self) -> AbstractAsyncContextManager[None]:
        """Let everything of the session stand still for as long as the context lasts."""
        ...


class Engine(Protocol):
    """What a sandbox starts, and starts again when it is lost."""

    @property
    def wall(self) -> str:
        """What keeps code from the host."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it says of itself once it has started."""
        ...

    @property
    def lost(self) -> bool:
        """Whether it has ended."""
        ...

    async def start(self) -> None:
        """Start it and wait until it is warm."""
        ...

    async def close(self) -> None:
        """End everything."""
        ...

    def kill(self) -> None:
        """The same without an event loop."""
        ...

    async def open(self, functions: Mapping[str, HostFunction]) -> EngineSession:
        """A fresh state whose code may call those functions of the host."""
        ...


class CPythonEngine:
    """The real interpreter, in forks of a warm worker behind a wall.

    Args:
        wall: The wall's name, or `auto`.
        spec: What it is asked for.
        preload: The modules that are imported once, for all.
        rules: The policy's rules for inside; `None` without a policy.
        result_name: A variable whose value counts where a cell has none.
        concurrency: How many sessions there may be at a time.
    """

    def __init__(
        self,
        wall: str,
        spec: WallSpec,
        preload: Sequence[str | SourceModule],
        rules: Mapping[str, Any] | None,
        result_name: str | None,
        concurrency: int,
    ) -> None:
        self._wall_name = wall
        self._wall: Wall | None = None if wall == "auto" else make_wall(wall)
        self._spec = spec
        self._preload = preload
        self._rules = rules
        self._result_name = result_name
        self._concurrency = concurrency
        self._worker: Worker | None = None
        self._dropped: weakref.finalize[..., Any]

    @property
    def wall(self) -> str:
        """What keeps code from the host; `auto` as long as that is not known."""
        return self._wall_name if self._wall is None else self._wall.name

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the worker says of itself."""
        return {} if self._worker is None else self._worker.facts

    @property
    def lost(self) -> bool:
        """Whether the worker has ended."""
        return self._worker is None or self._worker.lost

    async def start(self) -> None:
        """Start the worker and wait until it is warm."""
        await self.close()
        if self._wall is None:
            self._wall = await choose()
        if self._spec.workspace is not None:
            self._spec.workspace.mkdir(parents=True, exist_ok=True)
        worker = Worker(self._wall, self._spec, self._preload, self._rules, self._concurrency)
        await worker.start()
        self._worker = worker
        # Nobody may ever close it. At the end of the process its sockets are closed, and it ends.
        self._dropped = weakref.finalize(self, call_in_loop, asyncio.get_running_loop(), worker.abandon)
        self._dropped.atexit = False

    async def close(self) -> None:
        """End everything."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._dropped.detach()
            await worker.close()

    def kill(self) -> None:
        """The same without an event loop."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._dropped.detach()
            worker.kill()

    async def open(self, functions: Mapping[str, HostFunction]) -> EngineSession:
        """A fresh state in a room of its own."""
        worker = self._worker
        assert worker is not None
        room = await worker.take_room()
        return CPythonSession(worker, room, self._spec.limits, self._result_name, functions)


def make_engine(
    name: str, wall: str, spec: WallSpec, policy: Policy, preload: Sequence[str | SourceModule], concurrency: int
) -> Engine:
    """The engine of a name.

    Args:
        name: `cpython` or `monty`.
        wall: The wall's name, or `auto`.
        spec: What a wall is asked for; `env` has only what comes besides the base.
        policy: The policy.
        preload: The modules that are imported once, for all.
        concurrency: How many sessions there may be at a time.

    Raises:
        RequestError: There is no such engine, or it cannot do what is asked for.
    """
    result_name = "result" if policy.name == "restricted" else None
    if name == "cpython":
        whole = replace(spec, env=environment(spec.env))
        return CPythonEngine(wall, whole, preload, policy.rules, result_name, concurrency)
    if name != "monty":
        raise RequestError(f"There is no engine {name!r}; there are 'cpython' and 'monty'.")
    if wall != "auto":
        raise RequestError(f"The engine 'monty' stands behind no wall, but got wall={wall!r}.")
    return MontyEngine(
        limits=spec.limits,
        policy=policy.name,
        preload=[each if isinstance(each, str) else each.name for each in preload],
        workspace=spec.workspace,
        env=spec.env,
        network=spec.network,
        python=spec.python,
        readable=spec.readable,
        options=spec.options,
        workers=min(concurrency, _MONTY_WORKERS),
    )
