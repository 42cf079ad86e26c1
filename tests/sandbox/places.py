"""The engines and walls that tests run on, and which of them a test runs on."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from coderoom.sandbox import Sandbox, SandboxUnavailable
from tests.support.sandbox_server import shared_server

__all__ = [
    "STRONGEST",
    "Place",
    "also_at_a_server",
    "everywhere",
    "on_both_shapes",
    "on_each_engine",
    "on_every_kind_of_wall",
    "on_monty",
    "on_python",
    "on_walls",
    "on_walls_with_mounts",
    "on_walls_without_mounts",
]

# Root's workers do not stay root: without mounts they cannot read a virtual environment below /root.
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
        if self.engine == "remote":
            return Sandbox(engine="remote", options=shared_server(), **arguments)
        return Sandbox(self.wall, **self.arguments, **arguments)

    def missing(self) -> str:
        """Why it cannot be used here; empty if it can."""
        if self.engine == "monty":
            installed = importlib.util.find_spec("pydantic_monty") is not None
            return "" if installed else "pydantic-monty is not installed: pip install 'coderoom[monty]'"
        return "" if self.wall == "docker" or self.engine == "remote" else _missing(self)


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


def _marked(*places: Place, marks: Sequence[pytest.MarkDecorator] = ()) -> list[Any]:
    return [pytest.param(place, id=str(place), marks=marks) for place in places]


def _on(*places: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("place", places, indirect=True)


STRONGEST, _WEAKER = (
    Place("cpython", wall)
    for wall in (("bubblewrap", "namespaces") if shutil.which("bwrap") else ("namespaces", "bubblewrap"))
)
_STRONGEST = _marked(STRONGEST)
_NONE = _marked(Place("cpython", "none"), marks=[pytest.mark.allwalls])
_MONTY = _marked(Place("monty", ""))
_REMOTE = _marked(Place("remote", ""))
_AT_A_SERVER = _marked(Place("remote", ""), marks=[pytest.mark.slow])
_OTHERS = [
    *_marked(Place("cpython", "landlock", _REACHABLE), marks=[pytest.mark.allwalls]),
    *_marked(Place("cpython", "docker"), marks=[pytest.mark.allwalls, pytest.mark.docker]),
]
# Each makes its rooms as another one does, so a test runs behind it only if it names it.
_TWINS = _marked(_WEAKER, Place("cpython", "sandlock", _REACHABLE), marks=[pytest.mark.allwalls])
# A test that says nothing runs behind the strongest wall only.
on_each_engine = _on(*_STRONGEST, *_MONTY, *_REMOTE)
on_python = _on(*_STRONGEST, *_AT_A_SERVER)  # Where all of Python runs: here, and at a server.
on_both_shapes = _on(*_STRONGEST, *_NONE)  # Rooms with namespaces of their own, and plain processes.
on_every_kind_of_wall = _on(*_STRONGEST, *_NONE, *_OTHERS)
everywhere = _on(*_STRONGEST, *_NONE, *_MONTY, *_OTHERS)


def also_at_a_server(places: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Run a test in some places, and at a server."""
    return _on(*places.args[1], *_AT_A_SERVER)


def on_walls(*names: str) -> pytest.MarkDecorator:
    """Run a test behind these walls only."""
    return _on(*(each for each in (*_STRONGEST, *_NONE, *_OTHERS, *_TWINS) if each.values[0].wall in names))


on_walls_with_mounts = on_walls("bubblewrap", "namespaces")
on_walls_without_mounts = on_walls("landlock", "none", "docker")
on_monty = _on(*_MONTY)
