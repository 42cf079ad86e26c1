"""Writing files whole or not at all, and never over somebody else's."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coderoom.configs.source import MAX_BYTES
from coderoom.errors import RequestError

__all__ = ["replace_file", "write_made"]


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


def write_made(path: str | Path, made: Mapping[str, Any], *, force: bool = False) -> None:
    """Write what `make_gallery` or `make_schema` made, as JSON.

    Args:
        path: The file. It may be new, or hold what the same function made before.
        made: What it will hold.
        force: Replace the file, whatever it holds.

    Raises:
        RequestError: It holds something else, or cannot be written.
    """
    from coderoom.configs.render import to_json

    target = Path(path)
    if not force and target.is_file() and not _is_alike(_content(target), made):
        raise RequestError(f"the file {str(path)!r} holds something else; --force replaces it")
    replace_file(target, to_json(made))


def _is_alike(content: Any, made: Mapping[str, Any]) -> bool:
    if not isinstance(content, dict):
        return False
    names = [key for key in ("id", "$schema", "title") if key in made]
    # A gallery's name goes on with the teams that are in it.
    own, its = (str(data.get("name")).partition(" and ")[0] for data in (made, content))
    return own == its and all(content.get(key) == made[key] for key in names)


def _content(path: Path) -> Any:
    try:
        with path.open("rb") as stream:
            return json.loads(stream.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
