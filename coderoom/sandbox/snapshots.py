"""Copies of a workspace's files for checkpoints; used by `session`."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import stat
import time
import weakref
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

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
_WRITE_BACK: Final = Path("/proc/sys/vm")
"""How long Linux waits before it writes changed pages to a disk."""
_TICK_SECONDS: Final = 0.02
"""Longer than the time that a file has between two changes with the same time."""

_Facts = tuple[int, ...]
"""What tells one state of a file from all others of it, if it is not too new."""


@dataclass(eq=False)
class _Copy:
    """A copy of the files of a workspace. Snapshots of the same files share it; nothing changes it.

    Attributes:
        folder: Where it is.
        device: The filesystem of the workspace, if its times tell of each change; else 0.
        facts: The facts of what was copied, by the path: a file with the same facts has not changed since.
        bytes: The size of all.
        files: How many files, folders and links there are.
    """

    folder: Path = field(default_factory=temporary_folder)
    device: int = 0
    facts: dict[str, _Facts] = field(default_factory=dict)
    bytes: int = 0
    files: int = 0

    def __post_init__(self) -> None:
        self.remove = weakref.finalize(self, remove_folder, self.folder)  # It is also removed with this object.


_last: Final[weakref.WeakValueDictionary[Path, _Copy]] = weakref.WeakValueDictionary()
"""The last copy of each workspace, as long as a snapshot has it."""


class Snapshot:
    """A copy of a workspace's files. What has not changed since the last one is copied once."""

    def __init__(self, workspace: Path, engine: EngineSession) -> None:
        self._workspace = workspace
        self._copy: _Copy | None = None
        self._engine = engine

    @property
    def folder(self) -> Path:
        """Where the copy is."""
        assert self._copy is not None, "It is removed."
        return self._copy.folder

    def remove(self) -> None:
        """Remove the copy, which is also removed with this object."""
        self._copy = None

    @classmethod
    async def take(cls, workspace: Path | None, engine: EngineSession, limits: Limits) -> Self:
        """Copy the files."""
        if workspace is None:
            raise RequestError(
                "files=True needs a workspace: Sandbox(workspace=FOLDER). Without one all files are in memory."
            )
        snapshot = cls(workspace, engine)
        try:
            async with engine.frozen():
                # Wait for the thread: it would go on to write into the removed copy.
                await run_uncancellable(asyncio.to_thread(snapshot._take, limits.disk_bytes))
        except BaseException:
            snapshot.remove()
            raise
        return snapshot

    def _take(self, limit: int) -> None:
        self._copy = _copy_of(self._workspace, limit)

    async def restore(self) -> None:
        """Restore these files in the workspace, and remove all others; after an error only a part is there."""
        async with self._engine.frozen():
            await self.put_back()

    async def put_back(self) -> None:
        """As `restore`, where nothing of the session runs any more."""
        await run_uncancellable(asyncio.to_thread(self._restore))

    def _restore(self) -> None:
        assert self._copy is not None, "It is removed."
        facts, there = self._workspace.stat(), set[str]()
        try:
            with _opened(self._workspace) as folder:
                _remove_changed(folder, self._copy.facts, there)
        except OSError as error:
            raise RequestError(f"The workspace {str(self._workspace)!r} cannot be emptied: {error}") from error
        owner = (facts.st_uid, facts.st_gid) if os.geteuid() == 0 else None
        _copy_files(self.folder, self._workspace, _Copier(owner=owner, there=there))


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


def _copy_of(workspace: Path, limit: int) -> _Copy:
    """The files of a workspace: the last copy, if that has them."""
    last = _last.get(workspace)
    if last is not None and last.bytes <= limit and _is_still(last, workspace):
        return last
    copy = _Copy()
    copier = _Copier(limit, last=last, copy=copy)
    try:
        _copy_files(workspace, copy.folder, copier)
    except BaseException:
        copy.remove()
        raise
    _last[workspace] = copy
    return copy


