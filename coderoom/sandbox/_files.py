"""The workspace's files, kept beside a checkpoint."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Self

from coderoom.errors import RequestError
from coderoom.sandbox._limits import Limits

if TYPE_CHECKING:
    from coderoom.sandbox._engines import EngineSession

__all__ = ["Snapshot"]

_MOST_FILES = 20_000


class Snapshot:
    """A copy of a workspace's files.

    Args:
        workspace: The workspace.
        copy: The copy.
        engine: The session whose programs stand still while files are copied.
    """

    def __init__(self, workspace: Path, copy: Path, engine: EngineSession) -> None:
        self._workspace = workspace
        self._copy = copy
        self._engine = engine
        self._end = weakref.finalize(self, shutil.rmtree, copy, ignore_errors=True)

    @classmethod
    async def take(cls, workspace: Path | None, engine: EngineSession, limits: Limits) -> Self:
        """Copy the files.

        Raises:
            RequestError: The workspace is no folder of this machine, or too large.
        """
        if workspace is None:
            raise RequestError(
                "files=True needs a workspace: Sandbox(workspace=FOLDER). Without one files are in memory."
            )
        copy = Path(tempfile.mkdtemp(prefix="coderoom-checkpoint-"))
        snapshot = cls(workspace, copy, engine)
        async with engine.frozen():
            await asyncio.to_thread(_copy_all, workspace, copy, limits.disk_bytes)
        return snapshot

    async def restore(self) -> None:
        """Give the workspace these files again, and no others."""
        async with self._engine.frozen():
            await asyncio.to_thread(self._restore)

    def _restore(self) -> None:
        for entry in list(os.scandir(self._workspace)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()
        _copy_all(self._copy, self._workspace, None)


def _copy_all(source: Path, target: Path, limit: int | None) -> None:
    """Copy folders, files and links; links are not followed, and what is none of these is left out."""
    room, count = limit, 0
    owner = target.stat()
    for folder, folders, names in os.walk(source):
        place = target / Path(folder).relative_to(source)
        for name in [*folders, *names]:
            origin = Path(folder, name)
            facts = origin.lstat()
            count += 1
            if stat.S_ISLNK(facts.st_mode):
                (place / name).symlink_to(origin.readlink())
            elif stat.S_ISDIR(facts.st_mode):
                (place / name).mkdir()
                shutil.copystat(origin, place / name)
            elif stat.S_ISREG(facts.st_mode):
                if room is not None:
                    room -= facts.st_size
                shutil.copy2(origin, place / name, follow_symlinks=False)
            else:
                continue
            if os.geteuid() == 0:
                os.lchown(place / name, owner.st_uid, owner.st_gid)
            if (room is not None and room < 0) or (limit is not None and count > _MOST_FILES):
                raise RequestError(
                    f"The workspace {str(source)!r} is too large to be kept with a checkpoint: more than {limit:,} "
                    f"bytes or {_MOST_FILES:,} files. Use checkpoint(files=False), or a workspace of its own."
                )
