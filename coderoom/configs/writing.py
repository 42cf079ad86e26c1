"""Writing data as YAML or JSON, and files whole or not at all, never over somebody else's."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from coderoom.configs.reading import MAX_BYTES
from coderoom.configs.yaml import core_value
from coderoom.errors import RequestError

__all__ = ["replace_file", "to_json", "to_yaml", "write_made"]


_LONG = 100
_NO_BLOCK = re.compile(
    r"\A\s|[^\S \n]|[^\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]| +$", re.M
)
"""Texts that would not come back the same from a literal block, or that nobody could read in one."""


def to_json(data: Any) -> str:
    """Write JSON, indented."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_yaml(data: Any) -> str:
    """Write YAML, in which long texts are literal blocks."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 1_000_000  # a folded text is hard to edit
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.ignore_aliases = lambda *_: True
    stream = io.StringIO()
    yaml.dump(_styled(data), stream)
    return stream.getvalue()


def _styled(value: Any) -> Any:
    if isinstance(value, dict):
        return {_styled_text(key, is_key=True): _styled(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_styled(inner) for inner in value]
    return _styled_text(value) if isinstance(value, str) else value


def _styled_text(text: str, *, is_key: bool = False) -> str:
    if not is_key and ("\n" in text or len(text) > _LONG) and not _NO_BLOCK.search(text):
        block: str = LiteralScalarString(text)
        return block
    if not text.isprintable() or (text and core_value(text) is not text):
        quoted: str = DoubleQuotedScalarString(text)
        return quoted
    return text


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
