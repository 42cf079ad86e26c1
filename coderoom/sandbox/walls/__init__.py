"""The walls (isolation backends) by name, and the choice of the strongest one that can be built here."""

from __future__ import annotations

import asyncio
import importlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.sandbox.config import SandboxConfig

__all__ = ["AUTO_ORDER", "WALLS", "StartedWorker", "Wall", "WallReport", "choose", "make_wall", "probe_all"]

# The class of each wall, imported late: some need packages that may be missing.
WALLS = {
    "bubblewrap": "coderoom.sandbox.walls.namespaces:BubblewrapWall",
    "namespaces": "coderoom.sandbox.walls.namespaces:NamespacesWall",
    "sandlock": "coderoom.sandbox.walls.landlock:SandlockWall",
    "landlock": "coderoom.sandbox.walls.landlock:LandlockWall",
    "docker": "coderoom.sandbox.walls.docker.wall:DockerWall",
    "none": "coderoom.sandbox.walls.local:NoWall",
}
AUTO_ORDER = ("bubblewrap", "namespaces", "sandlock", "landlock", "docker")
_chosen: list[str] = []


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
        """Try whether this wall can be built here, which takes a few seconds at most.

        Raises:
            RequestError: The interpreter that `CODEROOM_PYTHON` names cannot be used.
        """
        ...

    async def start(self, spec: SandboxConfig) -> StartedWorker:
        """Start a worker behind the wall; `spec.env` is its whole environment.

        Raises:
            SandboxUnavailable: The wall cannot be built; the message says why and what to do.
            RequestError: An option is wrong.
        """
        ...


def make_wall(name: str) -> Wall:
    """A wall by its name."""
    if name not in WALLS:
        raise RequestError(f"There is no wall {name!r}; there are {', '.join(map(repr, WALLS))}.")
    module, _, cls = WALLS[name].partition(":")
    try:
        return cast(Wall, getattr(importlib.import_module(module), cls)())
    except ImportError as error:
        raise MissingDependencyError(f"The wall {name!r} cannot be used: {error}.") from error


async def probe_all() -> list[WallReport]:
    """Try which walls can be built here, those of `AUTO_ORDER` in its order."""
    return list(await asyncio.gather(*(_probe(name) for name in AUTO_ORDER)))


async def choose() -> Wall:
    """The first wall of `AUTO_ORDER` that can be built here; the error lists what each lacks, and what to do."""
    if _chosen:
        return make_wall(_chosen[0])
    reports = []
    for name in AUTO_ORDER:
        report = await _probe(name)
        if report.available:
            _chosen[:] = [name]
            return make_wall(name)
        reports.append(report)
    listed = "\n".join(f"- {report.name}: {report.detail} {report.remedy}".rstrip() for report in reports)
    raise SandboxUnavailable(
        f"No wall between code and this machine can be built:\n{listed}\n"
        'Do one of these, or run code that you trust without a wall: wall="none".'
    )


async def _probe(name: str) -> WallReport:
    try:
        return await make_wall(name).probe()
    except MissingDependencyError as error:
        return WallReport(name, available=False, detail=str(error))
