"""Writing files into a folder that code may change at any moment: links in it are never followed."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["keep_named_file", "write_inside"]

_WORKSPACE = "/workspace/"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def keep_named_file(root: Path, name: str, code: str) -> str:
    """Write a block to the file that it names.

    Args:
        root: The work directory.
        name: The file's name, perhaps by its place in the sandbox.
        code: The block.

    Returns:
        Why the file cannot be written; empty if it was.
    """
    inside = os.path.normpath(name.removeprefix(_WORKSPACE)) if name else "."
    if inside.startswith("/") or inside.split("/")[0] in (".", "..") or "\0" in inside:
        return f"Filename is not in the workspace: {name!r}. Name a file inside the work directory."
    try:
        write_inside(root, inside, code.encode("utf-8", "replace"))
    except OSError as error:
        return (
            f"Filename is not in the workspace: the file {name!r} cannot be written ({error.strerror or error}). "
            "Name a plain file whose folders are not links."
        )
    return ""


def write_inside(root: Path, name: str, data: bytes) -> Path:
    """Write a file in one step, and create the folders above it.

    Code may create links at any moment, also between two looks at a path. So each folder is opened relative to the one
    above it, and a link is an error. If root works in a folder of another user, the files belong to that user.

    Args:
        root: The folder. The path to it is trusted.
        name: The file's name in it, with `/` between the parts and no `..`.
        data: The content.

    Returns:
        The file.

    Raises:
        OSError: It cannot be written, for instance because a part of the name is a link.
    """
    *folders, last = PurePosixPath(name).parts
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_opened(os.open(root, _FOLDER)))
        facts = os.fstat(folder)
        owner = (facts.st_uid, facts.st_gid) if os.geteuid() == 0 else None
        for part in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
                if owner is not None:
                    os.chown(part, *owner, dir_fd=folder, follow_symlinks=False)
            folder = stack.enter_context(_opened(os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)))
        fresh = f".{uuid.uuid4().hex}.new"
        try:
            with open(os.open(fresh, _NEW, 0o666, dir_fd=folder), "wb") as file:  # noqa: PTH123 (a descriptor)
                file.write(data)
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
