"""Files in a workspace, whose code may make links at any moment. Used for all that the host reads and writes there."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import uuid
from collections.abc import Container, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

from coderoom.errors import RequestError

_WORKSPACE = "/workspace/"
_DEEPEST: Final = 64
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Make a `RequestError` of what the file system refuses, and of a file that is not text; `what` cannot be done."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or error if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RequestError(f"{what}: {why}.") from error


def name_inside(name: str) -> str:
    """A path in the workspace that somebody gave, without `..` and the workspace's own path.

    Raises:
        RequestError: It is not in the workspace.
    """
    inside = os.path.normpath(name.removeprefix(_WORKSPACE)) if name else "."
    if inside.startswith("/") or inside.split("/")[0] in (".", "..") or "\0" in inside or not _is_encodable(inside):
        raise RequestError(f"Filename is not in the workspace: {name!r}. Name a file inside the work directory.")
    return inside


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def open_inside(root: Path, name: str) -> BinaryIO:
    """Open a plain file whose folders are not links, as `write_inside` writes it.

    Raises:
        OSError: It cannot be read.
        RequestError: It is not a plain file.
    """
    *folders, last = PurePosixPath(name).parts
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_opened(os.open(root, _ROOT)))
        for part in folders:
            folder = stack.enter_context(_opened(os.open(part, _FOLDER, dir_fd=folder)))
        # A pipe without a writer would wait.
        file = open(os.open(last, _OLD, dir_fd=folder), "rb")  # noqa: PTH123, SIM115 (a descriptor, which is returned)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise RequestError(f"{name!r} is not a plain file.")
    return file


def read_inside(root: Path, name: str, most: int) -> bytes:
    """Read a file as `open_inside` opens it.

    Raises:
        OSError: It cannot be read.
        RequestError: It has more bytes than `most`, or is not a plain file.
    """
    with open_inside(root, name) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise RequestError(f"The file {name!r} has {size:,} bytes, and the limit is {most:,}.")
        return file.read(most)


def files_inside(root: Path) -> Iterator[tuple[str, int]]:
    """The plain files of a folder by their paths in it, without those behind links, and their sizes."""
    return ((name, facts.st_size) for name, facts in stats_inside(root))


def stats_inside(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The plain files of a folder by their paths in it, without those behind links, and what is known of them.

    Folders are opened relative to the one above them, at most 64 deep.
    """
    root = root.resolve()  # It may be a link, unlike what is in it.
    for folder, folders, names, descriptor in os.fwalk(root):
        above = PurePosixPath(folder).relative_to(root)
        if len(above.parts) >= _DEEPEST:
            folders.clear()
        for name in names:
            with contextlib.suppress(OSError):
                facts = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(facts.st_mode):
                    yield str(above / name), facts


def remove_inside(root: Path, name: str) -> None:
    """Remove a file, a link, or a folder with all that is in it; the folders above it are not links.

    Raises:
        OSError: It cannot be removed.
    """
    *folders, last = PurePosixPath(name).parts
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_opened(os.open(root, _ROOT)))
        for part in folders:
            folder = stack.enter_context(_opened(os.open(part, _FOLDER, dir_fd=folder)))
        if stat.S_ISDIR(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(last, dir_fd=folder)
        else:
            os.unlink(last, dir_fd=folder)


def copy_folder(source: Path, target: Path, left_out: Container[str] = ()) -> None:
    """Copy a folder with its files, holes in them, links and modes; without other things such as pipes.

    No link is followed, also none that code makes meanwhile.

    Args:
        source: The folder, whose own path is trusted.
        target: A path where nothing is.
        left_out: Names that are not copied.

    Raises:
        OSError: Something cannot be read or written.
    """

    def fail(error: OSError) -> None:
        raise error

    target.mkdir(parents=True)
    root = source.resolve()  # It may be a link, unlike what is in it.
    for folder, folders, names, descriptor in os.fwalk(root, onerror=fail):
        folders[:] = [name for name in folders if name not in left_out]
        there = target / Path(folder).relative_to(root)
        for name in (*folders, *(name for name in names if name not in left_out)):
            facts = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISLNK(facts.st_mode):
                (there / name).symlink_to(os.readlink(name, dir_fd=descriptor))
            elif stat.S_ISDIR(facts.st_mode):
                (there / name).mkdir(stat.S_IMODE(facts.st_mode) | stat.S_IRWXU)
            elif stat.S_ISREG(facts.st_mode):
                _copy_file(os.open(name, _OLD, dir_fd=descriptor), there / name)


def _copy_file(source: int, target: Path) -> None:
    with open(source, "rb", 0) as old, target.open("xb", 0) as new:
        facts = os.fstat(source)
        if not stat.S_ISREG(facts.st_mode):
            return
        new.truncate(facts.st_size)
        offset = 0
        while offset < facts.st_size:
            try:
                offset = os.lseek(old.fileno(), offset, os.SEEK_DATA)
            except OSError:  # There is nothing but a hole.
                break
            end = os.lseek(old.fileno(), offset, os.SEEK_HOLE)
            new.seek(offset)
            while offset < end and (count := os.sendfile(new.fileno(), old.fileno(), offset, end - offset)):
                offset += count
            if offset < end:  # It has become shorter.
                break
        os.fchmod(new.fileno(), stat.S_IMODE(facts.st_mode) & 0o777)
        os.utime(new.fileno(), ns=(facts.st_atime_ns, facts.st_mtime_ns))


def write_inside(root: Path, name: str, data: bytes | BinaryIO) -> Path:
    """Write a file atomically, and create its folders.

    Code may create links at any moment, also between a check and the write. So each folder is opened relative to the
    one above it, and a link is an `OSError`. If root works in another user's folder, the files belong to that user.
    The path of the root is trusted; the name has `/` and no `..`.
    """
    *folders, last = PurePosixPath(name).parts
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_opened(os.open(root, _ROOT)))
        facts = os.fstat(folder)
        owner = (facts.st_uid, facts.st_gid) if os.geteuid() == 0 else None
        for part in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
                if owner is not None:
                    os.chown(part, *owner, dir_fd=folder, follow_symlinks=False)
            folder = stack.enter_context(_opened(os.open(part, _FOLDER, dir_fd=folder)))
        fresh = f".{uuid.uuid4().hex}.new"
        try:
            with open(os.open(fresh, _NEW, 0o666, dir_fd=folder), "wb") as file:  # noqa: PTH123 (a descriptor)
                if isinstance(data, bytes):
                    file.write(data)
                else:
                    shutil.copyfileobj(data, file)
                if owner is not None:
                    os.fchown(file.fileno(), *owner)
            os.replace(fresh, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh, dir_fd=folder)
            raise
    return root.joinpath(*folders, last)


@contextlib.contextmanager
def _opened(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    """A descriptor of a folder that is not a link."""
    with _opened(os.open(folder, _FOLDER)) as found:
        yield found
