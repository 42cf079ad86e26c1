"""The walls (isolation backends) by name, and the choice of the strongest one that can be built here."""

from __future__ import annotations

import asyncio
import importlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from coderoom.errors import RequestError, SandboxUnavailable

if TYPE_CHECKING:
    from coderoom.sandbox.walls.docker.engine import DockerWorker
    from coderoom.sandbox.walls.docker.wall import DockerWall
    from coderoom.sandbox.walls.local import LocalWorker, ProbedWall

    Wall: TypeAlias = ProbedWall | DockerWall
    StartedWorker: TypeAlias = LocalWorker | DockerWorker

# The class of each wall, imported late: mostly only one is needed.
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
_log = logging.getLogger(__name__)
NOT_INSTALLED = "There is no "


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


def make_wall(name: str) -> Wall:
    """A wall by its name."""
    if name not in WALLS:
        raise RequestError(f"There is no wall {name!r}; there are {', '.join(map(repr, WALLS))}.")
    module, _, cls = WALLS[name].partition(":")
    return cast("Wall", getattr(importlib.import_module(module), cls)())


async def probe_all() -> list[WallReport]:
    """Try which walls can be built here, those of `AUTO_ORDER` in its order."""
    return list(await asyncio.gather(*(make_wall(name).probe() for name in AUTO_ORDER)))


def _tell_of(failed: list[WallReport], name: str) -> None:
    """Tell that a stronger wall is installed here and does not work, which a user would not notice."""
    for report in failed:
        if not report.detail.startswith(NOT_INSTALLED):
            _log.warning(
                "Code runs behind the wall %r, since the stronger wall %r cannot be built here: %s %s",
                *(name, report.name, report.detail, report.remedy),
            )


async def choose() -> Wall:
    """The first wall of `AUTO_ORDER` that can be built here; the error lists what each lacks, and what to do."""
    if _chosen:
        return make_wall(_chosen[0])
    reports: list[WallReport] = []
    for name in AUTO_ORDER:
        report = await make_wall(name).probe()
        if report.available:
            _chosen[:] = [name]
            _tell_of(reports, name)
            return make_wall(name)
        reports.append(report)
    listed = "\n".join(f"- {report.name}: {report.detail} {report.remedy}".rstrip() for report in reports)
    raise SandboxUnavailable(
        f"No wall between code and this machine can be built:\n{listed}\n"
        'Do one of these, or run code that you trust without a wall: wall="none".'
    )
