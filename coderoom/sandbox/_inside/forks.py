"""What modules want to have done when their process forks."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict

__all__ = ["after_fork", "collect_hooks", "fork", "leave_hooks"]

Hook = Dict[str, Callable[[], Any]]

# They care for locks and threads of a parent that has several threads, which none of ours has.
_NEEDLESS = ("concurrent.futures.thread", "logging", "threading")

_hooks: list[Hook] = []
_wanted: list[Callable[[], Any]] = []
_register = getattr(os, "register_at_fork", None)

fork = os.fork
"""The fork that does not ask modules what they want."""


def collect_hooks() -> None:
    """Keep what modules ask to have done at forks, instead of letting the interpreter do it at each fork of ours."""
    if _register is not None:
        os.register_at_fork = lambda **hook: _hooks.append(hook)


def leave_hooks() -> None:
    """Collect no more; whoever forks in the ordinary way from now on has it all done."""
    if _register is not None:
        os.register_at_fork = _register
        os.fork = _ordinary_fork
    in_child = [hook["after_in_child"] for hook in _hooks if "after_in_child" in hook]
    _wanted[:] = [call for call in in_child if getattr(call, "__module__", "") not in _NEEDLESS]


def after_fork() -> None:
    """Do in a runner what was asked for; a new seed for `random`, for instance."""
    for call in _wanted:
        call()


def _ordinary_fork() -> int:
    os.fork = fork
    if _register is not None:
        for hook in _hooks:
            _register(**hook)
    return fork()
