"""Copies of a workspace's files for checkpoints; used by `session`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from coderoom._util.tasks import run_uncancellable
from coderoom._util.temporary import remove_folder, temporary_folder
from coderoom.errors import RequestError
from coderoom.sandbox.config import Limits, SandboxConfig
from coderoom.sandbox.contracts import EngineSession
from coderoom.sandbox.guest.copying import copy_content
from coderoom.sandbox.overlay import Overlay, Saved

_MOST_FILES = 20_000
_DEEPEST = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Snapshot:
    """A copy of a workspace's files."""

    def __init__(self, workspace: Path, copy: Path, engine: EngineSession) -> None:
        self._workspace = workspace
        self._copy = copy
        self._engine = engine
        self.remove = weakref.finalize(self, remove_folder, copy)  # It is also removed with this object.

    @property
    def folder(self) -> Path:
        """Where the copy is."""
        return self._copy

    @classmethod
    async def take(cls, workspace: Path | None, engine: EngineSession, limits: Limits) -> Self:
        """Copy the files."""
        if workspace is None:
            raise RequestError(
                "files=True needs a workspace: Sandbox(workspace=FOLDER). Without one all files are in memory."
            )
        copy = temporary_folder()
        snapshot = cls(workspace, copy, engine)
        try:
            async with engine.frozen():
                # Wait for the thread: it would go on to write into the removed copy.
                await run_uncancellable(asyncio.to_thread(_copy, workspace, copy, limits.disk_bytes, None))
        except BaseException:
            snapshot.remove()
            raise
        return snapshot

    async def restore(self) -> None:
        """Restore these files in the workspace, and remove all others; after an error only a part is there."""
        async with self._engine.frozen():
            await self.put_back()

    async def put_back(self) -> None:
        """As `restore`, where nothing of the session runs any more."""
        await run_uncancellable(asyncio.to_thread(self._restore))

    def _restore(self) -> None:
        facts = self._workspace.stat()
        try:
            with _opened(self._workspace) as folder:
                _empty(folder)
        except OSError as error:
            raise RequestError(f"The workspace {str(self._workspace)!r} cannot be emptied: {error}") from error
        _copy(self._copy, self._workspace, None, (facts.st_uid, facts.st_gid) if os.geteuid() == 0 else None)


class OverlaySnapshot:
    """A copy of what a session has written, where that is kept apart from the workspace."""

    def __init__(self, overlay: Overlay, saved: Saved, engine: EngineSession) -> None:
        self._overlay = overlay
        self._saved = saved
        self._engine = engine
        self.remove = saved.remove

    async def restore(self) -> None:
        """Return to what was written then; after an error only a part is there."""
        async with self._engine.frozen():
            await run_uncancellable(asyncio.to_thread(self._overlay.restore, self._saved))


async def take_snapshot(config: SandboxConfig, engine: EngineSession) -> Snapshot | OverlaySnapshot:
    """Copy the files of a session."""
    overlay: Overlay | None = getattr(engine, "overlay", None)
    if overlay is None:
        return await Snapshot.take(config.workspace, engine, config.limits)
    async with engine.frozen():
        saved = await run_uncancellable(asyncio.to_thread(overlay.save))
    return OverlaySnapshot(overlay, saved, engine)


def _copy(source: Path, target: Path, limit: int | None, owner: tuple[int, int] | None) -> None:
    """Copy the contents of a folder.

    Code of another session may be at work in the workspace and put links where folders were. So nothing is reached by
    a path: only by the descriptor of the folder that it was found in, and no link is followed.
    """
    copier = _Copier(limit, owner)
    try:
        with _opened(source) as origin, _opened(target) as place:
            copier.copy_folder(origin, place, 0)
    except OSError as error:
        raise RequestError(f"The files of {str(source)!r} cannot be copied to {str(target)!r}: {error}") from error


class _Copier:
    def __init__(self, limit: int | None, owner: tuple[int, int] | None) -> None:
        self._limit = limit
        self._owner = owner
        self._bytes = self._files = 0

    def copy_folder(self, origin: int, place: int, depth: int) -> None:
        if depth > _DEEPEST:
            raise RequestError(f"The workspace has folders that are more than {_DEEPEST} deep; remove them.")
        with os.scandir(origin) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            # It was removed or replaced meanwhile.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                kind = os.lstat(name, dir_fd=origin).st_mode
                self._count(0)
                if stat.S_ISLNK(kind):
                    os.symlink(os.readlink(name, dir_fd=origin), name, dir_fd=place)
                    if self._owner is not None:
                        os.chown(name, *self._owner, dir_fd=place, follow_symlinks=False)
                elif stat.S_ISDIR(kind):
                    os.mkdir(name, 0o700, dir_fd=place)
                    with _opened(name, origin) as below, _opened(name, place) as copied:
                        self.copy_folder(below, copied, depth + 1)
                        self._finish(below, copied)
                elif stat.S_ISREG(kind):
                    with _opened(name, origin, _READ) as file, _opened(name, place, _WRITE) as copied:
                        facts = os.fstat(file)
                        if stat.S_ISREG(facts.st_mode):
                            copy_content(file, copied, facts.st_size, self._count)
                            self._finish(file, copied)

    def _finish(self, origin: int, copied: int) -> None:
        facts = os.fstat(origin)
        if self._owner is not None:
            os.fchown(copied, *self._owner)
        os.fchmod(copied, stat.S_IMODE(facts.st_mode) & 0o777)
        os.utime(copied, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    def _count(self, size: int) -> None:
        self._bytes += size
        self._files += not size
        if self._limit is not None and (self._bytes > self._limit or self._files > _MOST_FILES):
            raise RequestError(
                f"The workspace is too large to be kept with a checkpoint: more than {self._limit:,} bytes or "
                f"{_MOST_FILES:,} files. Use checkpoint(files=False), or a workspace of its own."
            )


def _empty(folder: int, depth: int = 0) -> None:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                os.unlink(name, dir_fd=folder)
                continue
            if depth > _DEEPEST:
                raise RequestError(f"The workspace has folders that are more than {_DEEPEST} deep; remove them.")
            with contextlib.suppress(OSError, ValueError, NotImplementedError):  # It has become a link.
                os.chmod(name, 0o700, dir_fd=folder, follow_symlinks=False)
            with _opened(name, folder) as below:
                _empty(below, depth + 1)
            os.rmdir(name, dir_fd=folder)


@contextlib.contextmanager
def _opened(name: str | Path, folder: int | None = None, flags: int = _FOLDER) -> Iterator[int]:
    fd = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)
