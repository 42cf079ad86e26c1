"""Restores the files in the working and temporary folders between jobs."""

from __future__ import annotations

import os
from typing import Dict, List, Set, Tuple

__all__ = ["clear", "remember", "tidy"]

_MOST_FILES = 2_000

_folders: List[str] = []
_before: Dict[str, Tuple[int, ...]] = {}


def remember(scratch: str) -> None:
    """Take note of the files that there are.

    Args:
        scratch: The folder for temporary files.
    """
    _folders[:] = sorted({os.getcwd(), scratch})
    _before.clear()
    _before.update(_files())


def clear() -> bool:
    """Leave nothing of the last job; say whether that has worked."""
    try:
        os.waitpid(-1, os.WNOHANG)
        return False  # Somebody is left, who was started by the job.
    except ChildProcessError:
        return tidy()


def tidy() -> bool:
    """Remove files that were not there before; say whether all is as it was."""
    try:
        now = _files()
        if now == _before:
            return True
        for path in sorted(set(now) - set(_before), reverse=True):
            if now[path]:
                os.unlink(path)
            else:
                os.rmdir(path)
        return _files() == _before
    except OSError:
        return False


def _files() -> Dict[str, Tuple[int, ...]]:
    found: Dict[str, Tuple[int, ...]] = {}
    seen: Set[str] = set()
    folders = list(_folders)
    while folders:
        folder = folders.pop()
        if folder in seen:
            continue
        seen.add(folder)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            facts = entry.stat(follow_symlinks=False)
            is_folder = entry.is_dir(follow_symlinks=False)
            found[entry.path] = () if is_folder else (facts.st_size, facts.st_mtime_ns, facts.st_ino)
            if len(found) > _MOST_FILES:
                return found
            if is_folder:
                folders.append(entry.path)
    return found
