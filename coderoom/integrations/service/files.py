"""Files of a box, as clients read and write them. Code may make links in the folder at any moment."""

from __future__ import annotations

import asyncio
import io
import tarfile
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, BinaryIO, Final

from starlette.requests import Request

from coderoom._util.archives import members_of
from coderoom._util.files import name_inside, open_inside, remove_inside, stats_inside, write_inside
from coderoom.errors import RequestError
from coderoom.integrations.service.boxes import Box
from coderoom.integrations.service.failures import NotFoundError

SECONDS: Final = 3_600.0
"""How long a client may take to read files."""
_PART: Final = 256 * 1024
_PIECE_SECONDS: Final = 30.0
_IN_MEMORY: Final = 1024 * 1024
_MOST_FILES: Final = 20_000


def folder_of(box: Box) -> Path:
    """The folder of a box.

    Raises:
        RequestError: It has none.
    """
    if box.folder is None:
        raise RequestError("This sandbox has no files; make one with files=true.")
    return box.folder


def files_of(box: Box) -> list[tuple[str, int, float]]:
    """The names of the files, their sizes, and when they were changed, in seconds since 1970."""
    return [(name, facts.st_size, facts.st_mtime) for name, facts in stats_inside(folder_of(box))]


def list_files(box: Box) -> list[dict[str, Any]]:
    """The files, as clients are told; the `version` changes whenever the file does."""
    return [
        {
            "name": name,
            "size": facts.st_size,
            "modified": facts.st_mtime,
            "version": f"{facts.st_ino}-{facts.st_ctime_ns}",
        }
        for name, facts in stats_inside(folder_of(box))
    ]


def opened(box: Box, path: str) -> BinaryIO:
    """Open a file.

    Raises:
        NotFoundError: There is none.
    """
    try:
        return open_inside(folder_of(box), name_inside(path))
    except OSError as error:
        raise NotFoundError(f"The file cannot be read: {error.strerror}.") from error


def write(box: Box, path: str, file: BinaryIO) -> None:
    """Write a file."""
    name = name_inside(path)
    try:
        write_inside(folder_of(box), name, file)
    except OSError as error:
        raise RequestError(f"The file {path!r:.200} cannot be written: {error.strerror}.") from error


def remove(box: Box, path: str) -> None:
    """Remove a file, or a folder with all that is in it."""
    try:
        remove_inside(folder_of(box), name_inside(path))
    except OSError as error:
        raise NotFoundError(f"The file cannot be removed: {error.strerror}.") from error


async def received(request: Request, box: Box) -> BinaryIO:
    """The body of a request in a temporary file.

    Raises:
        RequestError: It does not fit in the sandbox's disk.
    """
    # Other files may arrive at the same time: before they are written, nothing else counts them.
    before = box.arriving - box.arrived
    room = box.sandbox.limits.disk_bytes
    if not box.apart:  # Whose files are in memory, of which there is no more than that.
        room -= sum(size for _, size, _ in await box.in_thread(files_of))
    file = _Arriving(box)
    try:
        pieces = aiter(request.stream())
        while True:
            async with asyncio.timeout(_PIECE_SECONDS):
                piece = await anext(pieces, None)
            if piece is None:
                break
            file.count(len(piece))
            if before + box.arrived > room:
                raise RequestError(f"The sandbox may have {box.sandbox.limits.disk_bytes:,} bytes of files.")
            await asyncio.to_thread(file.write, piece) if len(piece) > _PART else file.write(piece)
        file.seek(0)
    except BaseException as error:
        file.forget()
        file.close()
        if isinstance(error, TimeoutError):
            raise RequestError(f"Nothing has come of the file for {_PIECE_SECONDS:g} s.") from None
        raise
    return file  # type: ignore[return-value]


class _Arriving(tempfile.SpooledTemporaryFile[bytes]):
    """A file that a client sends to a box, which counts it until it is closed."""

    def __init__(self, box: Box) -> None:
        super().__init__(_IN_MEMORY)
        self._box, self._size = box, 0

    def count(self, size: int) -> None:
        """Count a piece."""
        self._size += size
        self._box.arriving += size
        self._box.arrived += size

    def forget(self) -> None:
        """Say that it is not going to be written."""
        self._box.arrived -= self._size

    def close(self) -> None:
        self._box.arriving -= self._size
        self._size = 0
        super().close()

    def __exit__(self, *_: object) -> None:
        self.close()


async def parts_of(file: BinaryIO) -> AsyncGenerator[bytes]:
    """The content of a file piece by piece; it is closed at the end."""
    with file:
        while piece := await asyncio.to_thread(file.read, _PART):
            yield piece


def pack(box: Box, names: list[str] | None) -> BinaryIO:
    """A tar archive of files, in a temporary file; those that are gone are left out."""
    root = folder_of(box)
    file: Any = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (the caller closes it)
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in names if names is not None else [name for name, _, _ in files_of(box)]:
            try:
                source = open_inside(root, name_inside(name))
            except OSError:
                continue  # It was removed meanwhile.
            with source:
                source.seek(0, io.SEEK_END)
                size = source.tell()
                source.seek(0)
                facts = tarfile.TarInfo(name)
                facts.size = size
                archive.addfile(facts, source)
    file.seek(0)
    return file  # type: ignore[no-any-return]


def unpack(box: Box, file: BinaryIO) -> None:
    """Write the files of a tar archive.

    Raises:
        RequestError: It is none, it has other things than files, or they do not fit.
    """
    root = folder_of(box)
    try:
        for number, (member, content) in enumerate(members_of(file)):
            if number >= _MOST_FILES:
                raise RequestError(f"An archive may have {_MOST_FILES:,} files.")
            if member.isdir():
                continue
            if content is None:
                raise RequestError(f"{member.name!r:.200} is not a plain file.")
            write_inside(root, name_inside(member.name), content)
    except tarfile.TarError as error:
        raise RequestError(f"This is not a tar archive: {error}.") from error
    except OSError as error:
        raise RequestError(f"The archive cannot be written: {error.strerror}.") from error
