"""Folders whose content may be hostile: nothing in them is reached by following a link, and nothing is endless.

Paths are relative to the folder, with `/` between names; names that are not UTF-8 are as `os.fsdecode` has them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from coderoom.sandbox.guest.copying import copy_content

Kind: TypeAlias = Literal["file", "link", "folder", "other"]
MOST_ENTRIES = 100_000
DEEPEST = 200
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 16
_BLOCK = 1 << 14
_FICLONE = 0x40049409


class TooManyError(Exception):
    """A folder has more entries than are looked at."""


@dataclass(frozen=True)
class Node:
    """What is at a path.

    Attributes:
        kind: What it is; `other` for a device, a socket or a pipe.
        mode: Its permissions.
        size: Its size in bytes.
        stamp: What differs once it was changed or replaced.
        changed: When it was changed last, by the kernel's clock, in nanoseconds.
    """

    kind: Kind
    mode: int
    size: int
    stamp: tuple[int, ...]
    changed: int

    @classmethod
    def of(cls, facts: os.stat_result) -> Node:
        """The node that `lstat` has described."""
        kinds: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "folder"}
        stamp = (facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size, facts.st_mode)
        kind = kinds.get(stat.S_IFMT(facts.st_mode), "other")
        return cls(kind, facts.st_mode & 0o777, facts.st_size, stamp, facts.st_ctime_ns)


class Tree:
    """A folder by its descriptor, which stays the caller's."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @contextlib.contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder that a path is in, and the last name; an `OSError` if a link is on the way."""
        *folders, name = path.split("/")
        current = os.dup(self.fd)
        try:
            for folder in folders:
                below = os.open(folder, _FOLDER, dir_fd=current)
                os.close(current)
                current = below
            yield current, name
        finally:
            os.close(current)

    def node(self, path: str) -> Node | None:
        """What is at a path; `None`: nothing, or it would be reached by a link."""
        try:
            with self.parent(path) as (folder, name):
                return Node.of(os.stat(name, dir_fd=folder, follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == 40:  # ELOOP
                return None
            raise

    def open(self, path: str) -> int:
        """The descriptor of a regular file."""
        with self.parent(path) as (folder, name):
            fd = os.open(name, _READ, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(22, "is not a regular file", path)
        return fd

    def link(self, path: str) -> str:
        """The target of a symbolic link."""
        with self.parent(path) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def below(self, path: str = "") -> Iterator[tuple[str, Node, int]]:
        """All that is below a folder, a folder before its contents, with the descriptor of the folder it is in.

        What is in a folder that is `is_too_deep` is left out.
        """
        with self.opened(path) as folder:
            for name in names_in(folder):
                node = node_in(folder, name)
                if node is None:
                    continue
                yield (found := joined(path, name)), node, folder
                if node.kind == "folder" and not is_too_deep(found):
                    yield from self.below(found)

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """The descriptor of a folder below, or of this one for an empty path."""
        if not path:
            yield self.fd
            return
        with self.parent(path) as (above, name):
            fd = os.open(name, _FOLDER, dir_fd=above)
        try:
            yield fd
        finally:
            os.close(fd)


def is_too_deep(folder: str) -> bool:
    """Whether what is in a folder is not looked at."""
    return folder.count("/") >= DEEPEST


def joined(path: str, name: str) -> str:
    """The path of a name in a folder."""
    return f"{path}/{name}" if path else name


def names_in(folder: int) -> list[str]:
    """The names in a folder, in order."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def node_in(folder: int, name: str) -> Node | None:
    """What is at a name in a folder."""
    try:
        return Node.of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def open_folder(path: str | os.PathLike[str]) -> int:
    """The descriptor of a folder; links on the way are followed."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def read(fd: int, most: int) -> bytes:
    """The first bytes of a file, from a descriptor that is closed then."""
    with open(fd, "rb") as file:
        return file.read(most)


def same_content(first: int, second: int) -> bool:
    """Whether two files have the same content, where zeros and holes are the same, and cost little; closes both."""
    with open(first, "rb", 0), open(second, "rb", 0):
        size, offset = os.fstat(first).st_size, 0
        if size != os.fstat(second).st_size:
            return False
        while (offset := min(_next_data(first, offset), _next_data(second, offset))) < size:
            if os.pread(first, _CHUNK, offset) != os.pread(second, _CHUNK, offset):
                return False
            offset += _CHUNK
        return True


def _next_data(fd: int, offset: int) -> int:
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError:  # There is nothing but a hole.
        return 1 << 63


def digest(fd: int) -> bytes:
    """A digest of a file, in which zeros and holes are the same, and cost little; closes it."""
    with open(fd, "rb", 0):
        size, offset = os.fstat(fd).st_size, 0
        whole = hashlib.sha256(b"%d" % size)
        while offset < size:
            try:
                offset = os.lseek(fd, offset, os.SEEK_DATA) // _BLOCK * _BLOCK
            except OSError:  # There is nothing but a hole.
                break
            block = os.pread(fd, _BLOCK, offset)
            if block.count(0) < len(block):
                whole.update(b":%d:" % offset + block)
            offset += _BLOCK
    return whole.digest()


def write_file(source: int, folder: int, name: str, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Make a file with the content of another, which shares the blocks where the file system can do that.

    `source` is closed. The file must not exist.
    """
    with contextlib.ExitStack() as closing:
        closing.callback(os.close, source)
        made = os.open(name, _WRITE, 0o600, dir_fd=folder)
        closing.callback(os.close, made)
        try:
            fcntl.ioctl(made, _FICLONE, source)
        except OSError:
            copy_content(source, made, os.fstat(source).st_size)
        if owner is not None:
            os.fchown(made, *owner)
        os.fchmod(made, mode)
