"""Files by which processes keep out of each other's way."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["take_lock"]


def take_lock(path: Path, wait: Callable[[], None] | None = None) -> int:
    """Take a lock, which lasts as long as the descriptor is open, in whatever process.

    Args:
        path: The file; it is made if it is not there.
        wait: Is called before waiting for whoever has it; `None`: do not wait.

    Returns:
        The descriptor.

    Raises:
        BlockingIOError: Somebody has it.
        OSError: There cannot be such a file.
    """
    import fcntl  # which Windows does not have

    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if wait is None:
                raise
            wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
    except BaseException:
        os.close(lock)
        raise
    return lock
