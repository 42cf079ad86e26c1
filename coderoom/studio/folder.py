"""The folder in which Studio keeps its teams, sessions and runs, and the locks that keep processes apart."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from coderoom.errors import RequestError

__all__ = ["default_folder", "forget", "open_log", "take_lock", "use_folder"]


def default_folder() -> Path:
    """The default app folder."""
    base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "coderoom" / "studio"


@contextlib.contextmanager
def use_folder(folder: Path) -> Iterator[int]:
    """Create the folder if needed, and lock it.

    Yields:
        The lock's descriptor. The folder is locked as long as any process has it open.

    Raises:
        RequestError: It is locked, or cannot be created.
    """
    try:
        # Studio stores what is typed into it, including keys, as plain text.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = take_lock(folder / "coderoom.lock")
    except BlockingIOError:
        raise RequestError(
            f"The folder {str(folder)!r} is in use by another `coderoom studio`; end that one, or give this one a "
            "folder of its own with --appdir."
        ) from None
    except OSError as error:
        raise _unusable(folder, error) from error
    try:
        yield lock
    finally:
        os.close(lock)


def open_log(path: Path) -> BinaryIO:
    """Create a log that only this user can read.

    Raises:
        RequestError: It cannot be written.
    """
    try:
        return open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise _unusable(path.parent, error) from error


def forget(path: Path) -> None:
    """Remove a file of the folder, if it exists.

    Raises:
        RequestError: It cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(path.parent, error) from error


def _unusable(folder: Path, error: OSError) -> RequestError:
    where = "" if error.filename in (None, str(folder)) else f" ({str(error.filename)!r})"
    return RequestError(
        f"The folder {str(folder)!r} cannot be used: {error.strerror}{where}. Name another with --appdir."
    )


def take_lock(path: Path, wait: Callable[[], None] | None = None) -> int:
    """Lock a file, as long as any process has the descriptor open.

    Args:
        path: The file; it is created if needed.
        wait: Called before waiting for another process; `None`: do not wait.

    Returns:
        The descriptor.

    Raises:
        BlockingIOError: Another process has the lock.
        OSError: The file cannot be created.
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
