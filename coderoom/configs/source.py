"""From what a person writes on the command line to the bytes of a file: a path, or the name of a shipped team."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from coderoom.configs.locations import nearest
from coderoom.errors import RequestError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["MAX_BYTES", "Source", "find_source", "shipped_sources"]

MAX_BYTES = 4 * 1024 * 1024
"""How large a file may be that is read as a document."""

_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Source:
    """The bytes of a file and what to call it.

    Attributes:
        name: The path as it was given, or the shipped team's name.
        data: At most one byte more than a document may have.
        is_json: Whether it is read as JSON rather than as YAML.
    """

    name: str
    data: bytes
    is_json: bool = False


def find_source(path_or_name: str | Path) -> Source:
    """Read the file that is meant.

    Args:
        path_or_name: A path, or the name of a shipped team: a text without a separator and without a suffix.

    Returns:
        The file's bytes.

    Raises:
        RequestError: There is no such team or file, or it cannot be read.
    """
    text = str(path_or_name)
    if looks_like_path(text):
        return _read(Path(text), text)
    shipped = _shipped_files()
    if text in shipped:
        return _read(shipped[text], text)
    raise RequestError(_unknown_name(text, shipped))


def looks_like_path(text: str) -> bool:
    """Say whether a text means a file rather than a name."""
    return "/" in text or "\\" in text or has_suffix(text)


def has_suffix(text: str) -> bool:
    """Say whether a text ends as the name of a document does."""
    return text.lower().endswith(_SUFFIXES)


def shipped_sources() -> dict[str, Source]:
    """Read all shipped teams, by name and sorted."""
    return {name: _read(file, name) for name, file in _shipped_files().items()}


def _read(file: Path | Traversable, name: str) -> Source:
    try:
        if file.is_dir():
            raise OSError("it is a directory, and a file was expected")
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise RequestError(f"there is no file {name!r}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise RequestError(f"the file {name!r} cannot be read: {reason}") from None
    return Source(name, data, is_json=name.lower().endswith(".json"))


def _shipped_files() -> dict[str, Traversable]:
    folder = resources.files("coderoom.configs") / "shipped"
    if not folder.is_dir():
        return {}
    files = {file.name.removesuffix(".yaml"): file for file in folder.iterdir() if file.name.endswith(".yaml")}
    return dict(sorted(files.items()))


def _unknown_name(name: str, shipped: dict[str, Traversable]) -> str:
    parts = [f"there is no shipped team {name!r}"]
    close = nearest(name, shipped, 3)
    if close:
        parts.append("did you mean " + " or ".join(repr(match) for match in close) + "?")
    if shipped:
        parts.append("the shipped teams are " + ", ".join(shipped))
    if name and Path(name).exists():
        parts.append(f"for the file of that name, write './{name}'")
    else:
        parts.append("a file of your own is named with its suffix, .yaml or .json")
    return "; ".join(parts)
