"""From the bytes of a file to plain data that knows its places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coderoom.configs.locations import Mark, Path, show, show_key
from coderoom.configs.source import MAX_BYTES, Source
from coderoom.errors import ConfigError, Problem

__all__ = ["Document", "read_component", "read_document"]


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content as plain data.

    Attributes:
        file: What to call the file in problems.
        data: Mappings, lists, texts, numbers, booleans and `None`; no two of its parts are the same object.
        marks: Where each value stands: its key in a mapping, itself in a list.
        problems: Mistakes of the text that did not stop the reading, such as a key that is there twice.
    """

    file: str
    data: Any
    marks: Mapping[Path, Mark]
    problems: tuple[Problem, ...] = ()

    def mark(self, path: Path) -> Mark:
        """Give the place of a value, or of what is nearest above it."""
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, Mark(1, 1))

    def under(self, key: str) -> Document:
        """Give a document that holds this one's content under a key."""
        marks = {(key, *path): mark for path, mark in self.marks.items()}
        return Document(self.file, {key: self.data}, {(): self.mark(()), **marks}, self.problems)

    def problem(self, path: Path, message: str) -> Problem:
        """Make a problem of the value at a path."""
        return Problem(" ".join(message.splitlines()), self.file, self.mark(path).line, show(path))


def read_document(source: Source) -> Document:
    """Read a file as JSON or YAML.

    Args:
        source: The file.

    Returns:
        Its content; keys at the top that begin with `x-` are left out, they only carry anchors.

    Raises:
        ConfigError: The file is empty, binary, too large, or not JSON or YAML.
    """
    from coderoom.configs.yaml import Reader

    text = _decode(source)
    reader = Reader(source.name)
    data = reader.read_json(text) if source.is_json else reader.read_yaml(text)
    if data is None:
        raise ConfigError([*reader.problems, Problem("the file is empty", source.name)])
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if not key.startswith("x-")}
    return Document(source.name, data, reader.marks, tuple(reader.problems))


def read_component(source: Source) -> Document:
    """Read a file whose top has to be a component.

    Args:
        source: The file.

    Returns:
        Its content, which is a mapping.

    Raises:
        ConfigError: As `read_document`, or the top is something else.
    """
    document = read_document(source)
    if isinstance(document.data, dict):
        return document
    found = "a list" if isinstance(document.data, list) else show_key(str(document.data))
    message = f"expected a mapping with the keys 'provider' and 'config' at the top of the file, got {found}"
    raise ConfigError([*document.problems, document.problem((), message)])


def _decode(source: Source) -> str:
    data = source.data
    if len(data) > MAX_BYTES:
        raise ConfigError([Problem(f"the file is larger than {MAX_BYTES // 1024**2} MiB", source.name)])
    if _is_utf16(data):
        raise ConfigError([Problem("the file is UTF-16; save it as UTF-8", source.name, 1)])
    nul = data.find(b"\0")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        raise ConfigError([Problem(f"the file is binary, with a NUL at byte {nul}; expected text", source.name, line)])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        message = f"the file is no UTF-8 text: byte {error.start} is 0x{byte:02x}; save it as UTF-8"
        raise ConfigError([Problem(message, source.name, line)]) from None
    if not text.strip():
        raise ConfigError([Problem("the file is empty", source.name)])
    return text


def _is_utf16(data: bytes) -> bool:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    even, odd = data[0:8:2], data[1:8:2]
    little_endian, big_endian = all(even) and not any(odd), all(odd) and not any(even)
    return len(odd) > 1 and (little_endian or big_endian)
