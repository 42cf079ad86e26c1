"""Forks without the hooks that modules register with `os.register_at_fork`.

The worker collects the hooks of modules that it imports. Its own forks do not call them; a runner calls those that
matter to code. Used by the worker, the fork servers and the runners.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import Any, Callable, Dict, List

from .cpython import LOCKS, find_fork_hooks, thread_count

Call = Callable[[], Any]
Hook = Dict[str, Call]

# Modules whose hooks are needed if the parent has several threads: they reset locks and lists of threads.
_OF_THREADS = ("concurrent.futures.thread", "logging", "threading")

_hooks: list[Hook] = []
_in_child: list[Call] = []
_lists: list[List[Call]] = []  # The interpreter's own lists of functions to call at each fork.
_register = os.register_at_fork
_fork = os.fork
_dead = 0  # Threads of the parent, which do not exist in this process, but which Python still counts.


def threads() -> int:
    """How many threads there are besides the main one, without those of the parent, which Python still counts."""
    return thread_count() - _dead


def fork() -> int:
    """Fork without calling hooks, so that the child has the same state, for instance the same random seed.

    The child has one thread only. If its parent has more, the hooks that reset locks and lists of threads are called.
    """
    global _dead
    if not (threads() or any(_lists)):
        return _fork()
    several = threads() > 0
    if several:
        _register_collected()
    before = [list(calls) for calls in _lists]
    for calls in _lists:
        calls[:] = [call for call in calls if several and _is_of_threads(call)]
    try:
        if not several:
            return _fork()
        with warnings.catch_warnings():  # Python 3.12 and later warn of threads.
            warnings.simplefilter("ignore")
            pid = _fork()
        if not pid:
            _dead = thread_count()
        return pid
    finally:
        for calls, all_calls in zip(_lists, before):  # noqa: B905 (Python 3.8)
            calls[:] = all_calls


def collect_hooks() -> None:
    """Collect the hooks that modules register from now on, instead of registering them."""
    _lists.extend(find_fork_hooks())
    os.register_at_fork = lambda **hook: _hooks.append(hook)


def leave_hooks() -> None:
    """Stop collecting hooks. The first call of `os.fork` from now on registers those that were collected."""
    os.register_at_fork = _register
    os.fork = _ordinary_fork
    hooks = [hook["after_in_child"] for hook in _hooks if "after_in_child" in hook]
    _in_child[:] = [call for call in hooks if not _is_of_threads(call)]


def after_fork() -> None:
    """Call the collected hooks for a child process in a runner: `random` gets a new seed, for instance."""
    for call in _in_child:
        call()


def reseed() -> None:
    """Give the random generators that modules share a new seed."""
    for name in ("random", "numpy.random"):
        module = sys.modules.get(name)
        if module is not None:
            with contextlib.suppress(Exception):  # Code may have changed it.
                module.seed()


def _is_of_threads(call: Call) -> bool:
    owner = getattr(call, "__self__", None)
    return getattr(call, "__module__", "") in _OF_THREADS or type(owner) in LOCKS


def _ordinary_fork() -> int:
    _register_collected()
    return _fork()


def _register_collected() -> None:
    os.fork = _fork
    for hook in _hooks:
        _register(**hook)
    _hooks.clear()
