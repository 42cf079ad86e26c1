"""What every wall promises."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from coderoom.sandbox.config import SandboxConfig

__all__ = ["StartedWorker", "Wall", "WallReport", "WallSpec"]


WallSpec = SandboxConfig
"""What a wall is asked for: a sandbox's configuration, whose `env` is the whole environment here."""


class StartedWorker(Protocol):
    """A worker behind its wall.

    Attributes:
        control: This side of the worker's control channel, a `SOCK_SEQPACKET` socket of the `AF_UNIX` family.
        boot: What the worker has to be told first, besides what every worker is told: which of the inner layers it
            builds itself (see `coderoom.sandbox.guest.isolation.boot`).
    """

    control: socket.socket
    boot: Mapping[str, Any]

    async def end(self) -> None:
        """End the worker and everything behind the wall, at once, and remove what was made for it."""
        ...

    def kill(self) -> None:
        """The same without waiting, for when there is no event loop any more."""
        ...

    def describe_death(self) -> str:
        """What is known of why it ended by itself: its exit code and what it wrote to standard error."""
        ...


@dataclass(frozen=True)
class WallReport:
    """Whether a wall can be built here.

    Attributes:
        name: The wall's name.
        available: Whether it can.
        detail: What it consists of here, or why it cannot be built.
        remedy: What would make it available, or stronger; empty if there is nothing to do.
    """

    name: str
    available: bool
    detail: str
    remedy: str = ""


class Wall(Protocol):
    """A way to keep code from the host."""

    name: str

    async def probe(self) -> WallReport:
        """Try whether this wall can be built here; never raises, takes a few seconds at most."""
        ...

    async def start(self, spec: WallSpec) -> StartedWorker:
        """Start a worker behind the wall.

        Raises:
            SandboxUnavailable: The wall cannot be built; the message says why and what to do.
            RequestError: An option is wrong.
        """
        ...
