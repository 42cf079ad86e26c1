"""The folder in which a Studio keeps what it knows: its teams, sessions and runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from coderoom.errors import RequestError
from coderoom.studio.locks import take_lock

__all__ = ["default_folder", "forget", "open_log", "use_folder"]


def default_folder() -> Path:
    """The app folder of those who name none."""
    base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "coderoom" / "studio"


@contextlib.contextmanager
def use_folder(folder: Path) -> Iterator[int]:
    """Make the folder, if it is not there, and have it for oneself.

    Yields:
        A descriptor. The folder is taken for as long as it is open, in whatever process.

    Raises:
        RequestError: It is taken, or cannot be made.
    """
    try:
        # Studio keeps what is typed into it, keys included, as plain text.
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
    """Begin a log in the folder, which nobody else can read.

    Raises:
        RequestError: It cannot be written.
    """
    try:
        return open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise _unusable(path.parent, error) from error


def forget(path: Path) -> None:
    """Remove a file of the folder, if it is there.

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
