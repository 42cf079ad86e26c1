"""A room: one supervisor's own namespaces, with a private `/tmp` and its own `/proc`."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

from ..forks import fork
from . import linux, mounts

__all__ = ["empty_folders", "enter_room", "own_folders"]

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 16384, 1 << 18
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_MOST_ENTRIES = 1000


def enter_room(config: dict[str, Any]) -> bool:
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
        linux.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
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
    _mount_memory(config)
    return True


def _mount_memory(config: dict[str, Any]) -> None:
    size = config["limits"]["disk_bytes"]
    for place in config["in_memory"]:
        mode = "755" if place == config["workspace"] else "1777"
        # An interpreter that is installed below /tmp is mounted there already.
        mounts.cover(place, size, mode, config["kept"] if place == "/tmp" else ())


def own_folders(config: dict[str, Any]) -> dict[str, Any]:
    """Make folders for a room without namespaces, and let the environment name them.

    Args:
        config: The worker's configuration; `scratch` is the folder that rooms may have folders in.

    Returns:
        The room's: with its own workspace, if the workspace is no folder of the host, and with what its code may write.
    """
    import tempfile  # Rooms with namespaces need not carry it.

    scratch = config["scratch"]
    own = tempfile.mkdtemp(prefix="room-", dir=scratch)
    temporary, workspace = os.path.join(own, "tmp"), config["workspace"]
    if config["workspace_in_memory"]:
        workspace = os.path.join(own, "workspace")
    os.mkdir(temporary, 0o700)
    own_ones = [temporary]
    if workspace != config["workspace"]:
        os.mkdir(workspace, 0o700)
        own_ones.append(workspace)
    room = {**config, "own": own, "in_memory": own_ones, "workspace": workspace}
    locked = dict(config["lockdown"])
    if locked.get("read") is not None:
        locked["write"] = [workspace, temporary]
    room["lockdown"] = locked
    for name, value in os.environ.items():
        if value == scratch or value.startswith(scratch + "/"):
            os.environ[name] = temporary + value[len(scratch) :]
    os.environ["TMPDIR"] = temporary
    return room


def empty_folders(config: dict[str, Any]) -> None:
    """Empty a room's own folders; Landlock's rules are for the folders themselves, which therefore stay.

    Raises:
        OSError: Something could not be removed; nobody else must get this room then.
    """
    kept = config["kept"]
    for path in kept:
        os.lstat(path)  # Code may have moved what it could not remove.
    for place in config["in_memory"]:
        os.chmod(place, 0o1777 if place in ("/tmp", "/dev/shm") else 0o755)
        _empty(place, kept)


def _empty(folder: str, kept: Sequence[str]) -> None:
    if not os.listdir(folder):
        return
    entries = list(os.scandir(folder))
    if len(entries) > _MOST_ENTRIES:
        raise OSError(errno.E2BIG, "too much was left behind to be cleaned away")
    for entry in entries:
        if entry.path in kept:
            continue
        if any(path.startswith(entry.path + "/") for path in kept):
            _empty(entry.path, kept)
        elif entry.is_dir(follow_symlinks=False):
            import shutil

            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
