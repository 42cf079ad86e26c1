"""Marks Docker containers with the process that owns them, so that a later process can remove what a dead one left."""

from __future__ import annotations

import os
from pathlib import Path

_START = 19  # The index of the start time in /proc/PID/stat after the process name.
_UNKNOWN = "?"


def ours() -> str:
    """The mark of this process; no other process ever has the same."""
    pid = os.getpid()
    return " ".join((_boot(), _namespace(), str(pid), _started(pid) or _UNKNOWN))


def is_orphan(owner: str) -> bool:
    """Whether the process of a mark has certainly ended."""
    match owner.split():
        case [boot, namespace, pid, start] if pid.isdecimal():
            if boot != _boot():
                return True
            # Process numbers of another PID namespace mean nothing here.
            return namespace == _namespace() and _started(int(pid)) not in (start, _UNKNOWN)
        case _:
            return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 (the link's target is no path)


def _started(pid: int) -> str | None:
    """The start time of a process; `None` if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return _UNKNOWN if _exists(pid) else None
    # A zombie has ended.
    return None if fields[0] in ("Z", "X") else fields[_START]


def _exists(pid: int) -> bool:
    # This works also where /proc hides processes of other users.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
