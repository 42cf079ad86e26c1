"""The open files of a process that continues in another room: its own copies of them, at the same places.

What cannot be opened again stays shared with the process that it was forked from: pipes, sockets, removed files.
"""

from __future__ import annotations

import fcntl
import os
import resource
import stat
from typing import Dict, Iterable, List, NamedTuple

from .relocating import relocated

_KEPT = os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC | os.O_DIRECTORY


class Opened(NamedTuple):
    """An open file or folder."""

    fd: int
    path: str
    flags: int
    offset: int
    inherited: bool


def opened_below(folders: list[str]) -> List[Opened]:
    """The regular files and folders below some folders that this process has open."""
    found = []
    try:
        fds: Iterable[int] = map(int, os.listdir("/proc/self/fd"))
    except PermissionError:  # Landlock keeps the folder from being listed.
        fds = range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for fd in fds:
        try:
            path, mode = os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_mode
            if not any(f"{path}/".startswith(f"{folder}/") for folder in folders):
                continue
            is_file = stat.S_ISREG(mode)
            if is_file or stat.S_ISDIR(mode):
                flags = fcntl.fcntl(fd, fcntl.F_GETFL)
                offset = os.lseek(fd, 0, os.SEEK_CUR) if is_file else 0
                found.append(Opened(fd, path, flags, offset, os.get_inheritable(fd)))
        except OSError:  # It is closed by now, or removed.
            continue
    return found


def reopen(opened: List[Opened], moves: Dict[str, str]) -> None:
    """Replace them by what is at the same paths now, in folders that may have moved.

    What is not there becomes an empty file.
    """
    for each in opened:
        try:
            fd = os.open(relocated(each.path, moves), each.flags & _KEPT | os.O_CLOEXEC)
            os.lseek(fd, each.offset, os.SEEK_SET)
        except OSError:
            fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(fd, each.fd, each.inherited)
        os.close(fd)
