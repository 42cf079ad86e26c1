"""The walls (isolation backends) by name, and the choice of the strongest one that can be built here."""

from __future__ import annotations

import asyncio
import importlib
from typing import cast

from coderoom.errors import MissingDependencyError, RequestError, SandboxUnavailable
from coderoom.sandbox.walls.base import Wall, WallReport

__all__ = ["AUTO_ORDER", "WALLS", "choose", "make_wall", "probe_all"]

# The class of each wall, imported late: some need packages that may be missing.
WALLS = {
    "bubblewrap": "coderoom.sandbox.walls.bubblewrap:BubblewrapWall",
    "namespaces": "coderoom.sandbox.walls.namespaces:NamespacesWall",
    "sandlock": "coderoom.sandbox.walls.sandlock:SandlockWall",
    "landlock": "coderoom.sandbox.walls.landlock:LandlockWall",
    "docker": "coderoom.sandbox.walls.docker.wall:DockerWall",
    "none": "coderoom.sandbox.walls.none:NoWall",
}
AUTO_ORDER = ("bubblewrap", "namespaces", "sandlock", "landlock", "docker")

_chosen: list[str] = []


def make_wall(name: str) -> Wall:
    """A wall by its name.

    Raises:
        RequestError: There is no such wall.
        MissingDependencyError: A package that it needs is not installed.
    """
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
    """The first wall of `AUTO_ORDER` that can be built here.

    Raises:
        SandboxUnavailable: None can; the message lists what each lacks, and what to do.
    """
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
