"""Writing files whole or not at all, and never over somebody else's."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coderoom.configs._source import MAX_BYTES
from coderoom.errors import RequestError

__all__ = ["replace_file", "write_own"]


def replace_file(path: Path, text: str) -> None:
    """Write a file in one step, or not at all.

    Args:
        path: The file. What is there is replaced; a link stays one.
        text: What it will hold.

    Raises:
        RequestError: It cannot be written.
    """
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists() and not target.is_file():
            raise RequestError(f"{str(path)!r} is not a file that can be replaced")
        temporary.write_text(text, encoding="utf-8", newline="\n")
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    except OSError as error:
        raise RequestError(f"the file {str(path)!r} cannot be written: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_own(path: Path, data: Any, is_own: Callable[[Any], bool], *, force: bool = False) -> None:
    """Write JSON to a new file, or over one that was written by the same verb.

    Args:
        path: The file.
        data: What it will hold.
        is_own: Says whether the content of a file is of the same verb.
        force: Replace whatever is there.

    Raises:
        RequestError: Something else is there, or it cannot be written.
    """
    from coderoom.configs._render import to_json

    if not force and path.is_file() and not is_own(_content(path)):
        raise RequestError(f"the file {str(path)!r} holds something else; --force replaces it")
    replace_file(path, to_json(data))


def _content(path: Path) -> Any:
    try:
        with path.open("rb") as stream:
            return json.loads(stream.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
