"""The interface of walls (isolation backends), for engines and for the modules of this package."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from coderoom.sandbox.config import SandboxConfig

__all__ = ["StartedWorker", "Wall", "WallReport", "WallSpec"]


WallSpec = SandboxConfig
"""The configuration of a sandbox, whose `env` is the whole environment here."""


class StartedWorker(Protocol):
    """A worker behind its wall.

    Attributes:
        control: The host's end of the control channel, a `SOCK_SEQPACKET` socket of the family `AF_UNIX`.
        boot: What the worker has to do at its start: which inner layers it builds itself (see
            `coderoom.sandbox.guest.isolation.boot`).
    """

    control: socket.socket
    boot: Mapping[str, Any]

    async def end(self) -> None:
        """End the worker and everything behind the wall at once, and remove what was made for it."""
        ...

    def kill(self) -> None:
        """As `end`, without an event loop."""
        ...

    def describe_death(self) -> str:
        """Why it ended by itself, as far as known: its exit code and what it wrote to standard error."""
        ...


@dataclass(frozen=True)
class WallReport:
    """Whether a wall can be built here.

    Attributes:
        name: The wall's name.
        available: Whether it can.
        detail: How it is built here, or why it cannot be built.
        remedy: What would make it available or stronger; may be empty.
    """

    name: str
    available: bool
    detail: str
    remedy: str = ""


class Wall(Protocol):
    """An isolation backend."""

    name: str

    async def probe(self) -> WallReport:
        """Try whether this wall can be built here; never raises, and takes a few seconds at most."""
        ...

    async def start(self, spec: WallSpec) -> StartedWorker:
        """Start a worker behind the wall.

        Raises:
            SandboxUnavailable: The wall cannot be built; the message says why and what to do.
            RequestError: An option is wrong.
        """
        ...
