"""Which process of which machine something belongs to, so that a later one can clear away after it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_orphan", "ours"]

_START = 19  # The field's number in /proc/PID/stat, counted from behind the name.
_UNKNOWN = "?"


def ours() -> str:
    """This process, as a text that no other one ever has."""
    pid = os.getpid()
    return " ".join((_boot(), _namespace(), str(pid), _started(pid) or _UNKNOWN))


def is_orphan(owner: str) -> bool:
    """Whether the process that a text of `ours` names is certainly gone."""
    match owner.split():
        case [boot, namespace, pid, start] if pid.isdecimal():
            if boot != _boot():
                return True
            # Processes of another namespace have other numbers: nothing is known of them from here.
            return namespace == _namespace() and _started(int(pid)) not in (start, _UNKNOWN)
        case _:
            return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)  # noqa: PTH116 (the link's target is no path)


def _started(pid: int) -> str | None:
    """When a process began; `None`: there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return _UNKNOWN if _exists(pid) else None
    # A zombie is dead, but not yet forgotten.
    return None if fields[0] in ("Z", "X") else fields[_START]


def _exists(pid: int) -> bool:
    # Where /proc hides the processes of others, this does not.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
