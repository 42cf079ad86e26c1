"""Copies a folder of a session's files for a fork of it; used by the worker, behind the wall.

Code may have made anything there. So nothing is reached by a path, only by the descriptor of its folder, and no link is
followed.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
from typing import Callable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 100
_CHUNK = 1 << 20
_LEAST = 4096  # What a file takes, however small it is.


def copy_folder(origin: int, place: int, most: float = math.inf) -> None:
    """Copy the contents of an open folder, without what is mounted in it, into an empty one.

    More than `most` bytes are an `OSError`, as where there is no more space.
    """
    _Copier(os.fstat(origin).st_dev, most).copy(origin, place, 0)


class _Copier:
    def __init__(self, device: int, left: float) -> None:
        self._device = device
        self._left = left

    def copy(self, origin: int, place: int, depth: int) -> None:
        """Copy what is in a folder."""
        if depth > _DEEPEST:
            raise OSError(errno.ELOOP, f"the folders are more than {_DEEPEST} deep")
        for name in os.listdir(origin):
            facts = os.lstat(name, dir_fd=origin)
            if facts.st_dev != self._device:
                continue
            self._left -= max(facts.st_blocks * 512, _LEAST)
            if self._left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if stat.S_ISLNK(facts.st_mode):
                with contextlib.suppress(FileExistsError):  # The same, on the way to something that is mounted.
                    os.symlink(os.readlink(name, dir_fd=origin), name, dir_fd=place)
            elif stat.S_ISDIR(facts.st_mode):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=place)
                below, copied = os.open(name, _FOLDER, dir_fd=origin), os.open(name, _FOLDER, dir_fd=place)
                try:
                    self.copy(below, copied, depth + 1)
                    _finish(copied, facts)
                finally:
                    os.close(below)
                    os.close(copied)
            elif stat.S_ISREG(facts.st_mode):
                file, copied = os.open(name, _READ, dir_fd=origin), os.open(name, _WRITE, 0o600, dir_fd=place)
                try:
                    copy_content(file, copied, facts.st_size)
                    _finish(copied, facts)
                finally:
                    os.close(file)
                    os.close(copied)


def copy_content(file: int, copied: int, size: int, count: Callable[[int], None] = lambda size: None) -> None:
    """Copy a file of some bytes into an empty one; `count` is told of each part before it is written."""
    os.ftruncate(copied, size)  # Keeps holes.
    offset = 0
    while offset < size:
        try:
            offset = os.lseek(file, offset, os.SEEK_DATA)
        except OSError:
            return
        end = os.lseek(file, offset, os.SEEK_HOLE)
        while offset < end:
            data = os.pread(file, min(_CHUNK, end - offset), offset)
            if not data:
                return
            count(len(data))
            offset += os.pwrite(copied, data, offset)


def _finish(copied: int, facts: os.stat_result) -> None:
    os.fchmod(copied, stat.S_IMODE(facts.st_mode) & 0o777)
    os.utime(copied, ns=(facts.st_atime_ns, facts.st_mtime_ns))
