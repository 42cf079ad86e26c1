"""Which of Studio's environments are used, and the end of those that are not any more.

An environment is one of ours by its place, its name and what its mark says. Who uses it has a shared lock on the mark;
who removes it has that lock alone, and the lock by which environments are made. What is being removed is not ready.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from pathlib import Path
from typing import Final

from coderoom._util.temporary import remove_folder
from coderoom.studio.locks import take_lock

__all__ = ["READY", "UNUSED_DAYS", "hold", "mark_ready", "remove_unused"]

READY: Final = ".ready"
UNUSED_DAYS: Final = 30
"""Not sooner: who goes to and fro between two versions of CodeRoom is not to install Studio each time."""

_REMOVED: Final = ".removed"
_NAME: Final = re.compile(r"studio-[0-9a-f]{16}")
_DAY: Final = 86_400


def mark_ready(folder: Path) -> None:
    """Mark an environment as one that is whole, and that CodeRoom has made."""
    new = folder / f"{READY}.new"
    new.write_text(_mark(folder), encoding="utf-8")
    new.replace(folder / READY)


def hold(folder: Path) -> int:
    """Use an environment, from now until the descriptor is closed in every process that has it.

    Raises:
        FileNotFoundError: It is not there any more.
        BlockingIOError: It is being removed.
    """
    import fcntl  # which Windows does not have

    mark = os.open(folder / READY, os.O_RDONLY)
    try:
        try:
            fcntl.flock(mark, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # Not every file system has locks. There, nothing is removed either.
            return mark
        if not os.path.samestat(os.fstat(mark), (folder / READY).stat()):
            raise FileNotFoundError(folder)
        with contextlib.suppress(OSError):  # It may be another user's.
            os.utime(mark)
    except BaseException:
        os.close(mark)
        raise
    return mark


def remove_unused(used: Path, days: float = UNUSED_DAYS) -> list[Path]:
    """Remove the environments beside one that CodeRoom has made and nobody has used for long.

    Args:
        used: An environment that stays.
        days: What long is.

    Returns:
        The folders that are gone.
    """
    gone = []
    for folder in sorted(used.parent.iterdir()):
        if folder != used and _NAME.fullmatch(folder.name):
            # Whatever cannot be removed is met again.
            with contextlib.suppress(OSError):
                if _remove(folder, time.time() - days * _DAY):
                    gone.append(folder)
    return gone


def _remove(folder: Path, before: float) -> bool:
    import fcntl

    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        return False
    # What another one could not bring to its end has the other name.
    name = READY if (folder / READY).exists() else _REMOVED
    with contextlib.ExitStack() as stack:
        mark = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW)
        stack.callback(os.close, mark)
        if os.read(mark, 1024) != _mark(folder).encode() or os.fstat(mark).st_mtime > before:
            return False
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        making = take_lock(folder.with_name(f"{folder.name}.lock"))
        stack.callback(os.close, making)
        # It may have been used, or removed and made anew, until just now.
        if not os.path.samestat(os.fstat(mark), (folder / name).lstat()) or os.fstat(mark).st_mtime > before:
            return False
        (folder / name).rename(folder / _REMOVED)
        for entry in list(os.scandir(folder)):
            if entry.name != _REMOVED:
                if entry.is_dir(follow_symlinks=False):
                    remove_folder(Path(entry.path))
                else:
                    Path(entry.path).unlink()
        (folder / _REMOVED).unlink()
        folder.rmdir()
    return True


def _mark(folder: Path) -> str:
    return f"CodeRoom made {folder.name} for AutoGen Studio, and may remove it.\n"
