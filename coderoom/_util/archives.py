"""Tar archives that others have sent, which may have anything in them. Used by the service and the engine `remote`."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO, BinaryIO, Self


class _Member(tarfile.TarInfo):
    """A member whose size is none of the ways to send the reader back."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.size < 0:
            raise tarfile.ReadError("a member has a negative size")
        return found


def members_of(file: IO[bytes]) -> Iterator[tuple[tarfile.TarInfo, BinaryIO | None]]:
    """The members of an archive that is not compressed, and the contents of its plain files.

    What may be larger than the archive has no content: sparse files. A compressed archive is none, too.

    Raises:
        tarfile.TarError: It is no archive.
    """
    end = -1
    try:
        with tarfile.open(fileobj=file, mode="r:", tarinfo=_Member) as archive:
            for member in archive:
                if member.size < 0 or member.offset_data <= end:
                    raise tarfile.ReadError("a member has a wrong size")
                end = member.offset_data
                is_plain = member.isfile() and not member.issparse()
                yield member, archive.extractfile(member) if is_plain else None  # type: ignore[misc]
                archive.members.clear()  # type: ignore[attr-defined]
    except (ValueError, OverflowError, RecursionError, EOFError) as error:
        raise tarfile.ReadError(f"a header cannot be read ({type(error).__name__})") from error
