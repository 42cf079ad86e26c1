"""Which processes work on which runs of a journal: locks, which end with their processes."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

_TRIES: Final = 20
_files: Final[dict[Path, int]] = {}
"""The open files. None is ever closed: that would end all locks of this process."""
_ours: Final[set[tuple[int, Path, str]]] = set()


class Owners:
    """The locks on the runs of a journal, by its file. They also work between containers that share its folder."""

    def __init__(self, journal: Path) -> None:
        self._path = Path(f"{journal.resolve()}-owners")

    def take(self, run: str) -> bool:
        """Have this process work on a run; return whether no other one does."""
        for _ in range(_TRIES):  # Others may look at it at this moment.
            if self._is_ours(run) or self._lock(run, fcntl.LOCK_EX | fcntl.LOCK_NB, make=True):
                _ours.add((os.getpid(), self._path, run))
                return True
            time.sleep(0.01)
        return False

    def leave(self, run: str) -> None:
        """This process does not work on a run any more."""
        if self._is_ours(run):
            self._lock(run, fcntl.LOCK_UN)
            _ours.discard((os.getpid(), self._path, run))

    def has(self, run: str) -> bool:
        """Whether a process works on a run."""
        if self._is_ours(run):
            return True
        with suppress(FileNotFoundError):
            if not self._lock(run, fcntl.LOCK_SH | fcntl.LOCK_NB):
                return True
            self._lock(run, fcntl.LOCK_UN)
        return False

    def _is_ours(self, run: str) -> bool:
        return (os.getpid(), self._path, run) in _ours

    def _lock(self, run: str, operation: int, *, make: bool = False) -> bool:
        if self._path not in _files:
            flags = os.O_CREAT if make else 0
            writes = make or os.access(self._path, os.W_OK)
            _files[self._path] = os.open(self._path, flags | (os.O_RDWR if writes else os.O_RDONLY), 0o600)
        byte = int.from_bytes(sha256(run.encode()).digest()[:7])
        try:
            fcntl.lockf(_files[self._path], operation, 1, byte)
        except (BlockingIOError, PermissionError):  # POSIX allows either for a lock that another process has.
            return False
        return True
