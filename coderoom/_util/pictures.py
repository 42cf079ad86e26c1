"""Which files are pictures that may be shown: by what they begin with, and not by their name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BEGINNINGS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}
HEAD_BYTES: Final = 32
"""How many bytes of a file are needed to know."""


def picture_type(head: bytes) -> str | None:
    """The media type of a picture, by its first bytes; `None` if it is not PNG, JPEG, GIF or WebP."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for kind, begins in _BEGINNINGS.items() if head.startswith(begins)), None)
