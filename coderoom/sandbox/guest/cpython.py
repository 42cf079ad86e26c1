"""The private names of CPython that the guest uses; no other module of the guest has any.

`forks` is the first module that a worker imports, so this one must not import a module that registers fork hooks, such
as `threading`.
"""

from __future__ import annotations

import _io
import _thread
import atexit
import gc
import os
import resource
from typing import Any, Callable, Dict, List

LOCKS = (_thread.LockType, _thread.RLock)
"""The types of locks."""

STREAM = _io._IOBase
"""The class of all files and streams."""

thread_count = _thread._count
"""How many threads were started with Python's `threading` or `_thread` and have not ended."""
exit_calls = atexit._ncallbacks
"""How many functions are registered with `atexit`."""
run_exit_calls = atexit._run_exitfuncs
"""Call what is registered with `atexit`."""


def wait_for_threads() -> None:
    """Wait for all threads but daemons, as the interpreter does at its end."""
    import threading

    threading._shutdown()  # type: ignore[attr-defined]


def always_fork(context: Any) -> None:
    """Make `fork` the default start method of `multiprocessing`, and have the others fork too, given its contexts."""
    context._default_context._default_context = context._concrete_contexts["fork"]
    context.SpawnProcess._Popen = context.ForkServerProcess._Popen = staticmethod(context.ForkProcess._Popen)


def use_no_flags(subprocess: Any) -> None:
    """Have interpreters that libraries start find installed packages, unlike the worker with its `-I -S`."""
    subprocess._args_from_interpreter_flags = list


def lift_address_space(subprocess: Any) -> None:
    """Have programs start without the limit on the address space."""
    execute = subprocess.Popen._execute_child
    guards = [_thread.allocate_lock()]  # Two threads must not take the lifted limit for the usual one.

    def execute_child(*args: Any, **options: Any) -> Any:
        with guards[-1]:
            before = resource.getrlimit(resource.RLIMIT_AS)
            try:
                resource.setrlimit(resource.RLIMIT_AS, (before[1], before[1]))
                return execute(*args, **options)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)

    subprocess.Popen._execute_child = execute_child
    # A fork of another thread has no thread that would release it.
    os.register_at_fork(after_in_child=lambda: guards.append(_thread.allocate_lock()))


def find_fork_hooks() -> list[List[Callable[[], Any]]]:
    """The interpreter's own lists of what it calls at each fork."""

    def mark() -> None:
        """Something to find them by."""

    os.register_at_fork(before=mark, after_in_parent=mark, after_in_child=mark)
    found = [each for each in gc.get_referrers(mark) if type(each) is list]
    for each in found:
        each.remove(mark)
    return found


def watch_dropped_coroutines(callback: Callable[[str], None]) -> None:
    """Call back with the name of each coroutine that is dropped before it has begun, besides the usual warning."""
    import warnings

    warn = _warnings.setdefault("warn", warnings._warn_unawaited_coroutine)  # type: ignore[attr-defined]

    def warn_and_call(coroutine: Any) -> None:
        callback(coroutine.__qualname__)
        warn(coroutine)

    warnings._warn_unawaited_coroutine = warn_and_call  # type: ignore[attr-defined]


_warnings: Dict[str, Callable[[Any], None]] = {}
