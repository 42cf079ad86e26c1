"""Where the changes of a session are kept: in the upper folder of an overlayfs, or in a copy of the workspace."""

from __future__ import annotations

import os
import stat
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from coderoom._util.temporary import remove_folder
from coderoom.sandbox.overlay.patch import quoted
from coderoom.sandbox.overlay.tree import (
    MOST_ENTRIES,
    Node,
    TooManyError,
    Tree,
    is_too_deep,
    joined,
    names_in,
    node_in,
    open_folder,
    write_file,
)

_OPAQUE, _WHITEOUT = "user.overlay.opaque", "user.overlay.whiteout"
_CLOCK_OF_FILES = 5  # CLOCK_REALTIME_COARSE, which stamps files; the exact time may be later.
_MOST_NAMES = 50_000
_MOST_CHARACTERS = 32 << 20  # Of all paths.
T = TypeVar("T")
_TOO_DEEP = "the folder is too deep to be looked at"


@dataclass
class Touched:
    """What a session has written: nodes by path, `None` for what it has removed; some may be as they were.

    `left_out` says what is not among them. `complete`: there are no more.
    """

    nodes: dict[str, Node | None] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    complete: bool = True
    characters: int = 0

    def add(self, path: str, node: Node | None) -> None:
        """Add a path."""
        self.characters += len(path)
        if len(self.nodes) >= MOST_ENTRIES or self.characters > _MOST_CHARACTERS:
            raise TooManyError
        self.nodes[path] = node


class Layer(Protocol):
    """The changes of one session.

    Attributes:
        lower: The folder itself.
        read: A folder with the changed files.
        write: The folder as the session sees it.
    """

    lower: Tree
    read: Tree
    write: Tree

    def touched(self) -> Touched:
        """What the session has written."""

    def changed_by_others(self, path: str, before: Node | None) -> bool:
        """Whether somebody else has changed a path of the folder, where `before` is now."""

    def note(self, path: str, there: Node | None, here: Node | None) -> None:
        """Record what was just written to the folder, from what is here."""

    def is_written(self, path: str, here: Node | None) -> bool:
        """Whether what is here was written to the folder, and not changed here after that."""

    def known(self) -> Any:
        """How it knows the folder, which another layer can `inherit`."""

    def inherit(self, known: Any) -> None:
        """Know the folder as another layer of it did."""

    def begin(self) -> None:
        """Get ready for a `changed_by_others` of later."""

    def close(self) -> None:
        """Forget the changes."""


