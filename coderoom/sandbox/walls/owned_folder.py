"""A folder of this machine, as it is seen by a user who is nobody on this machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from coderoom.sandbox.guest.isolation import linux

__all__ = ["mounted_for", "unmount"]

_OPEN_TREE_CLONE, _AT_EMPTY_PATH, _MOVE_MOUNT_F_EMPTY_PATH = 1, 0x1000, 4
_AT_FDCWD, _CLOEXEC = -100, 0o2000000
_MOUNT_ATTR_IDMAP = 0x00100000
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8

# A user namespace can only be had by a process that has one thread.
_HOLD_NAMESPACE = (
    "import ctypes, sys; "
    f"ok = ctypes.CDLL(None).unshare({linux.CLONE_NEWUSER}) == 0; "
    "sys.stdout.write('y' if ok else 'n'); sys.stdout.flush(); sys.stdin.read()"
)


def mounted_for(folder: Path, place: Path, uid: int, gid: int) -> None:
    """Mount a folder once more, so that what belongs to its owner belongs to someone else there.

    Whatever is made under the mount belongs to the folder's owner in the folder itself. Takes root.

    Args:
        folder: The folder.
        place: The empty folder that it is mounted at.
        uid: The user whose it is there.
        gid: The group whose it is there.

    Raises:
        OSError: The kernel is too old for that (before 5.12), or the file system cannot do it.
    """
    owner = folder.stat()
    with _namespace(_mapping(owner.st_uid, uid), _mapping(owner.st_gid, gid)) as namespace:
        tree = linux.syscall("open_tree", _AT_FDCWD, os.fsencode(folder), _OPEN_TREE_CLONE | _CLOEXEC)
        try:
            wanted = ctypes.create_string_buffer(struct.pack("QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, namespace))
            linux.syscall("mount_setattr", tree, b"", _AT_EMPTY_PATH, wanted, 32)
            linux.syscall("move_mount", tree, b"", _AT_FDCWD, os.fsencode(place), _MOVE_MOUNT_F_EMPTY_PATH)
        finally:
            os.close(tree)


def unmount(place: Path) -> None:
    """Undo `mounted_for`; what others have mounted from there stays mounted."""
    with contextlib.suppress(OSError):
        linux.libc("umount2", os.fsencode(place), _MNT_DETACH | _UMOUNT_NOFOLLOW)


def _mapping(owner: int, seen: int) -> str:
    """The owner is someone else; all others are who they are, so that what they own can still be removed."""
    rest = [(0, owner), (owner + 1, seen - owner - 1)]
    return "\n".join([f"{owner} {seen} 1", *(f"{first} {first} {count}" for first, count in rest if count > 0)])


@contextlib.contextmanager
def _namespace(uid_map: str, gid_map: str) -> Iterator[int]:
    command = [sys.executable, "-I", "-S", "-c", _HOLD_NAMESPACE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout is not None
        if holder.stdout.read(1) != b"y":
            raise OSError("no user namespace can be made")
        process = Path(f"/proc/{holder.pid}")
        (process / "uid_map").write_text(uid_map, encoding="ascii")
        (process / "gid_map").write_text(gid_map, encoding="ascii")
        namespace = os.open(process / "ns" / "user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield namespace
        finally:
            os.close(namespace)
