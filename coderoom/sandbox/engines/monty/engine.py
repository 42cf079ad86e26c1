"""The engine `monty`: cells in pydantic-monty's own interpreter.

Its workers have neither files nor a network nor other programs, because the interpreter has no words for them: a wall
made of language. A state is data that can be copied, so that a session needs a worker only while a cell runs, a
checkpoint is a copy, and a cell that had to be ended takes nothing with it but itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from coderoom.errors import RequestError, SandboxUnavailable
from coderoom.sandbox.config import SandboxConfig
from coderoom.sandbox.engines.monty.cells import ELSE, MODULES
from coderoom.sandbox.engines.monty.pool import MontyPool
from coderoom.sandbox.engines.monty.session import MontySession
from coderoom.sandbox.functions import HostFunction

__all__ = ["MontyEngine", "MontySession"]

_IDLE_LIMITS = ("processes", "open_files", "file_bytes")


class MontyEngine(MontyPool):
    """pydantic-monty's workers, and the sessions that take turns in them; see `Engine`.

    Args:
        config: The sandbox's configuration. The limits `processes`, `open_files` and `file_bytes` must not be set: the
            code can start and keep none, and of all files together a cell writes `disk_bytes` at most.

    Raises:
        RequestError: Something is asked for that this engine does not have.
    """

    wall = "monty"

    def __init__(self, config: SandboxConfig) -> None:
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
        super().__init__(config)
        self._sessions: set[MontySession] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every session and every worker; a second time does nothing."""
        for session in list(self._sessions):
            await session.close()
        await super().close()

    def kill(self) -> None:
        """The same without waiting, for when there is no event loop any more."""
        self._sessions.clear()
        super().kill()

    async def open(self, functions: Mapping[str, HostFunction] | None = None) -> MontySession:
        """Open a session with a fresh state.

        Args:
            functions: Functions of the host that the code may call by these names.

        Raises:
            SandboxUnavailable: The engine is not started.
        """
        if self.lost:
            raise SandboxUnavailable("The engine 'monty' is not started, or closed.")
        session = MontySession(self, functions or {}, self._sessions.discard)
        self._sessions.add(session)
        return session
