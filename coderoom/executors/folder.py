"""Writing files into a folder whose content is under somebody else's hands: links in it lead nowhere."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["write_inside"]

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | getattr(os, "O_CLOEXEC", 0)


def write_inside(root: Path, name: str, data: bytes) -> Path:
    """Write a file in one step, and the folders above it.

    Code may put links in the way at any moment, also between two looks at a path. So no path is looked at: each folder
    is opened from the one above it, and a link is an error. Where root works for somebody else, the files are theirs.

    Args:
        root: The folder. What leads to it is trusted.
        name: The file's name in there, with `/` between the parts and no `..`.
        data: What to write.

    Returns:
        The file.

    Raises:
        OSError: It cannot be written, for instance since a part of the name is a link.
    """
    *folders, last = PurePosixPath(name).parts
    if os.open not in os.supports_dir_fd:  # Windows, where making links takes rights that code does not have.
        path = root.joinpath(*folders, last)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_opened(str(root), None))
        facts = os.fstat(folder)
        owner = (facts.st_uid, facts.st_gid) if os.geteuid() == 0 else None
        for part in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
                if owner is not None:
                    os.chown(part, *owner, dir_fd=folder, follow_symlinks=False)
            folder = stack.enter_context(_opened(part, folder))
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
def _opened(name: str, above: int | None) -> Iterator[int]:
    fd = os.open(name, _FOLDER if above is None else _FOLDER | _NO_LINK, dir_fd=above)
    try:
        yield fd
    finally:
        os.close(fd)