def _is_still(last: _Copy, workspace: Path) -> bool:
    """Whether a workspace has the same files as when they were copied."""
    left = set(last.facts)

    def same(folder: int, path: str) -> bool:
        with os.scandir(folder) as entries:
            for entry in entries:
                facts, name = entry.stat(follow_symlinks=False), f"{path}/{entry.name}"
                if last.facts.get(name) != _facts_of(facts):
                    return False
                left.discard(name)
                if stat.S_ISDIR(facts.st_mode):
                    with _opened(entry.name, folder) as below:
                        if not same(below, name):
                            return False
        return True

    try:
        with _opened(workspace) as folder:
            return len(left) == last.files and same(folder, "") and not left
    except OSError:
        return False


def _facts_of(facts: os.stat_result) -> _Facts:
    times = facts.st_mtime_ns, facts.st_ctime_ns
    return facts.st_dev, facts.st_ino, facts.st_mode, facts.st_uid, facts.st_gid, facts.st_size, *times


def _stays(known: _Facts | None, folder: os.stat_result) -> bool:
    """Whether a folder was one of the same owner before."""
    return known is not None and stat.S_ISDIR(known[2]) and known[3:5] == (folder.st_uid, folder.st_gid)


def _settled_ns() -> int:
    """The time before which the last change of a file must be, so that each later one gives it another time.

    That is not so within a tick of the clock, and of a file that a program has mapped, until its pages are written.
    """
    try:
        waits, goes = (int((_WRITE_BACK / f"dirty_{name}_centisecs").read_text()) for name in ("expire", "writeback"))
    except (OSError, ValueError):
        return 0
    return time.time_ns() - (2_000_000_000 + (waits + goes) * 10_000_000) if goes else 0


def _device_of(folder: int) -> int:
    """The filesystem of a folder, if it notes the time of each change, also of mapped files, as `tmpfs` does not."""
    try:
        file = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=folder)  # It never has a name.
    except OSError:
        return 0
    try:
        os.truncate(file, mmap.PAGESIZE)
        with mmap.mmap(file, mmap.PAGESIZE) as pages:
            pages[0] = 1
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)  # Has the page written, and waits for nothing.
            before = os.fstat(file)
            time.sleep(_TICK_SECONDS)
            pages[0] = 2
            return before.st_dev if os.fstat(file).st_ctime_ns != before.st_ctime_ns else 0
    except OSError:
        return 0
    finally:
        os.close(file)


def _copy_files(source: Path, target: Path, copier: _Copier) -> None:
    """Copy the contents of a folder.

    Code of another session may be at work in the workspace and put links where folders were. So nothing is reached by
    a path: only by the descriptor of the folder that it was found in, and no link is followed.
    """
    try:
        with _opened(source) as origin, _opened(target) as place:
            copier.begin(origin)
            copier.copy_folder(origin, place, "")
    except OSError as error:
        raise RequestError(f"The files of {str(source)!r} cannot be copied to {str(target)!r}: {error}") from error


