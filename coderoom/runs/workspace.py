"""The workspace of a team: a folder that files are copied into, and in which the files that code writes are found.

Used by `run_team`, and by what prepares a run.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Final

from coderoom._util.files import refusing, write_inside
from coderoom.errors import RequestError

_OWN_FOLDER: Final = ".coderoom"
_MOST_FILES: Final = 10_000
"""In a workspace with more files, changes are not looked for: that would take longer than most runs."""
_PROBE_BYTES: Final = 4096


def usable_folder(workspace: Path) -> Path:
    """The folder of a workspace, which need not be there yet; what is no folder is refused."""
    try:
        folder = workspace.resolve()
        usable = folder.is_dir() or not folder.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise RequestError(
            f"The workspace {str(workspace)!r} cannot be used: {getattr(error, 'strerror', None) or error}."
        ) from error
    if not usable:
        raise RequestError(f"The workspace {str(folder)!r} is not a folder.")
    return folder


def open_workspace(workspace: Path) -> tuple[Path, bool]:
    """The folder of a workspace, and whether it was created.

    Its parent must exist, so that a mistyped path does not create folders.
    """
    folder = usable_folder(workspace)
    with refusing(f"The workspace {str(workspace)!r} cannot be used"):
        if folder.is_dir():
            return folder, False
        if folder.parent.is_dir():
            folder.mkdir()
            return folder, True
    raise RequestError(
        f"Neither the workspace {str(folder)!r} nor its parent {str(folder.parent)!r} exists. Check the path, or "
        "create the parent first."
    )


def check_writable(folder: Path) -> None:
    """Refuse a workspace that nothing can be written to, before a model is asked."""
    with refusing(f"The workspace {str(folder)!r} cannot be written to"):
        there = next(each for each in (folder, *folder.parents) if each.exists())
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(_PROBE_BYTES))


def copy_in(files: Sequence[Path], workspace: Path) -> list[str]:
    """Copy files into the workspace, under their own names; return sentences about files that were there.

    A file of the same name with other content is kept in `.coderoom/replaced`.
    """
    names = [file.name for file in files]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise RequestError(f"Two files have the name {doubles[0]!r}: they would overwrite each other.")
    replaced = []
    for file in files:
        with refusing(f"Cannot copy {str(file)!r} into the workspace"):
            workspace.mkdir(parents=True, exist_ok=True)
            if (workspace / file.name).is_symlink():
                # Earlier code may have made the link, to redirect this write.
                (workspace / file.name).unlink()
            target = workspace / file.name
            if not target.exists():
                shutil.copyfile(file, target)
            elif not filecmp.cmp(file, target, shallow=False):
                places = (f"{_OWN_FOLDER}/replaced/{file.name}{f'.{number}' if number else ''}" for number in count())
                kept = next(place for place in places if not os.path.lexists(workspace / place))
                write_inside(workspace, kept, target.read_bytes())
                shutil.copyfile(file, target)
                replaced.append(f"{file.name} in the workspace had other content, which is in {kept} now.")
    return replaced


class FileChanges:
    """Finds the files that were written in some folders since this object was created.

    Args:
        folders: The folders.
        journal: The database of the journal, which is no file that code has written; `None`: there is none.
    """

    def __init__(self, folders: Sequence[Path], journal: Path | None = None) -> None:
        own = None if journal is None else journal.resolve()
        self._own = set() if own is None else {own.with_name(f"{own.name}{end}") for end in ("", "-wal", "-shm")}
        resolved = sorted({folder.resolve() for folder in folders})
        self._folders = [one for one in resolved if not any(other in one.parents for other in resolved)]
        self._before = dict(self._files())

    def written(self) -> list[Path]:
        """The files that are new or changed, sorted; none if there are too many to watch."""
        if len(self._before) >= _MOST_FILES:
            return []
        return sorted(path for path, stamp in self._files() if self._before.get(path) != stamp)

    def _files(self) -> Iterator[tuple[Path, tuple[int, int]]]:
        def paths() -> Iterator[Path]:
            for watched in self._folders:
                for folder, folders, names in islice(os.walk(watched), 2 * _MOST_FILES):
                    folders[:] = [name for name in folders if name not in (_OWN_FOLDER, "__pycache__")]
                    yield from (Path(folder, name) for name in names)

        for path in islice(paths(), 2 * _MOST_FILES):
            with contextlib.suppress(OSError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and path not in self._own:
                    yield path, (status.st_mtime_ns, status.st_size)
