"""The folders of rooms that have no mounts of their own, which are below the worker's folder for temporary files.

Those of a fork are in one that the code of the first session may write to, since Landlock never gives a process more
rights than it had. That code may replace them by links, so each is opened without following any.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from .copying import copy_folder

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def own_folders(config: dict[str, Any], inside: str) -> dict[str, Any]:
    """Make folders for a room, name them in the environment, and return the room's configuration.

    `inside` is the folder for the forks of the room that this one is a fork of, if it is one.
    """
    scratch = config["scratch"]
    # Not with `tempfile`, which imports `random`: all forks of this process would have the same random numbers.
    name = "room-" + os.urandom(8).hex()
    own = os.path.join(inside or scratch, name)
    temporary = os.path.join(own, "tmp")
    has_own_workspace = config["workspace_in_memory"] or inside
    made = ["tmp", "forks", *(["workspace"] if has_own_workspace else [])]
    above = open_folder(inside or scratch, scratch)
    os.mkdir(name, 0o700, dir_fd=above)
    place = os.open(name, _FOLDER, dir_fd=above)
    for each in made:
        os.mkdir(each, 0o700, dir_fd=place)
    for fd in (above, place):
        os.close(fd)
    room = {**config, "own": own, "in_memory": [os.path.join(own, each) for each in made]}
    if has_own_workspace:
        room["workspace"] = os.path.join(own, "workspace")
    room["folders"] = [room["workspace"], temporary]
    room["lockdown"] = _locked(room)
    for variable, value in os.environ.items():
        if value == scratch or value.startswith(scratch + "/"):
            os.environ[variable] = temporary + value[len(scratch) :]
    os.environ["TMPDIR"] = temporary
    return room


def in_workspace(room: dict[str, Any], workspace: str) -> dict[str, Any]:
    """The configuration of a room that has another workspace now."""
    room = {**room, "workspace": workspace, "folders": [workspace, room["folders"][1]]}
    return {**room, "lockdown": _locked(room)}


def forks_of(room: dict[str, Any]) -> str:
    """Where the folders of the forks of a room are."""
    return os.path.join(room["own"], "forks")


def _locked(room: dict[str, Any]) -> dict[str, Any]:
    locked = dict(room["lockdown"])
    if locked.get("read") is not None:
        locked["write"] = [*room["folders"], forks_of(room)]
    return locked


def open_folder(path: str, scratch: str) -> int:
    """Open a folder; what code can write to below `scratch` is reached without following links."""
    if not path.startswith(scratch + "/"):
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fd = os.open(scratch, _FOLDER)
    for name in path[len(scratch) + 1 :].split("/"):
        above = fd
        try:
            fd = os.open(name, _FOLDER, dir_fd=above)
        finally:
            os.close(above)
    return fd


def remove_folder(path: str, scratch: str) -> None:
    """Remove a folder and what is in it, as far as that is possible."""
    above = open_folder(os.path.dirname(path), scratch)
    shutil.rmtree("/proc/self/fd/%d/%s" % (above, os.path.basename(path)), ignore_errors=True)
    os.close(above)


class Copies:
    """Copies of folders, at a place that no code can write to, until they are removed."""

    def __init__(self, folders: Sequence[int], scratch: str, most: int) -> None:
        self._place = os.path.join(scratch, "kept-" + os.urandom(8).hex())
        os.mkdir(self._place, 0o700)
        self.fds: list[int] = []
        try:
            for number, folder in enumerate(folders):
                path = os.path.join(self._place, str(number))
                os.mkdir(path, 0o700)
                self.fds.append(os.open(path, _FOLDER))
                copy_folder(folder, self.fds[-1], most)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove them."""
        shutil.rmtree(self._place, ignore_errors=True)
