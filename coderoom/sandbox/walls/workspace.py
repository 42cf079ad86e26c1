"""The workspace of a worker that root starts: the worker becomes another user, who must own the files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from coderoom._util.tasks import run_uncancellable
from coderoom.errors import SandboxUnavailable
from coderoom.sandbox.guest.isolation import linux, mounts
from coderoom.sandbox.walls.local import identity_to_become, owner_of

_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8

# Only a process with one thread can make a user namespace.
_HOLD_NAMESPACE = (
    "import ctypes, sys; "
    f"ok = ctypes.CDLL(None).unshare({linux.CLONE_NEWUSER}) == 0; "
    "sys.stdout.write('y' if ok else 'n'); sys.stdout.flush(); sys.stdin.read()"
)


def mounted_for(folder: Path, place: Path, uid: int, gid: int) -> None:
    """Mount a folder at an empty one, with the files of its owner as another user's. Needs root and Linux 5.12.

    What is made under the mount belongs to the folder's owner in the folder itself.
    """
    owner = folder.stat()
    with _namespace(_mapping(owner.st_uid, uid), _mapping(owner.st_gid, gid)) as namespace:
        mounts.mount_mapped(str(folder), str(place), namespace)


def unmount(place: Path) -> None:
    """Undo `mounted_for`; mounts made from there stay."""
    with contextlib.suppress(OSError):
        linux.libc("umount2", os.fsencode(place), _MNT_DETACH | _UMOUNT_NOFOLLOW)


def _mapping(owner: int, seen: int) -> str:
    """Map the owner to another user and all others to themselves, so that their files can still be removed."""
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


# Those lent by this process, where another thread may be starting a worker.
_lent: set[Path] = set()
_OURS = range(0x70000000, 0x80000000)
Identity = tuple[int, int]


def chown_workspace(workspace: Path | None, undo: contextlib.ExitStack) -> Identity | None:
    """Choose the user of root's worker where files cannot be shown as another user's; `undo` gives the folder back.

    For a workspace of another user, that user. For one of root's, an unused user, who owns its files until the worker
    has ended. If this is not root, `None`.
    """
    identity = identity_to_become()
    if identity is None or workspace is None:
        return identity
    owner = owner_of(workspace)
    if owner[0] in _OURS:
        if workspace in _lent or _has_processes(owner[0]):
            raise SandboxUnavailable(
                f"The workspace {str(workspace)!r} is in use by another sandbox of root's, and this machine cannot "
                "show it to two at a time; use another folder, or close the other sandbox."
            )
        # Its host was killed before it could give the folder back.
        _hand_over(workspace, owner[0], (0, 0))
        owner = (0, 0)
    if owner[0] != 0:
        return owner
    _lent.add(workspace)
    undo.callback(_lent.discard, workspace)
    undo.callback(_hand_over, workspace, identity[0], owner)
    _hand_over(workspace, 0, identity)
    return identity


async def borrowed(workspace: Path | None, undo: contextlib.ExitStack) -> Identity | None:
    """Call `chown_workspace` in a thread; `undo` gives the folder back, even if this is cancelled meanwhile."""
    return await run_uncancellable(asyncio.to_thread(chown_workspace, workspace, undo))


def _hand_over(folder: Path, before: int, after: Identity) -> None:
    """Change the owner of files below a folder, except of root's files with other hard links."""
    device = folder.stat().st_dev
    for name, directory in _entries(folder):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        linked = status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode) and before == 0
        if status.st_uid == before and status.st_dev == device and not linked:
            os.chown(name, *after, dir_fd=directory, follow_symlinks=False)


def _entries(folder: Path) -> Iterator[tuple[str, int]]:
    for _, folders, files, directory in os.fwalk(folder, follow_symlinks=False):
        yield ".", directory
        for name in (*files, *folders):
            yield name, directory


def _has_processes(uid: int) -> bool:
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                return True
        except OSError:
            continue
    return False
