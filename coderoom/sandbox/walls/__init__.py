"""The walls (isolation backends) by name, and the choice of the strongest one that can be built here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from coderoom.errors import CodeRoomError, SandboxUnavailable
from coderoom.sandbox.contracts import Wall, WallReport
from coderoom.sandbox.registry import WALLS

_chosen: list[str] = []
_log = logging.getLogger(__name__)
NOT_INSTALLED = "There is no "


def make_wall(name: str) -> Wall:
    """A wall by its name."""
    return cast("Wall", WALLS.load(name)())


async def probe_all() -> list[WallReport]:
    """Try which walls can be built here: CodeRoom's own, strongest first, then those of other packages."""
    return list(await asyncio.gather(*map(_probe, _candidates())))


def _candidates() -> Iterator[str]:
    yield from (name for name in WALLS.own if name != "none")
    yield from WALLS.foreign()  # Read only where none of CodeRoom's own can be built.


async def _probe(name: str) -> WallReport:
    if name in WALLS.own:
        return await make_wall(name).probe()
    try:
        wall = make_wall(name)
        return replace(await wall.probe(), name=name, auto=getattr(wall, "auto", False) is True)
    except Exception as error:  # A broken package must not keep others from their walls.
        known = isinstance(error, CodeRoomError)
        return WallReport(name, False, str(error) if known else f"Its probe failed: {type(error).__name__}: {error}")


async def choose() -> Wall:
    """The strongest wall that can be built here; the error lists what each lacks, and what to do.

    A wall of another package is taken only if its attribute `auto` says so and none of CodeRoom's own can be built: a
    package that is installed for something else must not decide where code runs.
    """
    if _chosen:
        return make_wall(_chosen[0])
    reports: list[WallReport] = []
    for name in _candidates():
        report = await _probe(name)
        if report.available and report.auto:
            _chosen[:] = [name]
            for failed in reports:  # A stronger wall that is installed and does not work: a user would not notice.
                if failed.name in WALLS.own and not failed.detail.startswith(NOT_INSTALLED):
                    _log.warning(
                        "Code runs behind the wall %r, since the stronger wall %r cannot be built here: %s %s",
                        *(name, failed.name, failed.detail, failed.remedy),
                    )
            return make_wall(name)
        reports.append(report)
    usable = "It can be built, but `auto` does not take it: name it."
    listed = "\n".join(
        f"- {report.name}: {usable if report.available else f'{report.detail} {report.remedy}'}".rstrip()
        for report in reports
    )
    raise SandboxUnavailable(
        f"No wall between code and this machine can be built:\n{listed}\n"
        'Do one of these, or run code that you trust without a wall: wall="none".'
    )
