"""What modules want to have done when their process forks."""

from __future__ import annotations

import os
import warnings
from typing import Any, Callable, Dict, List

from .cpython import LOCKS, find_fork_hooks, thread_count

__all__ = ["after_fork", "collect_hooks", "fork", "leave_hooks", "threads"]

Call = Callable[[], Any]
Hook = Dict[str, Call]

# They care for the locks and threads of a parent that has several threads.
_OF_THREADS = ("concurrent.futures.thread", "logging", "threading")

_hooks: list[Hook] = []
_wanted: list[Call] = []
_lists: list[List[Call]] = []  # The interpreter's own, of what it calls at each fork.
_register = getattr(os, "register_at_fork", None)
_fork = os.fork
_dead = 0


def threads() -> int:
    """How many threads there are besides the first; Python goes on counting those that a fork has left behind."""
    return thread_count() - _dead


def fork() -> int:
    """Fork so that the child is as its parent was: it does not ask modules what they want, such as a new seed.

    The child has one thread only. Where its parent has more, the locks and lists of those are put in order.
    """
    if not (threads() or any(_lists)):
        return _fork()
    several = threads() > 0
    if several:
        _register_collected()
    before = [list(calls) for calls in _lists]
    for calls in _lists:
        calls[:] = [call for call in calls if several and _is_of_threads(call)]
    try:
        return _fork_quietly() if several else _fork()
    finally:
        for calls, all_calls in zip(_lists, before):  # noqa: B905 (Python 3.8)
            calls[:] = all_calls


def collect_hooks() -> None:
    """Keep what modules ask to have done at forks, instead of letting the interpreter do it at each fork of ours."""
    if _register is not None:
        _lists.extend(find_fork_hooks())
        os.register_at_fork = lambda **hook: _hooks.append(hook)


def leave_hooks() -> None:
    """Collect no more; whoever forks in the ordinary way from now on has it all done."""
    if _register is not None:
        os.register_at_fork = _register
        os.fork = _ordinary_fork
    in_child = [hook["after_in_child"] for hook in _hooks if "after_in_child" in hook]
    _wanted[:] = [call for call in in_child if not _is_of_threads(call)]


def after_fork() -> None:
    """Do in a runner what was asked for; a new seed for `random`, for instance."""
    for call in _wanted:
        call()


def _is_of_threads(call: Call) -> bool:
    owner = getattr(call, "__self__", None)
    return getattr(call, "__module__", "") in _OF_THREADS or type(owner) in LOCKS


def _fork_quietly() -> int:
    """Fork while there are threads, which Python 3.12 and later warn of."""
    global _dead
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = _fork()
    if not pid:
        _dead = thread_count()
    return pid


def _ordinary_fork() -> int:
    _register_collected()
    return _fork()


def _register_collected() -> None:
    os.fork = _fork
    if _register is not None:
        for hook in _hooks:
            _register(**hook)
    _hooks.clear()
