"""The engines and walls that the conformance suite runs on."""

from __future__ import annotations

import asyncio
import functools
import shutil
from dataclasses import dataclass
from typing import Any

from coderoom.sandbox import Sandbox
from coderoom.sandbox._walls import make_wall

__all__ = ["PLACES", "Place"]


@dataclass(frozen=True)
class Place:
    """An engine behind a wall."""

    engine: str
    wall: str

    def __str__(self) -> str:
        return f"{self.engine}-{self.wall}"

    @property
    def has_node(self) -> bool:
        return self.wall != "docker" and shutil.which("node") is not None

    @property
    def has_mounts(self) -> bool:
        return self.wall in ("bubblewrap", "namespaces")

    def sandbox(self, **arguments: Any) -> Sandbox:
        return Sandbox(self.wall, **arguments)

    def missing(self) -> str:
        """Why it cannot be used here; empty if it can."""
        return _missing(self.wall)


@functools.cache
def _missing(wall: str) -> str:
    report = asyncio.run(make_wall(wall).probe())
    return "" if report.available else f"the wall {wall!r}: {report.detail}"


PLACES = [Place("cpython", wall) for wall in ("bubblewrap", "namespaces", "none")]
