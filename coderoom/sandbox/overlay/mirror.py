"""Makes the files of a workspace those of a fork of its session. Both are hostile: no link is followed.

Used by the engine `cpython` for `Session.become`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from coderoom.errors import RequestError
from coderoom.sandbox.overlay.tree import (
    MOST_ENTRIES,
    Node,
    Tree,
    is_too_deep,
    joined,
    names_in,
    open_folder,
    same_content,
)
from coderoom.sandbox.overlay.writing import Source, check_links, owners_in, write


def mirror(source: int, folder: Path, kept: Collection[str]) -> None:
    """Make the contents of a folder those of another one; if that is refused, nothing has changed.

    Only what differs is written, with the times of the original. What is mounted in one of the folders stays as it is,
    as sockets and pipes do. Nothing else may write to them meanwhile.

    Args:
        source: The descriptor of a folder, which stays the caller's.
        folder: The folder that is changed.
        kept: Paths below it that stay as they are.

    Raises:
        RequestError: Something cannot be read or written, or there is too much of it.
    """
    target = open_folder(folder)
    try:
        _Mirror(Tree(source), Tree(target), kept).make()
    except OSError as error:
        raise RequestError(f"The files of the fork cannot be written to {str(folder)!r}: {error}.") from error
    finally:
        os.close(target)


class _Mirror:
    def __init__(self, source: Tree, target: Tree, kept: Collection[str]) -> None:
        self._source = source
        self._target = target
        self._kept = set(kept)
        self._special: set[str] = set()  # What is neither a file nor a link nor a folder.
        self._now = self._listed(target)
        self._wanted = self._listed(source)

    def make(self) -> None:
        """Write what differs."""
        for path in self._kept | self._special:
            while path := path.rpartition("/")[0]:
                if path in self._wanted and self._wanted[path].kind != "folder":
                    raise RequestError(f"The fork has put something in the place of {path!r:.200}, which has to stay.")
        removed = self._now.keys() - self._wanted.keys()
        differing: dict[str, tuple[Node | None, Source]] = dict.fromkeys(removed, (None, self._source))
        for path, node in self._wanted.items():
            if not self._is_same(path, node, self._now.get(path)):
                differing[path] = node, self._source
        check_links(node for node, _ in differing.values())
        with self._open_folders():
            write(self._target, differing, self._keep_times, owners_in(self._target))
        for path, node in self._wanted.items():
            if node.kind == "folder":
                self._set_mode(path, node.mode)

    def _listed(self, tree: Tree) -> dict[str, Node]:
        found: dict[str, Node] = {}
        self._list(found, tree, os.fstat(tree.fd).st_dev, "")
        return found

    def _list(self, found: dict[str, Node], tree: Tree, device: int, path: str) -> None:
        """List what is below a folder, without what stays."""
        with tree.opened(path) as folder:
            for name in names_in(folder):
                below = joined(path, name)
                facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
                node = Node.of(facts)
                if facts.st_dev != device:
                    self._kept.add(below)
                if node.kind == "other":
                    self._special.add(below)
                elif below not in self._kept:
                    found[below] = node
                    if len(found) > MOST_ENTRIES or is_too_deep(below):
                        raise RequestError("The workspace has too many files for its session to become a fork.")
                    if node.kind == "folder":
                        self._list(found, tree, device, below)

    def _is_same(self, path: str, node: Node, now: Node | None) -> bool:
        if now is None or node.kind != now.kind:
            return False
        if node.kind == "link":
            return self._source.link(path) == self._target.link(path)
        if node.kind == "folder":
            return True
        if (node.mode, node.size) != (now.mode, now.size):
            return False
        return same_content(self._source.open(path), self._target.open(path))

    def _keep_times(self, stage: Tree, staged: Mapping[str, str]) -> None:
        for path, name in staged.items():
            modified = self._wanted[path].stamp[1]
            os.utime(name, ns=(modified, modified), dir_fd=stage.fd, follow_symlinks=False)

    @contextlib.contextmanager
    def _open_folders(self) -> Iterator[None]:
        """Have all folders writable; after a failure they are as before."""
        before = {path: node.mode for path, node in self._now.items() if node.kind == "folder"}
        try:
            for path, mode in before.items():
                self._set_mode(path, mode | 0o700)
            yield
        except BaseException:
            for path, mode in before.items():
                self._set_mode(path, mode)
            raise

    def _set_mode(self, path: str, mode: int) -> None:
        with self._target.opened(path) as folder:
            if os.fstat(folder).st_mode & 0o777 != mode:
                os.fchmod(folder, mode)
