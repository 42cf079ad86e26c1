"""The interface of engines, which interpret cells, for `Sandbox` and `Session`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from coderoom.sandbox.cell import Program
from coderoom.sandbox.functions import HostFunction
from coderoom.sandbox.result import ExecutionResult, OutputChunk

__all__ = ["Engine", "EngineSession"]


class EngineSession(Protocol):
    """A session: one interpreter state."""

    async def run(
        self,
        code: str,
        program: Program | None = None,
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
    ) -> ExecutionResult:
        """Run a cell that `check_cell` has passed; `final`: it is the last one."""
        ...

    async def cancel(self) -> None:
        """End the cell that runs."""
        ...

    async def checkpoint(self) -> Any:
        """Save the state."""
        ...

    async def rollback(self, held: Any) -> None:
        """Go back to a saved state."""
        ...

    def release(self, held: Any) -> None:
        """Drop a saved state; dropping it twice is not an error."""
        ...

    async def restart(self) -> None:
        """Go back to the fresh state."""
        ...

    def hold_output(self, held: bool) -> None:
        """Pause or resume the cell that runs, where it prints."""
        ...

    async def close(self) -> None:
        """End all that it has started; a second call does nothing."""
        ...

    def abandon(self) -> None:
        """As `close`, without waiting."""
        ...

    def frozen(self) -> AbstractAsyncContextManager[None]:
        """Stop all processes of the session within the context."""
        ...


class Engine(Protocol):
    """What a sandbox starts, and starts again when it has ended."""

    @property
    def wall(self) -> str:
        """The name of the wall."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts about the worker, once it has started."""
        ...

    @property
    def lost(self) -> bool:
        """Whether it has ended."""
        ...

    async def start(self) -> None:
        """Start it and wait until it is warm."""
        ...

    async def close(self) -> None:
        """End all sessions and workers."""
        ...

    def kill(self) -> None:
        """As `close`, without an event loop."""
        ...

    async def open(self, functions: Mapping[str, HostFunction]) -> EngineSession:
        """Open a session with a fresh state, whose code may call functions of the host."""
        ...
