"""A room: one keeper's own namespaces, with a private `/tmp` and its own `/proc`."""

from __future__ import annotations

import os
from typing import Any, Dict

from . import linux
from .forks import fork

__all__ = ["enter_room", "fresh_mounts"]

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 16384, 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def enter_room(config: Dict[str, Any]) -> bool:
    """Go into namespaces of one's own, where that is allowed.

    With namespaces the process that returns is another one than the one that called: number 1 of its own process
    namespace. When it ends the kernel ends everything in the room.

    Args:
        config: The worker's configuration; `rooms` is `"namespaces"` or `"plain"`.

    Returns:
        Whether it has namespaces of its own.

    Raises:
        OSError: Namespaces were asked for and are refused.
    """
    if config["rooms"] != "namespaces":
        linux.libc("prctl", _PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
        return False
    uid, gid = os.getuid(), os.getgid()
    linux.libc("unshare", linux.CLONE_NEWUSER | linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    if fork():
        os._exit(0)
    os.setsid()
    linux.libc("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    linux.libc("mount", b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)
    fresh_mounts(config, first=True)
    return True


def fresh_mounts(config: Dict[str, Any], first: bool = False) -> None:
    """Empty what is in memory only: `/tmp`, `/dev/shm` and, if it is no folder of the host, the workspace."""
    size = config["limits"]["disk_bytes"]
    places = {"/tmp": f"size={size},mode=1777", "/dev/shm": f"size={size},mode=1777"}
    if config["workspace_in_memory"]:
        places[config["workspace"]] = f"size={size},mode=755"
    for place, options in places.items():
        if not first:
            if not os.listdir(place):
                continue
            linux.libc("umount2", place.encode(), _MNT_DETACH)
        linux.libc("mount", b"tmpfs", place.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, options.encode())


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
