"""The engines and walls that the conformance suite runs on."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import shutil
from dataclasses import dataclass, field
from typing import Any

from coderoom.sandbox import Sandbox, SandboxUnavailable

__all__ = ["CPYTHON", "PLACES", "Place"]

# To root's workers, who do not stay root, a virtual environment below /root is out of reach without mounts.
_REACHABLE = {"python": "/usr/bin/python3"} if os.geteuid() == 0 else {}


@dataclass(frozen=True)
class Place:
    """An engine behind a wall.

    Attributes:
        engine: The engine.
        wall: The wall; empty for an engine that needs none.
        arguments: What a sandbox there has to be given.
    """

    engine: str
    wall: str
    arguments: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.wall or self.engine

    @property
    def has_node(self) -> bool:
        return self.wall != "docker" and shutil.which("node") is not None

    @property
    def has_mounts(self) -> bool:
        """Whether each room has its own mounts."""
        return self.wall in ("bubblewrap", "namespaces")

    @property
    def has_shared_memory(self) -> bool:
        """Whether there is a `/dev/shm` to write to, as locks between processes need it."""
        return self.wall not in ("landlock", "sandlock")

    def sandbox(self, **arguments: Any) -> Sandbox:
        if self.engine == "monty":
            return Sandbox(engine="monty", **arguments)
        return Sandbox(self.wall, **self.arguments, **arguments)

    def missing(self) -> str:
        """Why it cannot be used here; empty if it can."""
        if self.engine == "monty":
            installed = importlib.util.find_spec("pydantic_monty") is not None
            return "" if installed else "pydantic-monty is not installed: pip install 'coderoom[monty]'"
        return "" if self.wall == "docker" else _missing(self)


@functools.cache
def _missing(place: Place) -> str:
    async def try_it() -> None:
        async with place.sandbox():
            pass

    try:
        asyncio.run(try_it())
    except SandboxUnavailable as error:
        return str(error)
    return ""


CPYTHON = [
    *(Place("cpython", wall) for wall in ("bubblewrap", "namespaces", "none", "docker")),
    *(Place("cpython", wall, _REACHABLE) for wall in ("sandlock", "landlock")),
]
PLACES = [*CPYTHON, Place("monty", "")]
