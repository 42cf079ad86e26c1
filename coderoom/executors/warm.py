"""Keeps sandboxes warm from one executor to the next. Used by batches on a cluster, whose items share a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from coderoom.sandbox import Sandbox


class WarmSandboxes:
    """Sandboxes that executors leave behind, for others with the same settings; sessions are never shared.

    Attributes:
        idle: Those that nobody uses now.
    """

    def __init__(self) -> None:
        self.idle: list[Sandbox] = []

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Have all executors that start in this block take their sandboxes from here, and leave them here."""
        token = _LENDER.set(self)
        try:
            yield
        finally:
            _LENDER.reset(token)

    def take(self, new: Sandbox) -> Sandbox:
        """A warm sandbox with the settings of a new one, or that itself."""
        found = next((sandbox for sandbox in self.idle if sandbox.config == new.config), new)
        if found is not new:
            self.idle.remove(found)
        return found

    def leave(self, sandbox: Sandbox) -> None:
        """Keep a sandbox whose sessions are closed."""
        self.idle.append(sandbox)

    async def close(self) -> None:
        """Close all that are kept."""
        while self.idle:
            await self.idle.pop().close()


_LENDER: ContextVar[WarmSandboxes | None] = ContextVar("warm_sandboxes", default=None)


def lender() -> WarmSandboxes | None:
    """Where executors get warm sandboxes now, if anywhere."""
    return _LENDER.get()
