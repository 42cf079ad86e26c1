"""Files that code has left open, and what happens at the end of a Python script; used by the interpreter."""

from __future__ import annotations

import gc
import io
import os
import stat
import sys
import types
from typing import Any

from . import cpython, forks

_STAY = (types.ModuleType, types.FunctionType, type)


def count_open_files() -> int:
    """How many descriptors this process has; 0 if that is not known, as before Linux 6.2."""
    try:
        return os.stat("/proc/self/fd").st_size
    except OSError:
        return 0


def flush_files() -> None:
    """Write what is buffered for regular files, as nobody may ever close them."""
    for stream in _open_streams():
        try:
            # Neither pipes, which may block, nor data in memory.
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                stream.flush()
        except Exception:  # It is read only, closed or the code's own, and the disk may be full.
            pass


def wait_for_threads() -> None:
    """Wait for threads and pools, as the interpreter does at its end."""
    if forks.threads():
        cpython.wait_for_threads()


def call_exit_functions(known: int) -> None:
    """Call the functions that `atexit` knows if code has registered some, beside the `known` ones of modules."""
    if cpython.exit_calls() > known:
        cpython.run_exit_calls()
        return
    for module, name in (("multiprocessing.util", "_exit_function"), ("logging", "shutdown")):
        if module in sys.modules:  # It was imported before any code ran, and yet has to end what the code has begun.
            getattr(sys.modules[module], name)()


def clear(names: dict[str, Any], open_before: int) -> None:
    """Drop all variables, and close the files that are still open."""
    # The collector would close the parts of a file in any order, and with that lose its text.
    held = _open_streams() if _has_open_files(open_before) else []
    # First what may use the others at its end.
    for name in [name for name, value in names.items() if not isinstance(value, _STAY) and name != "__builtins__"]:
        names.pop(name, None)
    gc.collect()
    if not _has_open_files(open_before):
        return
    flush_files()
    for stream in sorted(_open_streams(), key=_rank):
        try:
            if stream.fileno() > 2:
                stream.close()
        except Exception:
            pass
    held.clear()


def _has_open_files(before: int) -> bool:
    count = count_open_files()
    return not count or count != before


def _rank(stream: Any) -> int:
    """Streams that write into others come first, such as those of `gzip`."""
    kind = type(stream)
    if kind.__module__ != "_io":
        return 0
    return 1 if issubclass(kind, io.TextIOBase) else 3 if issubclass(kind, io.RawIOBase) else 2


def _open_streams() -> list[Any]:
    # `isinstance` would ask the objects, which may be the code's.
    return [each for each in gc.get_objects() if issubclass(type(each), cpython.STREAM)]
