"""The disk space that a room uses; watched by its supervisor."""

from __future__ import annotations

import os

__all__ = ["Disk"]

_MOST_FILES = 100_000


class Disk:
    """Watches the free space of a folder's file system, and measures the folder when much has gone.

    Args:
        folder: The folder.
        limit: The most bytes that may be written, and that the folder may then have.
    """

    def __init__(self, folder: str, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self.remember()

    def remember(self) -> None:
        """Count from here."""
        self._bytes, self._files = self._free()

    def is_overdrawn(self, pids: list[int]) -> bool:
        """Whether too much was written; if so, count from here, so that code can remove what it wrote."""
        free, files = self._free()
        if self._bytes - free <= self._limit and self._files - files <= _MOST_FILES:
            return False
        # Other processes may have used the space.
        size, count = self._measure()
        if size + self._nameless(pids) <= self._limit and count <= _MOST_FILES:
            return False
        self._bytes, self._files = free, files
        return True

    def _free(self) -> tuple[int, int]:
        try:
            facts = os.statvfs(self._folder)
        except OSError:
            return 0, 0
        return facts.f_bavail * facts.f_frsize, facts.f_favail

    def _nameless(self, pids: list[int]) -> int:
        """The size of removed files that are still open; too large if a process cannot be inspected."""
        device = os.stat(self._folder).st_dev
        sizes: dict[int, int] = {}
        for pid in pids:
            try:
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    facts = os.stat(f"/proc/{pid}/fd/{fd}")
                    if not facts.st_nlink and facts.st_dev == device:
                        sizes[facts.st_ino] = facts.st_blocks * 512
            except FileNotFoundError:
                continue
            except PermissionError:
                return self._limit + 1
        return sum(sizes.values())

    def _measure(self) -> tuple[int, int]:
        size = count = 0
        folders = [self._folder]
        while folders:
            try:
                entries = list(os.scandir(folders.pop()))
            except OSError:
                continue
            for entry in entries:
                count += 1
                try:
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                except OSError:
                    continue
            if size > self._limit or count > _MOST_FILES:
                break
        return size, count
