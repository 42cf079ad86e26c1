"""What interprets cells: the engines, as `Sandbox` and `Session` use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from coderoom.sandbox.cell import Program
from coderoom.sandbox.functions import HostFunction
from coderoom.sandbox.result import ExecutionResult, OutputChunk

__all__ = ["Engine", "EngineSession"]


class EngineSession(Protocol):
    """A state that lasts."""

    async def run(
        self,
        code: str,
        program: Program | None = None,
        timeout: float | None = None,
        final: bool = False,
        on_chunk: Callable[[OutputChunk], None] | None = None,
    ) -> ExecutionResult:
        """Run a cell that `check_cell` has passed; `final`: nothing comes after it."""
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
