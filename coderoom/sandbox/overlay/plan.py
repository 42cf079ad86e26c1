"""What a session has changed, path by path: how it compares with the folder, and what is not written back."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

from coderoom._util.text import OUTPUTS
from coderoom.errors import RequestError
from coderoom.sandbox.overlay.changes import Change
from coderoom.sandbox.overlay.layers import Layer
from coderoom.sandbox.overlay.patch import quoted
from coderoom.sandbox.overlay.tree import Node, Tree, digest, same_content

_CONTROLS = {".git", ".hg", ".jj"}
_BARE = {"HEAD", "config", "config.worktree", "commondir", "hooks"}
_CONTROL = "what a version control system keeps can run programs on this machine"
_OUTSIDE = "the link leads out of the workspace"


@dataclass(frozen=True)
class Difference:
    """What is at a path of the folder, and what the session has there."""

    before: Node | None
    after: Node | None

    @property
    def changes_kind(self) -> bool:
        """Whether something of another kind has taken its place."""
        before, after = self.before, self.after
        return before is not None and after is not None and before.kind != after.kind


@dataclass(frozen=True)
class Plan:
    """All that differs from the folder, by path.

    Attributes:
        layer: Where the changes are.
        differences: What differs.
        left_out: What is not among them, and why.
        complete: Whether there are no more.
    """

    layer: Layer
    differences: Mapping[str, Difference]
    left_out: tuple[str, ...]
    complete: bool

    @classmethod
    def of(cls, layer: Layer) -> Self:
        """Compare what the session has written with the folder."""
        found = layer.touched()
        differences = {}
        left_out = list(found.left_out)
        for path, after in sorted(found.nodes.items()):
            if layer.is_written(path, after):
                continue
            if after is not None and after.kind == "other":
                left_out.append(f"{quoted(path)}: is neither a file nor a link nor a folder")
                continue
            try:
                before = layer.lower.node(path)
                if before is not None and before.kind == "other":
                    before = None
                is_ours = before is None and f"{path}/".startswith(f"{OUTPUTS}/")
                if not is_ours and not _same(layer, path, before, after):
                    differences[path] = Difference(before, after)
            except OSError as error:
                left_out.append(f"{quoted(path)}: {error.strerror}")
        return cls(layer, differences, tuple(left_out), found.complete)

    def only(self, paths: Collection[str] | None) -> Plan:
        """The part that is about some paths, with the new folders that these are in; `None`: all of it.

        Raises:
            RequestError: At a path, nothing has changed.
        """
        if paths is None:
            return self
        for path in paths:
            if not any(_is_in(each, {path}) for each in self.differences):
                raise RequestError(f"Nothing has changed at {quoted(path)}.")
        chosen = self.chosen(paths)
        above = {path[:at] for path in chosen for at, each in enumerate(path) if each == "/"}
        chosen |= {path for path in above & self.differences.keys() if self.differences[path].after is not None}
        return replace(self, differences={path: each for path, each in self.differences.items() if path in chosen})

    def chosen(self, paths: Collection[str]) -> set[str]:
        """What differs at these paths, and below those that are folders; both paths of what was renamed."""
        moved = self._moved()
        wanted = {*paths, *(old for new, old in moved.items() if _is_in(new, paths))}
        wanted |= {new for new, old in moved.items() if _is_in(old, paths)}
        return {path for path in self.differences if _is_in(path, wanted)}

    def listed(self, refused: Mapping[str, str] | None = None) -> Iterator[Change]:
        """The changes as people see them: with renames, and with folders only where they are all there is."""
        refused = self.refused() if refused is None else refused
        moved = self._moved()
        from_paths = set(moved.values())
        full = {path.rpartition("/")[0] for path in self.differences}
        for path, difference in self.differences.items():
            before, after = difference.before, difference.after
            one = after or before
            assert one is not None
            if path in from_paths or (one.kind == "folder" and path in full and not difference.changes_kind):
                continue
            kind: Literal["added", "modified", "deleted", "renamed"] = "modified"
            if after is None:
                kind = "deleted"
            elif path in moved:
                kind, before = "renamed", self.differences[moved[path]].before
            elif before is None:
                kind = "added"
            yield Change(
                path,
                kind,
                "file" if one.kind == "other" else one.kind,
                moved.get(path),
                None if after is None else after.mode,
                None if before is None else before.mode,
                0 if after is None else after.size,
                self.layer.read.link(path) if after is not None and after.kind == "link" else None,
                refused.get(path, "") or refused.get(moved.get(path, ""), ""),
            )

    def state(self, known: Mapping[str, bytes]) -> str:
        """A digest of all that has changed, where some contents, as `content_of` has them, are known.

        Of the contents: code can change a file that it has mapped into its memory without a trace in its times.
        """
        read: dict[tuple[int, ...], bytes] = {}  # Of each file once, however many hard links it has.
        whole = hashlib.sha256()
        for path, difference in self.differences.items():
            after, content = difference.after, known.get(path)
            if content is None and after is not None:
                content = read.get(after.stamp)
            if content is None:
                try:
                    content = content_of(self.layer.read, path, after)
                except OSError:
                    content = b"cannot be read"
                if after is not None and after.kind == "file":
                    read[after.stamp] = content
            whole.update(repr((path, after and (after.kind, after.mode), content)).encode())
        return whole.hexdigest()

    def _moved(self) -> dict[str, str]:
        """New paths of files that were moved as they were, with the old ones."""
        by_size: dict[int, list[str]] = {}
        gone: dict[tuple[bool, bytes], list[str]] = {}
        read: dict[tuple[int, ...], bytes] = {}

        def content(tree: Tree, path: str, node: Node) -> bytes:
            if node.stamp not in read:
                try:
                    read[node.stamp] = content_of(tree, path, node)
                except OSError:
                    read[node.stamp] = os.urandom(32)  # Like no other.
            return read[node.stamp]

        for path, difference in self.differences.items():
            if difference.after is None and difference.before is not None and difference.before.kind == "file":
                by_size.setdefault(difference.before.size, []).append(path)
        moved: dict[str, str] = {}
        for path, difference in self.differences.items():
            after = difference.after
            if difference.before is not None or after is None or after.kind != "file" or not after.size:
                continue
            if after.size not in by_size:
                continue
            for old in by_size[after.size]:
                before = self.differences[old].before
                assert before is not None
                gone.setdefault((in_git(old), content(self.layer.lower, old, before)), []).append(old)
            by_size[after.size] = []
            found = gone.get((in_git(path), content(self.layer.read, path, after)), [])
            for old in found:
                if not (f"{path}/".startswith(f"{old}/") or f"{old}/".startswith(f"{path}/")):
                    moved[path] = old
                    found.remove(old)
                    break
        return moved

    def refused(self) -> dict[str, str]:
        """Why some paths are not written back unless asked."""
        refused = {}
        bare: dict[str, bool] = {}

        def exists(path: str) -> bool:
            difference = self.differences.get(path)
            return (self.layer.lower.node(path) if difference is None else difference.after) is not None

        def is_bare(folder: str) -> bool:
            """Whether git will take a folder for a repository."""
            if folder not in bare:
                has_all = exists(f"{folder}objects") and exists(f"{folder}refs")
                bare[folder] = exists(f"{folder}HEAD") and (has_all or exists(f"{folder}commondir"))
            return bare[folder]

        for path, difference in self.differences.items():
            after = difference.after
            parts = path.split("/")
            folders = ("".join(f"{each}/" for each in parts[:at]) for at, name in enumerate(parts) if name in _BARE)
            if not _CONTROLS.isdisjoint(path.lower().split("/")) or any(map(is_bare, folders)):
                refused[path] = _CONTROL
            elif after is not None and after.kind == "link" and _leads_out(path, self.layer.read.link(path)):
                refused[path] = _OUTSIDE
        return refused


def _same(layer: Layer, path: str, before: Node | None, after: Node | None) -> bool:
    if before is None or after is None:
        return before is after
    if before.kind != after.kind or (before.kind == "file" and before.mode != after.mode):
        return False
    lower, read = layer.lower, layer.read
    if before.kind == "link":
        return lower.link(path) == read.link(path)
    if before.kind == "folder":
        return True
    return before.size == after.size and same_content(lower.open(path), read.open(path))


def _is_in(path: str, paths: Collection[str]) -> bool:
    return path in paths or any(path[:at] in paths for at, each in enumerate(path) if each == "/")


def content_of(tree: Tree, path: str, node: Node | None) -> bytes:
    """The target of a link, or a digest of a file."""
    if node is None or node.kind not in ("file", "link"):
        return b""
    return os.fsencode(tree.link(path)) if node.kind == "link" else digest(tree.open(path))


def in_git(path: str) -> bool:
    """Whether a path is in what git keeps."""
    return ".git" in path.lower().split("/")


def _leads_out(path: str, target: str) -> bool:
    """Whether a link may lead out of the folder.

    `..` after a name counts as leading out, since that name may be another link.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or up > path.count("/") or ".." in parts[up:]
