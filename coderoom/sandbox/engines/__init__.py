"""What interprets cells. This module has the protocols that an engine implements for `Sandbox` and `Session`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from coderoom.sandbox.cell import Program
from coderoom.sandbox.functions import HostFunction
from coderoom.sandbox.result import ExecutionResult, OutputChunk

__all__ = ["Engine", "EngineSession"]


class EngineSession(Protocol):
    """An interpreter state that lasts from cell to cell."""

    async def run(
        self,
        code: str,
        program: Program | None = None,
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
    ) -> ExecutionResult:
        """Run a cell that `check_cell` has accepted; `final`: it is the only one, a one-shot run."""
        ...

    async def cancel(self) -> None:
        """End the cell that runs."""
        ...

    async def checkpoint(self) -> Any:
        """Keep the state; return a handle for `rollback` and `release`."""
        ...

    async def rollback(self, handle: Any) -> None:
        """Return to a checkpoint."""
        ...

    def release(self, handle: Any) -> None:
        """Discard a checkpoint; one that was discarded already is no error."""
        ...

    async def restart(self) -> None:
        """Return to the fresh state."""
        ...

    def suspend_output(self, suspended: bool) -> None:
        """Stop or continue to read the output of the running cell, which blocks while nothing is read."""
        ...

    async def close(self) -> None:
        """End everything that it has started; a second time does nothing."""
        ...

    def abandon(self) -> None:
        """End everything without waiting; called for a session that was garbage-collected."""
        ...

    def frozen(self) -> AbstractAsyncContextManager[None]:
        """Stop all processes of the session for as long as the context lasts."""
        ...


class Engine(Protocol):
    """What interprets cells. A sandbox starts it, and starts it again after it has ended."""

    @property
    def wall(self) -> str:
        """The name of the wall (isolation backend)."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it reported about itself at its start."""
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
        """End everything without an event loop."""
        ...

    async def open(self, functions: Mapping[str, HostFunction]) -> EngineSession:
        """Open a session with a fresh state, whose code may call these functions of the host."""
        ...
