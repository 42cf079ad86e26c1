"""What a session has changed in its workspace, as people and programs see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from coderoom.errors import RequestError
from coderoom.sandbox.overlay.patch import quoted


@dataclass(frozen=True)
class Change:
    """A change of one path.

    Attributes:
        path: The path below the workspace, with `/`; of a renamed one the new path.
        kind: What happened.
        type: What is there, or was: a file, a symbolic link or a folder.
        old_path: The path before it was renamed.
        mode: The permissions after it; `None` if it was deleted.
        old_mode: The permissions before it; `None` if there was nothing.
        size: The size after it, in bytes.
        target: Where a link leads.
        refused: Why `commit` does not write it unless asked; mostly empty.
    """

    path: str
    kind: Literal["added", "modified", "deleted", "renamed"]
    type: Literal["file", "link", "folder"]
    old_path: str | None = None
    mode: int | None = None
    old_mode: int | None = None
    size: int = 0
    target: str | None = None
    refused: str = ""

    def __str__(self) -> str:
        name = quoted(self.path)
        text = f"{quoted(self.old_path)} -> {name}" if self.old_path is not None else name
        if self.target is not None:
            text += f" -> {quoted(self.target)}"
        if self.mode is not None and self.old_mode is not None and self.mode != self.old_mode and self.type == "file":
            text += f" (mode {self.old_mode:o} -> {self.mode:o})"
        return f"{self.kind} {text}{f' [not committed: {self.refused}]' if self.refused else ''}"


@dataclass(frozen=True)
class Changes:
    """All changes, by path.

    Attributes:
        listed: The changes.
        left_out: What is not among them, and why: pipes and sockets, and what cannot be read.
    """

    listed: tuple[Change, ...]
    left_out: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Change]:
        return iter(self.listed)

    def __len__(self) -> int:
        return len(self.listed)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.listed), *(f"left out: {each}" for each in self.left_out)])


@dataclass(frozen=True)
class Committed:
    """What `commit` has done.

    Attributes:
        written: The changes that are in the folder now.
        refused: Those that were not written, each with the reason in `refused`.
        left_out: What cannot be written, as in `Changes`.
    """

    written: tuple[Change, ...]
    refused: tuple[Change, ...] = ()
    left_out: tuple[str, ...] = ()


class ChangedMeanwhile(RequestError):  # noqa: N818 (it says what happened)
    """Somebody else has changed files of the folder that the session has changed too; nothing was written.

    Attributes:
        paths: The files.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        shown = ", ".join(map(quoted, self.paths[:10]))
        more = f" and {len(self.paths) - 10} more" if len(self.paths) > 10 else ""
        super().__init__(
            f"The workspace was changed meanwhile, and nothing was written: {shown}{more}. "
            "Take the diff and apply it by hand, or discard the changes."
        )
