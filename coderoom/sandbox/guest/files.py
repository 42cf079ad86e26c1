"""Finds the files of a workspace that a cell has created or changed. Used by the interpreters of both engines."""

from __future__ import annotations

import os
import stat
from typing import Any, Tuple

__all__ = ["Workspace"]

_MOST_FILES = 5000
_MOST_ARTIFACTS = 100
_MOST_BYTES = 8 * 1024 * 1024
_HIDDEN = (".", "__pycache__")

_Mark = Tuple[int, int, int]


class Workspace:
    """Compares the files of a folder before and after a cell.

    Args:
        folder: The folder.
        bring: Whether to return the files' content too, because the host cannot read the folder.

    Attributes:
        folder: The folder.
        left_out: How many more files the last `changes` has found.
    """

    def __init__(self, folder: str, bring: bool) -> None:
        self.folder = folder
        self.left_out = 0
        self._bring = bring
        self._before: dict[str, _Mark] = {}

    def remember(self) -> None:
        """Record the current files."""
        self._before = self._look()

    def changes(self) -> tuple[list[dict[str, Any]], list[bytes]]:
        """Find the files that are new or changed since `remember`: the first hundred by name, without hidden ones.

        Returns:
            A description of each, and the contents of those that have a `length`, in the same order.
        """
        found: list[dict[str, Any]] = []
        contents: list[bytes] = []
        room = _MOST_BYTES
        self.left_out = 0
        for name, mark in sorted(self._look().items()):
            if self._before.get(name) == mark:
                continue
            if len(found) == _MOST_ARTIFACTS:
                self.left_out += 1
                continue
            artifact: dict[str, Any] = {"name": name, "size": mark[1]}
            if self._bring and mark[1] <= room:
                content = self._read(name, room)
                room -= len(content)
                artifact["length"] = len(content)
                contents.append(content)
            found.append(artifact)
        return found, contents

    def _look(self) -> dict[str, _Mark]:
        marks: dict[str, _Mark] = {}
        folders = [""]
        seen = 0
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(os.path.join(self.folder, folder)))
            except OSError:
                continue
            for entry in entries:
                seen += 1
                if seen > _MOST_FILES:
                    return marks
                if entry.name.startswith(_HIDDEN):
                    continue
                name = folder + entry.name
                try:
                    facts = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISDIR(facts.st_mode):
                    folders.append(name + "/")
                elif stat.S_ISREG(facts.st_mode):
                    marks[name] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        return marks

    def _read(self, name: str, room: int) -> bytes:
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                return file.read(room)
        except OSError:
            return b""
