"""What modules want to have done when their process forks."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List

__all__ = ["after_fork", "collect_hooks"]

Hook = Dict[str, Callable[[], Any]]

_hooks: List[Hook] = []
_register = getattr(os, "register_at_fork", None)


def collect_hooks() -> None:
    """Keep what modules ask to have done at forks, instead of letting the interpreter do it at each fork of ours."""
    if _register is not None:
        os.register_at_fork = lambda **hook: _hooks.append(hook)  # type: ignore[assignment]


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
