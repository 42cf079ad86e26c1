"""Writes files of one folder into another, all or none, each at once."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from coderoom.errors import RequestError
from coderoom.sandbox.guest.isolation import linux
from coderoom.sandbox.overlay.tree import Node, Tree, names_in, node_in, write_file

Owner = tuple[int, int]
_Undo = Callable[[], None]
_MOST_LINKED = 1 << 30


class Source(Protocol):
    """Where contents come from: a `Tree`, or files that were kept."""

    def open(self, path: str, /) -> int:
        """The descriptor of a file."""

    def link(self, path: str, /) -> str:
        """The target of a link."""


def write(
    target: Tree,
    wanted: Mapping[str, tuple[Node | None, Source]],
    check: Callable[[Tree, Mapping[str, str]], None] = lambda stage, staged: None,
    owner: Callable[[str], Owner | None] = lambda path: None,
    undoes: bool = True,
) -> None:
    """Make each path what is wanted there: a node with its content, or nothing.

    All files and folders are made beside, first. If that fails, or `check` raises, nothing has changed; if something
    fails later, what was changed is undone, but for files on other disks that are mounted in the folder.

    Args:
        target: The folder.
        wanted: What is wanted, with the source of its content, by path.
        check: Called before the first change, with the folder of what is written, and the name there of each path.
        owner: Whom a path is to belong to; `None`: whoever makes it.
        undoes: Whether a late failure is undone; in an overlayfs, files would be copied for that.
    """
    with _staging(target) as stage:
        staged: dict[str, str] = {}
        for path, (node, source) in wanted.items():
            if node is None:
                continue
            staged[path] = name = str(len(staged))
            if node.kind == "folder":
                _make_folder(stage, name, node.mode, owner(path))
                continue
            with _as(os.geteuid(), os.getegid()):
                content, link = (source.open(path), "") if node.kind == "file" else (-1, source.link(path))
            if node.kind == "file":
                write_file(content, stage, name, node.mode, owner(path))
            else:
                os.symlink(link, name, dir_fd=stage)
                if (user := owner(path)) is not None:
                    os.chown(name, *user, dir_fd=stage, follow_symlinks=False)
        check(Tree(stage), staged)
        with _undone_if_it_fails() as undo:
            for path in sorted(wanted, reverse=True):  # What is in a folder before the folder.
                node, now = wanted[path][0], target.node(path)
                if now is not None and (node is None or (now.kind == "folder") != (node.kind == "folder")):
                    undo += _remove(target, path, now, stage, f"old{len(undo)}" if undoes else "")
            for path, name in sorted(staged.items()):  # A folder before what is in it.
                node, now = wanted[path][0], target.node(path)
                if now is None or (node is not None and node.kind != "folder"):
                    undo += _replace(target, path, now, stage, name, f"old-{name}" if undoes else "")


class Content:
    """A source with the content of one file that is not there yet."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def open(self, path: str, /) -> int:
        """The descriptor of a file."""
        fd = os.memfd_create("content", os.MFD_CLOEXEC)
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(self._content)
        return fd

    def link(self, path: str, /) -> str:
        """It has no links."""
        raise NotImplementedError


def put(tree: Tree, path: str, content: bytes, owner: int) -> None:
    """Write a file, with the folders above it, as the owner of a folder whose descriptor is given.

    Raises:
        OSError: A link or a file is in the way.
    """
    wanted: dict[str, tuple[Node | None, Source]] = {}
    source = Content(content)
    parts = path.split("/")
    for above in ("/".join(parts[:number]) for number in range(1, len(parts))):
        if tree.node(above) is None:
            wanted[above] = Node("folder", 0o755, 0, (), 0), source
    before = tree.node(path)
    if before is not None and before.kind != "file":
        raise OSError(errno.EEXIST, "is not a file", path)
    wanted[path] = Node("file", 0o644 if before is None else before.mode, 0, (), 0), source
    with as_owner_of(owner):
        write(tree, wanted, undoes=False)


def check_links(nodes: Iterable[Node | None]) -> None:
    """Refuse hard links to large files, each of which would become a file of its own on the disk of the host."""
    seen, more = set(), 0
    for node in nodes:
        if node is not None and node.kind == "file":
            more += node.size if node.stamp in seen else 0
            seen.add(node.stamp)
    if more > _MOST_LINKED:
        raise RequestError(
            f"There are hard links to large files, which would become files of {more:,} bytes more than there are."
        )


def _make_folder(above: int, name: str, mode: int, owner: Owner | None) -> None:
    os.mkdir(name, mode | 0o700, dir_fd=above)
    if owner is not None:
        os.chown(name, *owner, dir_fd=above, follow_symlinks=False)


