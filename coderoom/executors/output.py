"""Keeping output readable: bounded text for a model, whole text in a file."""

from __future__ import annotations

import uuid
from pathlib import Path

from coderoom.executors.files import write_inside

__all__ = ["bound_output", "save_output"]

_FOLDER = ".coderoom"
_LEAST = 200


def bound_output(
    text: str, limit: int, *, whole: Path | None = None, total: int | None = None, partly: bool = False
) -> str:
    """Cut a text in its middle so that it fits.

    Args:
        text: The text.
        limit: How many characters may stay. The notice of what was left out counts among them, unless it is longer
            than half of the limit, as it may be with a long path.
        whole: The file that has the whole text; it is named in the notice.
        total: How many characters the whole text has, if `text` is not all of it.
        partly: Whether the file too has only the beginning and the end, if more of them.

    Returns:
        The text itself if it fits, else its beginning and its end with a line between them that says what is missing.

    Raises:
        ValueError: The limit is below 200.
    """
    if limit < _LEAST:
        raise ValueError(f"limit={limit!r} is too small: at least {_LEAST} characters are needed")
    if len(text) <= limit:
        return text
    full = max(len(text), total or 0)
    # The count of what is left out is at most as long as the count of all, so the size is known before the cut.
    room = max(limit - len(_notice(full, full, whole, partly)) - 1, limit // 2)
    head = _cut_head(text, room * 6 // 10)
    tail = _cut_tail(text, room - room * 6 // 10)
    gap = "" if head.endswith("\n") else "\n"
    return head + gap + _notice(full - len(head) - len(tail), full, whole, partly) + tail


def save_output(text: str, folder: Path) -> Path:
    """Write a whole output to a new file in the folder's `.coderoom`.

    Args:
        text: The output. What UTF-8 has no bytes for is written as `?`.
        folder: Usually the work directory, so that code can read the file too. It is made if it is not there.

    Returns:
        The file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The code may have put links there.
    return write_inside(folder, f"{_FOLDER}/output-{uuid.uuid4().hex[:12]}.txt", text.encode("utf-8", "replace"))


def _notice(left_out: int, total: int, whole: Path | None, partly: bool) -> str:
    what = "more of its beginning and its end" if partly else "the whole output"
    where = f"; {what} is in {whole}" if whole is not None else ""
    return f"[... {left_out:,} of {total:,} characters left out{where} ...]\n"


def _cut_head(text: str, size: int) -> str:
    end = text.rfind("\n", size - size // 4, size)
    return text[: end + 1] if end >= 0 else text[:size]


def _cut_tail(text: str, size: int) -> str:
    begin = len(text) - size
    start = text.find("\n", begin, begin + size // 4)
    return text[start + 1 :] if start >= 0 else text[begin:]
