"""The namespaces and private folders of a room; used by `worker` and the room's supervisor."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from typing import Any

from ..forks import fork
from . import linux, mounts

_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_MOST_ENTRIES = 1000


def enter_room(config: dict[str, Any]) -> bool:
    """Enter new namespaces, if `rooms` says so, and return whether that was done.

    With namespaces, a fork returns, which is process 1 of its own process namespace. When it ends, the kernel ends
    everything in the room.
    """
    if config["rooms"] != "namespaces":
        linux.prctl(linux.PR_SET_PDEATHSIG, int(signal.SIGKILL))
        return False
    unshare_room()
    if fork():
        os._exit(0)
    os.setsid()
    linux.libc("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    mounts.mount_proc()
    for place in config["in_memory"]:
        mode = "755" if place == config["workspace"] else "1777"
        # An interpreter below /tmp is mounted there already.
        mounts.cover(place, config["limits"]["disk_bytes"], mode, config["kept"] if place == "/tmp" else ())
    return True


def unshare_room() -> None:
    """Enter the namespaces of a room, with the same user."""
    uid, gid = os.getuid(), os.getgid()
    linux.libc("unshare", linux.CLONE_NEWUSER | linux.CLONE_NEWPID | linux.CLONE_NEWNS | linux.CLONE_NEWIPC)
    map_ids(f"{uid} {uid} 1", f"{gid} {gid} 1")


def map_ids(users: str, groups: str) -> None:
    """Map the users and groups of a new user namespace to those outside."""
    for name, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def own_folders(config: dict[str, Any]) -> dict[str, Any]:
    """Make folders for a room without namespaces, name them in the environment, and return the room's configuration."""
    import tempfile  # Late: rooms with namespaces do not need it.

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
    """Empty a room's folders. The folders themselves stay, since Landlock's rules belong to them.

    After an error the room must not be used again.
    """
    kept = config["kept"]
    for path in kept:
        os.lstat(path)  # Code may have moved what it cannot remove.
    for place in config["in_memory"]:
        os.chmod(place, 0o1777 if place in ("/tmp", "/dev/shm") else 0o755)
        _empty(place, kept)


def _empty(folder: str, kept: Sequence[str]) -> None:
    if not os.listdir(folder):
        return
    entries = list(os.scandir(folder))
    if len(entries) > _MOST_ENTRIES:
        raise OSError(errno.E2BIG, "too many files were left behind to remove them")
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
