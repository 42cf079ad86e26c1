"""The engines and walls that the conformance suite runs on."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import shutil
from dataclasses import dataclass
from typing import Any

from coderoom.sandbox import Sandbox
from coderoom.sandbox._walls import make_wall

__all__ = ["CPYTHON", "PLACES", "Place"]


@dataclass(frozen=True)
class Place:
    """An engine behind a wall."""

    engine: str
    wall: str

    def __str__(self) -> str:
        return self.wall or self.engine

    @property
    def has_node(self) -> bool:
        return self.wall != "docker" and shutil.which("node") is not None

    @property
    def has_mounts(self) -> bool:
        return self.wall in ("bubblewrap", "namespaces")

    def sandbox(self, **arguments: Any) -> Sandbox:
        if self.engine == "monty":
            return Sandbox(engine="monty", **arguments)
        return Sandbox(self.wall, **arguments)

    def missing(self) -> str:
        """Why it cannot be used here; empty if it can."""
        if self.engine == "monty":
            installed = importlib.util.find_spec("pydantic_monty") is not None
            return "" if installed else "pydantic-monty is not installed: pip install 'coderoom[monty]'"
        return _missing(self.wall)


@functools.cache
def _missing(wall: str) -> str:
    report = asyncio.run(make_wall(wall).probe())
    return "" if report.available else f"the wall {wall!r}: {report.detail}"


CPYTHON = [Place("cpython", wall) for wall in ("bubblewrap", "namespaces", "none")]
PLACES = [*CPYTHON, Place("monty", "")]
