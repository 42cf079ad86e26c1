"""The folders in which a team's code works: putting files in, and seeing what was written."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coderoom._util.autogen import executor_of, participants_of, work_dir_of
from coderoom.agents import CodeGeneratorAgent
from coderoom.errors import RequestError
from coderoom.executors import SandboxCodeExecutor

__all__ = ["NO_CODE_IS_RUN", "NO_WALL", "FileChanges", "copy_in", "executors_of", "folder_of", "isolation_of"]

NO_WALL = "none"
NO_CODE_IS_RUN = "no code is run"

_ISOLATING = frozenset({"ACADynamicSessionsCodeExecutor", "DockerCommandLineCodeExecutor", "DockerJupyterCodeExecutor"})
_OWN_FOLDER = ".coderoom"
_MOST_FILES = 10_000
"""A workspace with more files than that is not watched: it would take longer than most runs."""


def executors_of(team: Any) -> list[Any]:
    """The executors of a team's agents, those of nested teams too, and agents that run code without one."""
    found = []
    for participant in participants_of(team):
        executor = executor_of(participant)
        if executor is not None:
            found.append(executor)
        if isinstance(participant, CodeGeneratorAgent):  # It brings a sandbox of its own.
            found.append(participant)
        found += executors_of(participant)
    return found


def folder_of(executor: Any) -> Path | None:
    """The folder on this machine that an executor was told to work in, or `None`."""
    folder = work_dir_of(executor)
    return Path(folder).resolve() if isinstance(folder, str | Path) else None


def isolation_of(executors: Sequence[Any]) -> str:
    """What keeps the code of these executors from this machine, by name; `none` if one of them does not.

    A sandbox that is to take the strongest wall there is says `auto` until it is started.
    """
    if not executors:
        return NO_CODE_IS_RUN
    names = {_wall_of(executor) for executor in executors}
    return NO_WALL if NO_WALL in names else ", ".join(sorted(names))


def _wall_of(executor: Any) -> str:
    if isinstance(executor, SandboxCodeExecutor | CodeGeneratorAgent):
        return executor.wall
    # By name, since Docker's and Azure's packages are imported only where they are used. What is not known to isolate
    # does not.
    return next((kind.__name__ for kind in type(executor).__mro__ if kind.__name__ in _ISOLATING), NO_WALL)


def copy_in(files: Sequence[Path], workspace: Path) -> list[str]:
    """Copy files into the workspace, under their own names.

    Returns:
        The names.

    Raises:
        RequestError: If one of them cannot be read, or two have one name.
    """
    names = [file.name for file in files]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise RequestError(f"Two files have the name {doubles[0]!r}: they would overwrite each other.")
    for file in files:
        try:
            workspace.mkdir(parents=True, exist_ok=True)
            if (workspace / file.name).is_symlink():
                # Earlier code may have made it, to have something written where it leads.
                (workspace / file.name).unlink()
            if not (workspace / file.name).exists() or not file.samefile(workspace / file.name):
                shutil.copyfile(file, workspace / file.name)
        except OSError as error:
            raise RequestError(f"Cannot copy {str(file)!r} into the workspace: {error.strerror or error}.") from error
    return names


class FileChanges:
    """Sees which files were written in some folders since it was made.

    Args:
        folders: The folders to look at; what is not there yet counts as empty.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        resolved = sorted({folder.resolve() for folder in folders})
        self._folders = [one for one in resolved if not any(other in one.parents for other in resolved)]
        self._before = dict(self._files())

    def written(self) -> list[Path]:
        """The files that are new or changed, sorted; none if there are too many to watch."""
        if len(self._before) >= _MOST_FILES:
            return []
        return sorted(path for path, stamp in self._files() if self._before.get(path) != stamp)

    def _files(self) -> Iterator[tuple[Path, tuple[int, int]]]:
        seen = 0
        folders = list(self._folders)
        while folders:
            try:
                entries = list(os.scandir(folders.pop()))
            except OSError:
                continue
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in (_OWN_FOLDER, "__pycache__"):
                        folders.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    seen += 1
                    if seen > 2 * _MOST_FILES:
                        return
                    with contextlib.suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        yield Path(entry.path), (status.st_mtime_ns, status.st_size)
