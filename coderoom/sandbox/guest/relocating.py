"""How a process goes on with other folders, where no mount shows them at the paths of the old ones.

What Python itself keeps of these paths is changed; a path in a variable of the code still names the old folder. Used by
the runner.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any, Dict


def relocated(path: str, moves: Dict[str, str]) -> str:
    """A path after its folder has moved."""
    for old, new in moves.items():
        if path == old or path.startswith(old + "/"):
            return new + path[len(old) :]
    return path


def relocate(moves: Dict[str, str], preloaded: str) -> None:
    """Replace the old paths in the environment and in what modules are found by.

    `preloaded` is the module that was imported last before there was code. Those up to it are not from the workspace,
    and a look at each would copy the memory that they are in.
    """

    def each_of(paths: Any) -> list[Any]:
        return [relocated(path, moves) if isinstance(path, str) else path for path in paths]

    for name, value in os.environ.items():
        moved = os.pathsep.join(each_of(value.split(os.pathsep)))
        if moved != value:
            os.environ[name] = moved
    sys.path[:] = each_of(sys.path)
    for imported in itertools.takewhile(lambda name: name != preloaded, reversed(sys.modules)):
        names = getattr(sys.modules[imported], "__dict__", {})
        for name in ("__file__", "__cached__"):
            if isinstance(names.get(name), str):
                names[name] = relocated(names[name], moves)
        if isinstance(names.get("__path__"), list):  # Where submodules are, which may be imported later.
            names["__path__"][:] = each_of(names["__path__"])
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None and isinstance(tempfile.tempdir, str):
        tempfile.tempdir = relocated(tempfile.tempdir, moves)
