"""What makes a fork cheap: pages that nobody writes to need not be copied.

Copying a page that both processes have costs the child some microseconds, and a fork of an interpreter can touch
hundreds of pages before it has run a line. So what can be done once is done in the worker.
"""

from __future__ import annotations

import gc
import linecache
from typing import Any

from .interpreter import Interpreter

__all__ = ["freeze", "settle"]


def settle(config: dict[str, Any]) -> None:
    """Run what every runner runs, until the interpreter has adapted to it."""
    for _ in range(20):
        Interpreter({**config, "workspace": "/dev"}).run({"code": "x = [1, 2]\nsum(x)"})
    linecache.clearcache()


def freeze() -> None:
    """Exclude the objects that exist now from garbage collection, which would touch all of them in every fork."""
    gc.freeze()
    gc.enable()
