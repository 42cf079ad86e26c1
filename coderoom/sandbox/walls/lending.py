"""A workspace for a worker that root starts and that is not root."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from coderoom._util.tasks import run_uncancellable
from coderoom.errors import SandboxUnavailable
from coderoom.sandbox.walls.local import identity_to_become, owner_of

__all__ = ["borrowed", "chown_workspace"]

# Those of this process, which another thread may just be about to start a worker in.
_lent: set[Path] = set()
_OURS = range(0x70000000, 0x80000000)
Identity = tuple[int, int]


def chown_workspace(workspace: Path | None) -> tuple[Identity | None, Callable[[], None]]:
    """Whom root's worker becomes where its files cannot be made to look like another's.

    A workspace of another user: that user. One of root's: nobody, who owns what is in it until the worker has ended.

    Args:
        workspace: The folder.

    Returns:
        Who, or `None` if this is not root; and what gives the folder back.

    Raises:
        SandboxUnavailable: Another worker has it.
    """
    identity = identity_to_become()
    if identity is None or workspace is None:
        return identity, _nothing
    owner = owner_of(workspace)
    if owner[0] in _OURS:
        if workspace in _lent or _has_processes(owner[0]):
            raise SandboxUnavailable(
                f"The workspace {str(workspace)!r} is in use by another sandbox of root's, and this machine cannot "
                "show it to two at a time; use another folder, or close the other sandbox."
            )
        # Left behind by one whose host was killed.
        _hand_over(workspace, owner[0], (0, 0))
        owner = (0, 0)
    if owner[0] != 0:
        return owner, _nothing
    _lent.add(workspace)
    _hand_over(workspace, 0, identity)

    def give_back() -> None:
        _hand_over(workspace, identity[0], owner)
        _lent.discard(workspace)

    return identity, give_back


async def borrowed(workspace: Path | None, unwind: contextlib.ExitStack) -> Identity | None:
    """Borrow a workspace in a thread; `unwind` gives it back, also if nobody waits any more when it is lent.

    Raises:
        SandboxUnavailable: As `chown_workspace`.
    """

    def lend() -> Identity | None:
        identity, give_back = chown_workspace(workspace)
        unwind.callback(give_back)
        return identity

    return await run_uncancellable(asyncio.to_thread(lend))


def _nothing() -> None:
    """Give nothing back."""


def _hand_over(folder: Path, before: int, after: Identity) -> None:
    """Let what belongs to one user below a folder belong to another; files that are elsewhere as well are left out."""
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
