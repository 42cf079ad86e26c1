"""The walls and the engines by name; `coderoom.sandbox.contracts` says what they are."""

from __future__ import annotations

from typing import Any, Final

from coderoom._util.plugins import Plugins

# The class of each wall, strongest first, imported late: mostly only one is needed.
WALLS: Final = Plugins(
    "wall",
    {
        "bubblewrap": "coderoom.sandbox.walls.namespaces:BubblewrapWall",
        "namespaces": "coderoom.sandbox.walls.namespaces:NamespacesWall",
        "sandlock": "coderoom.sandbox.walls.landlock:SandlockWall",
        "landlock": "coderoom.sandbox.walls.landlock:LandlockWall",
        "docker": "coderoom.sandbox.walls.docker.wall:DockerWall",
        "none": "coderoom.sandbox.walls.local:NoWall",
    },
    ("name", "probe", "start"),
    besides=["auto"],
)

ENGINES: Final = Plugins(
    "engine",
    {
        "cpython": "coderoom.sandbox.engines.cpython.engine:CPythonEngine",
        "monty": "coderoom.sandbox.engines.monty.engine:MontyEngine",
        "remote": "coderoom.sandbox.engines.remote.engine:RemoteEngine",
    },
    ("name", "languages", "lacks", "start", "open", "close", "kill"),
)


def asked_in_vain(engine: Any, config: object) -> list[str]:
    """The arguments of a sandbox or an executor that are given, and that an engine (its class) has no use for."""
    nothing: tuple[object, ...] = ("auto", "open", "direct", False, None, (), [], {})
    return [name for name in engine.lacks if getattr(config, name, None) not in nothing]
