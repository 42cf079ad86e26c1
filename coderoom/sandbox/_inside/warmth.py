"""What makes a fork cheap: pages that nobody writes to need not be copied.

Copying a page that both processes have costs the child some microseconds, and a fork of an interpreter can touch hundreds
of pages before it has run a line. So what can be done once is done in the zygote.
"""

from __future__ import annotations

import gc
import linecache
import os
from typing import Any, Callable, Dict, List

from .cells import Interpreter

__all__ = ["after_fork", "collect_hooks", "freeze", "settle"]

Hook = Dict[str, Callable[[], Any]]

_hooks: List[Hook] = []
_register = getattr(os, "register_at_fork", None)


def collect_hooks() -> None:
    """Keep what modules ask to have done at forks, instead of letting the interpreter do it at each fork of ours."""
    if _register is not None:
        os.register_at_fork = lambda **hook: _hooks.append(hook)  # type: ignore[assignment]


def settle(config: Dict[str, Any]) -> None:
    """Run what every runner runs, until the interpreter has adapted to it."""
    for _ in range(20):
        Interpreter({**config, "workspace": "/dev"}).run({"code": "x = [1, 2]\nsum(x)"})
    linecache.clearcache()


def freeze() -> None:
    """Take what is here now out of garbage collection's way."""
    gc.collect()
    gc.freeze()  # Collections in the forks would touch every object.


def after_fork() -> None:
    """Do in a runner what was asked for, and let its own forks be ordinary ones again.

    What `threading` wants done is left out: it cares for locks and threads of the parent, and a keeper has neither.
    """
    if _register is None:
        return
    os.register_at_fork = _register
    for hook in _hooks:
        in_child = hook.get("after_in_child")
        if in_child is not None and getattr(in_child, "__module__", "") != "threading":
            in_child()
        _register(**hook)