@contextlib.contextmanager
def _undone_if_it_fails() -> Iterator[list[_Undo]]:
    """Undo what was done, in the reverse order, if the context fails."""
    undo: list[_Undo] = []
    try:
        yield undo
    except BaseException:
        for each in reversed(undo):
            with contextlib.suppress(OSError):
                each()
        raise


def _remove(target: Tree, path: str, now: Node, stage: int, kept: str) -> list[_Undo]:
    """Remove what is at a path, unless it is a folder that is not empty; return what undoes that, if it is `kept`."""
    with target.parent(path) as (folder, name):
        if now.kind == "folder":
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            try:
                os.rmdir(name, dir_fd=folder)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                return []
            return [lambda: _make_again(target, path, facts)]
        try:
            if kept:
                os.rename(name, kept, src_dir_fd=folder, dst_dir_fd=stage)
                return [lambda: _put_back(target, path, stage, kept)]
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        os.unlink(name, dir_fd=folder)
        return []


def _replace(target: Tree, path: str, now: Node | None, stage: int, name: str, kept: str) -> list[_Undo]:
    """Move what was made to its path; return what undoes that, if what was there is `kept`."""
    with target.parent(path) as (folder, last):
        if now is not None and kept:
            try:
                os.link(last, kept, src_dir_fd=folder, dst_dir_fd=stage, follow_symlinks=False)
            except OSError:  # It is another file system, or one without hard links.
                kept = ""
        _move(stage, name, folder, last)
    if now is not None and not kept:
        return []
    return [lambda: _put_back(target, path, stage, "" if now is None else kept)]


def _put_back(target: Tree, path: str, stage: int, kept: str) -> None:
    with target.parent(path) as (folder, name):
        node = node_in(folder, name)
        if kept:
            os.rename(kept, name, src_dir_fd=stage, dst_dir_fd=folder)
        elif node is not None:
            (os.rmdir if node.kind == "folder" else os.unlink)(name, dir_fd=folder)


def _make_again(target: Tree, path: str, facts: os.stat_result) -> None:
    with target.parent(path) as (folder, name):
        _make_folder(folder, name, facts.st_mode & 0o777, (facts.st_uid, facts.st_gid) if os.geteuid() == 0 else None)


def _move(stage: int, name: str, folder: int, last: str) -> None:
    try:
        os.rename(name, last, src_dir_fd=stage, dst_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # Another file system is mounted there.
        facts = os.stat(name, dir_fd=stage, follow_symlinks=False)
        if Node.of(facts).kind == "folder":
            _make_folder(folder, last, facts.st_mode & 0o777, (facts.st_uid, facts.st_gid))
            return
        beside = f".coderoom-{secrets.token_hex(8)}"
        if Node.of(facts).kind == "link":
            os.symlink(os.readlink(name, dir_fd=stage), beside, dir_fd=folder)
        else:
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=stage)
            write_file(source, folder, beside, facts.st_mode & 0o777, (facts.st_uid, facts.st_gid))
        os.rename(beside, last, src_dir_fd=folder, dst_dir_fd=folder)


@contextlib.contextmanager
def _staging(target: Tree) -> Iterator[int]:
    """A folder for files that are not complete yet, in the same file system."""
    name = f".coderoom-{secrets.token_hex(8)}"
    os.mkdir(name, 0o700, dir_fd=target.fd)
    try:
        with target.opened(name) as stage:
            try:
                yield stage
            finally:
                for left in names_in(stage):
                    node = node_in(stage, left)
                    (os.rmdir if node is not None and node.kind == "folder" else os.unlink)(left, dir_fd=stage)
    finally:
        os.rmdir(name, dir_fd=target.fd)


def owners_in(target: Tree) -> Callable[[str], Owner | None]:
    """Whom what is written to a folder is to belong to: whom it has belonged to, or the owner of the folder."""
    facts = os.fstat(target.fd)

    def owner(path: str) -> Owner | None:
        if os.geteuid() != 0:
            return None
        with contextlib.suppress(OSError), target.parent(path) as (folder, name):  # It is new, or its folder is.
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            return found.st_uid, found.st_gid
        return facts.st_uid, facts.st_gid

    return owner


def as_owner_of(folder: int) -> contextlib.AbstractContextManager[None]:
    """Use files as the owner of a folder, in this thread: root itself may not exist there."""
    facts = os.fstat(folder)
    return _as(facts.st_uid, facts.st_gid)


@contextlib.contextmanager
def _as(user: int, group: int) -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    group, user = linux.libc("setfsgid", group), linux.libc("setfsuid", user)
    try:
        yield
    finally:
        linux.libc("setfsuid", user)
        linux.libc("setfsgid", group)