def _aside(work: Callable[..., T], *arguments: Any) -> Future[T]:
    """Do something in a thread that nothing waits for, not even the end of this process."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work(*arguments))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="coderoom-overlay", daemon=True).start()
    return done


class UpperLayer:
    """The changes in the upper folder of an overlayfs; descriptors of it and of the merged folder become its own."""

    def __init__(self, folder: Path, upper: int, merged: int) -> None:
        self._since = time.clock_gettime_ns(_CLOCK_OF_FILES)
        lower = open_folder(folder)
        self.lower, self.read, self.write = Tree(lower), Tree(upper), Tree(merged)
        self._written: dict[str, tuple[Node | None, Node | None]] = {}  # There and here.
        self._close = weakref.finalize(self, _close_all, lower, upper, merged)
        self._folder = folder
        self._names: Future[set[str]] = Future()
        self._names.set_result(set())

    def touched(self) -> Touched:
        """What the session has written."""
        found = Touched()
        try:
            self._walk(found, "", False)
        except TooManyError:
            found.complete = False
        return found

    def changed_by_others(self, path: str, before: Node | None) -> bool:
        """Whether somebody else has changed a path of the folder, where `before` is now."""
        if path in self._written:
            written = self._written[path][0]
            return (before and before.stamp) != (written and written.stamp)
        if before is None:
            return path in self._names.result()
        return before.kind != "folder" and before.changed > self._since

    def note(self, path: str, there: Node | None, here: Node | None) -> None:
        """Record what was just written to the folder, from what is here."""
        self._written[path] = there, here

    def is_written(self, path: str, here: Node | None) -> bool:
        """Whether what is here was written to the folder, and not changed here after that."""
        return path in self._written and self._written[path][1] == here

    def begin(self) -> None:
        """List what is there, aside."""
        self._names = _aside(_names, self._folder)

    def known(self) -> Any:
        """How it knows the folder."""
        return self._since, self._names, dict(self._written)

    def inherit(self, known: Any) -> None:
        """Know the folder as another layer of it did."""
        self._since, self._names, written = known
        self._written = dict(written)

    def close(self) -> None:
        """Forget the changes, once the session has ended, too."""
        self._close()

    def _walk(self, found: Touched, path: str, new: bool) -> None:
        """Look at a folder of the upper ones; `new`: nothing of the folder itself is visible below."""
        try:
            with self.read.opened(path) as folder:
                for name in names_in(folder):
                    node = node_in(folder, name)
                    if node is not None:
                        self._take(found, folder, name, joined(path, name), node, new)
        except PermissionError:
            found.left_out.append(f"{quoted(path or '.')}: the folder cannot be read")

    def _take(self, found: Touched, folder: int, name: str, path: str, node: Node, new: bool) -> None:
        below = None if new else self.lower.node(path)
        if _is_whiteout(folder, name):
            self._remove(found, path, below)
        elif node.kind == "folder":
            covered = below is None or below.kind != "folder"
            if not covered and _attribute(folder, name, _OPAQUE) == b"y":
                self._remove(found, path, below)
                covered = True
                found.nodes.pop(path)
            elif covered:
                found.add(path, node)
            if is_too_deep(path):
                found.left_out.append(f"{quoted(path)}: {_TOO_DEEP}")
            else:
                self._walk(found, path, covered)
        else:
            if below is not None and below.kind == "folder":
                self._remove(found, path, below)
            found.add(path, node)

    def _remove(self, found: Touched, path: str, below: Node | None) -> None:
        found.add(path, None)
        if below is not None and below.kind == "folder":
            for inside, _, _ in self.lower.below(path):
                found.add(inside, None)


class CopyLayer:
    """The changes in a copy of the folder, which is made in an empty one that belongs to this object then."""

    def __init__(self, folder: Path, place: Path) -> None:
        lower, copy = open_folder(folder), open_folder(place)
        self.lower, self.read = Tree(lower), Tree(copy)
        self.write = self.read
        self._known: dict[str, tuple[Node | None, Node | None]] = {}  # There and here.
        self._close = weakref.finalize(self, _end_copy, place, lower, copy)
        try:
            self._copy()
        except BaseException:
            self.close()
            raise

    def touched(self) -> Touched:
        """What the session has written."""
        found = Touched()
        seen = set()
        try:
            for path, node, _ in self.read.below():
                seen.add(path)
                _, here = self._known.get(path, (None, None))
                if is_too_deep(path):
                    found.left_out.append(f"{quoted(path)}: {_TOO_DEEP}")
                if here is None or here.kind != node.kind or (here.stamp != node.stamp and node.kind != "folder"):
                    found.add(path, node)
            for path in self._known.keys() - seen:
                if self._known[path][1] is not None:
                    found.add(path, None)
        except TooManyError:
            found.complete = False
        except PermissionError as error:
            found.left_out.append(f"{quoted(str(error.filename))}: the folder cannot be read")
            found.complete = False
        return found

    def changed_by_others(self, path: str, before: Node | None) -> bool:
        """Whether somebody else has changed a path of the folder, where `before` is now."""
        there, _ = self._known.get(path, (None, None))
        if before is None or there is None:
            return before is not there
        return before.kind != there.kind or (before.kind != "folder" and before.stamp != there.stamp)

    def note(self, path: str, there: Node | None, here: Node | None) -> None:
        """Record what was just written to the folder, from what is here."""
        self._known[path] = there, here

    def is_written(self, path: str, here: Node | None) -> bool:
        """Whether what is here was written to the folder, and not changed here after that."""
        return False  # It is not among what was touched then.

    def begin(self) -> None:
        """Nothing has to be done: all is known."""

    def known(self) -> Any:
        """How it knows the folder."""
        return dict(self._known)

    def inherit(self, known: Any) -> None:
        """Know the folder as another layer of it did."""
        for path, (there, _) in known.items():
            self._known[path] = there, self._known.get(path, (None, None))[1]

    def close(self) -> None:
        """Remove the copy."""
        self._close()

    def _copy(self) -> None:
        folders = []
        facts = os.fstat(self.read.fd)  # The code may run as another user than root.
        owner = (facts.st_uid, facts.st_gid) if os.geteuid() == 0 else None
        for path, node, folder in self.lower.below():
            name = path.rpartition("/")[2]
            with self.read.parent(path) as (above, _):
                if node.kind == "folder":
                    os.mkdir(name, 0o700, dir_fd=above)
                    folders.append((path, node))
                    if owner is not None:
                        os.chown(name, *owner, dir_fd=above)
                    continue
                try:
                    if node.kind == "file":
                        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                        write_file(source, above, name, node.mode, owner)
                        os.utime(name, ns=(node.stamp[1], node.stamp[1]), dir_fd=above, follow_symlinks=False)
                    elif node.kind == "link":
                        os.symlink(os.readlink(name, dir_fd=folder), name, dir_fd=above)
                        if owner is not None:
                            os.chown(name, *owner, dir_fd=above, follow_symlinks=False)
                    else:
                        continue
                except (FileNotFoundError, PermissionError):  # It was removed meanwhile, or nobody here may read it.
                    continue
                self._known[path] = node, node_in(above, name)
        for path, node in reversed(folders):
            with self.read.parent(path) as (above, name):
                os.chmod(name, node.mode, dir_fd=above)
                self._known[path] = node, node_in(above, name)


def _is_whiteout(folder: int, name: str) -> bool:
    facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISCHR(facts.st_mode):
        return facts.st_rdev == 0
    return stat.S_ISREG(facts.st_mode) and not facts.st_size and _attribute(folder, name, _WHITEOUT) is not None


def _attribute(folder: int, name: str, attribute: str) -> bytes | None:
    try:
        return os.getxattr(f"/proc/self/fd/{folder}/{name}", attribute, follow_symlinks=False)
    except OSError:
        return None


def _names(folder: Path) -> set[str]:
    """The paths in a folder, unless there are too many."""
    names: set[str] = set()
    waiting = [""]
    while waiting:
        path = waiting.pop()
        try:
            with os.scandir(folder / path) as entries:
                for entry in entries:
                    names.add(joined(path, entry.name))
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(joined(path, entry.name))
        except OSError:
            continue
        if len(names) > _MOST_NAMES:
            return set()
    return names


def _close_all(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def _end_copy(place: Path, *fds: int) -> None:
    _close_all(*fds)
    _aside(remove_folder, place)  # It may be large.