class _Copier:
    """Copies the contents of a folder.

    Args:
        limit: The most bytes.
        owner: Whose the copied files are; by default ours.
        last: An earlier copy of the folder, of which files are taken that have not changed.
        copy: What is told of the copied files.
        there: The paths of files that are in the other folder already.
    """

    def __init__(
        self,
        limit: int | None = None,
        owner: tuple[int, int] | None = None,
        *,
        last: _Copy | None = None,
        copy: _Copy | None = None,
        there: Container[str] = (),
    ) -> None:
        self._limit = limit
        self._owner = owner
        self._last = last
        self._copy = copy
        self._there = there
        self._settled = 0
        self._bytes = self._files = 0

    def begin(self, origin: int) -> None:
        """Find out how far the times of files can be trusted."""
        if self._copy is None:
            return
        self._settled = _settled_ns()
        same = self._last is not None and self._last.device == os.fstat(origin).st_dev
        self._copy.device = os.fstat(origin).st_dev if same else _device_of(origin)

    def copy_folder(self, origin: int, place: int, path: str) -> None:
        """Copy what is in an open folder, with this path, into another one."""
        if path.count("/") > _DEEPEST:
            raise RequestError(f"The workspace has folders that are more than {_DEEPEST} deep; remove them.")
        with os.scandir(origin) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            # It was removed or replaced meanwhile.
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if (below := f"{path}/{name}") not in self._there:
                    self._copy_one(name, origin, place, below)

    def _copy_one(self, name: str, origin: int, place: int, path: str) -> None:
        facts = os.lstat(name, dir_fd=origin)
        kind = facts.st_mode
        self._count(0)
        if stat.S_ISLNK(kind):
            os.symlink(os.readlink(name, dir_fd=origin), name, dir_fd=place)
            if self._owner is not None:
                os.chown(name, *self._owner, dir_fd=place, follow_symlinks=False)
            self._note(path, facts)
        elif stat.S_ISDIR(kind):
            with contextlib.suppress(FileExistsError):  # It is there, for files that have not changed.
                os.mkdir(name, 0o700, dir_fd=place)
            with _opened(name, origin) as below, _opened(name, place) as copied:
                self.copy_folder(below, copied, path)
                self._finish(below, copied)
                self._note(path, os.fstat(below))
        elif stat.S_ISREG(kind) and not self._has_linked(name, facts, place, path):
            with _opened(name, origin, _READ) as file, _opened(name, place, _WRITE) as copied:
                facts = os.fstat(file)
                if stat.S_ISREG(facts.st_mode):
                    copy_content(file, copied, facts.st_size, self._count)
                    self._finish(file, copied)
                    self._note(path, os.fstat(file))

    def _has_linked(self, name: str, facts: os.stat_result, place: int, path: str) -> bool:
        """Take a file of the last copy, if it has not changed since."""
        if self._last is None or self._last.facts.get(path) != _facts_of(facts):
            return False
        try:
            os.link(f"{self._last.folder}{path}", name, dst_dir_fd=place)
        except OSError:  # There can be too many links.
            return False
        if size := min(facts.st_size, facts.st_blocks * 512):
            self._count(size)
        self._note(path, facts)
        return True

    def _note(self, path: str, facts: os.stat_result) -> None:
        """Note what was copied, if a later change could be seen."""
        if (copy := self._copy) is None:
            return
        copy.bytes, copy.files = self._bytes, self._files
        is_folder = stat.S_ISDIR(facts.st_mode)  # What is in it is looked at in any case.
        if facts.st_dev == copy.device and (is_folder or facts.st_ctime_ns < self._settled):
            copy.facts[path] = _facts_of(facts)

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


def _remove_changed(folder: int, known: Mapping[str, _Facts], there: set[str], path: str = "") -> None:
    """Remove what has not these facts, but for folders that have to be there, and add what stays to `there`."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            facts, below = os.lstat(name, dir_fd=folder), f"{path}/{name}"
            same = known.get(below) == _facts_of(facts)
            if not stat.S_ISDIR(facts.st_mode):
                if same:
                    there.add(below)
                else:
                    os.unlink(name, dir_fd=folder)
                continue
            if below.count("/") > _DEEPEST:
                raise RequestError(f"The workspace has folders that are more than {_DEEPEST} deep; remove them.")
            if not same:
                with contextlib.suppress(OSError, ValueError, NotImplementedError):  # It has become a link.
                    os.chmod(name, 0o700, dir_fd=folder, follow_symlinks=False)
            with _opened(name, folder) as inner:
                _remove_changed(inner, known, there, below)
            # A folder that stays gets its mode and times with the files.
            if not _stays(known.get(below), facts):
                os.rmdir(name, dir_fd=folder)


@contextlib.contextmanager
def _opened(name: str | Path, folder: int | None = None, flags: int = _FOLDER) -> Iterator[int]:
    fd = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)
