"""Finds team files, and reads them as documents: plain data, with positions.

`coderoom init` and all that writes team files write them from here.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coderoom._util.text import MASK
from coderoom.configs.variables import is_secret_key
from coderoom.configs.yaml import Location, Mark, Reader, nearest, show, show_key
from coderoom.errors import ConfigError, Problem, RequestError
from coderoom.models.services import MODEL_FORMS, REPLAY, has_suffix, is_model_text, service_of

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


MAX_BYTES = 4 * 1024 * 1024
"""The largest file that is read as a document."""


@dataclass(frozen=True, slots=True)
class Source:
    """The name of a file, as the user wrote it, and its content, up to one byte more than the largest document."""

    name: str
    data: bytes
    is_json: bool = False

    def refers_to(self, variable: str) -> bool:
        """Whether it names a variable of the environment."""
        return variable.encode() in self.data


def find_source(path_or_name: str | Path | Source) -> Source:
    """Read a file, or a shipped team, whose name has neither a separator nor a suffix; a `Source` is read already."""
    if isinstance(path_or_name, Source):
        return path_or_name
    text = str(path_or_name)
    if looks_like_path(text):
        return _read(Path(text), text)
    shipped = _shipped_files()
    if text in shipped:
        return _read(shipped[text], text)
    if text and Path(text).is_dir():
        return _read(Path(text), text)  # Refuses it.
    parts = [f"there is no shipped team {text!r}"]
    close = nearest(text, shipped, 3)
    if close:
        parts[0] += f" (did you mean {' or '.join(map(repr, close))}?)"
    if shipped:
        parts.append("the shipped teams are " + ", ".join(shipped))
    if text and Path(text).exists():
        parts.append(f"for the file of that name, write './{text}'")
    else:
        parts.append("a file of your own is named with its suffix, .yaml or .json")
    raise RequestError("; ".join(parts))


def looks_like_path(text: str) -> bool:
    """Whether a text is a path rather than a name."""
    return "/" in text or "\\" in text or has_suffix(text)


def shipped_sources() -> dict[str, Source]:
    """Read all shipped teams, sorted by name."""
    return {name: _read(file, name) for name, file in _shipped_files().items()}


def _read(file: Path | Traversable, name: str) -> Source:
    try:
        if file.is_dir():
            raise OSError(f"it is a folder, and a file in it was expected, as in {Path(name) / 'FILE.yaml'}")
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        beside = {each.stem: str(each) for each in Path(name).parent.glob("*") if has_suffix(each.name)}
        close = nearest(Path(name).stem, beside)
        hint = f"; did you mean {beside[close[0]]!r}?" if close else ""
        raise RequestError(f"there is no file {name!r}{hint}") from None
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


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content as plain data.

    Attributes:
        file: The name of the file in problems.
        data: Mappings, lists, texts, numbers, booleans and `None`; no two of its parts are the same object.
        marks: The position of each value: that of its key in a mapping, its own in a list.
        problems: Mistakes of the text that did not stop the reading, such as duplicate keys.
    """

    file: str
    data: Any
    marks: Mapping[Location, Mark]
    problems: tuple[Problem, ...] = ()

    def mark(self, path: Location) -> Mark:
        """The position of a value, or of the nearest one above it."""
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, Mark(1, 1))

    def under(self, key: str) -> Document:
        """A document with this one's content under a key."""
        marks = {(key, *path): mark for path, mark in self.marks.items()}
        return Document(self.file, {key: self.data}, {(): self.mark(()), **marks}, self.problems)

    def distinct_problems(self, found: Sequence[tuple[Location, str]]) -> list[Problem]:
        """Make problems of messages about values, in the order of the file.

        An alias has the position of its anchor: the message is reported for the first use only.
        """
        unique: dict[tuple[Mark, str], Location] = {}
        for path, message in found:
            unique.setdefault((self.mark(path), message), path)
        ordered = sorted(unique.items(), key=lambda item: item[0][0])
        return [self.problem(path, message) for (_, message), path in ordered]

    def problem(self, path: Location, message: str) -> Problem:
        """Make a problem of the value at a location."""
        return Problem(" ".join(message.splitlines()), self.file, self.mark(path).line, show(path))


def read_document(source: Source) -> Document:
    """Read a file as JSON or YAML, without keys at the top that begin with `x-`, which only carry anchors."""
    text = _decode(source)
    reader = Reader(source.name)
    data = reader.read_json(text) if source.is_json else reader.read_yaml(text)
    if data is None:
        raise ConfigError([*reader.problems, Problem("the file is empty", source.name)])
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if not key.startswith("x-")}
    return Document(source.name, data, reader.marks, tuple(reader.problems))


def is_recording(source: Source) -> bool:
    """Whether a file begins as a recording of a run's model traffic does."""
    return source.data.startswith(b'{"coderoom": "recording"')


def read_component(source: Source) -> Document:
    """Read a file that must describe a component, which is a mapping."""
    as_model = f"this is a recording of a model's replies, which is used as --model {REPLAY}:{source.name}"
    if is_recording(source):
        raise ConfigError([Problem(as_model, source.name, 1)])
    document = read_document(source)
    if isinstance(document.data, dict):
        if "replies" in document.data and "provider" not in document.data:
            raise ConfigError([*document.problems, document.problem((), as_model)])
        return document
    found = "a list" if isinstance(document.data, list) else show_key(str(document.data))
    message = f"expected a mapping with the keys 'provider' and 'config' at the top of the file, got {found}"
    raise ConfigError([*document.problems, document.problem((), message)])


def _decode(source: Source) -> str:
    data = source.data
    if len(data) > MAX_BYTES:
        raise ConfigError([Problem(f"the file is larger than {MAX_BYTES // 1024**2} MiB", source.name)])
    even, odd = data[0:8:2], data[1:8:2]
    is_wide = len(odd) > 1 and ((all(even) and not any(odd)) or (all(odd) and not any(even)))
    if is_wide or data.startswith((b"\xff\xfe", b"\xfe\xff")):
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
        message = f"the file is not UTF-8 text: byte {error.start} is 0x{byte:02x}; save it as UTF-8"
        raise ConfigError([Problem(message, source.name, line)]) from None
    if not text.strip():
        raise ConfigError([Problem("the file is empty", source.name)])
    return text


def read_team(path_or_name: str | Path) -> dict[str, Any]:
    """Read a team file without checking it, for showing it.

    Args:
        path_or_name: As for `load_team`.

    Returns:
        The content, with references to variables as they are, and without the values of keys and passwords.

    Raises:
        ConfigError: It is not YAML or JSON, or does not describe a component.
        RequestError: There is no such file or team.
    """
    document = read_component(find_source(path_or_name))
    if not isinstance(document.data, dict) or not isinstance(document.data.get("provider"), str):
        raise ConfigError([document.problem((), "expected a team (a mapping with 'provider' and 'config')")])
    return cast("dict[str, Any]", _masked(document.data))


def _masked(data: Any) -> Any:
    if isinstance(data, dict):
        return {
            key: MASK if isinstance(value, str) and is_secret_key(key) and "${" not in value else _masked(value)
            for key, value in data.items()
        }
    return [_masked(value) for value in data] if isinstance(data, list) else data


def write_starter(path: Path, team: str | None = None, model: str | None = None, *, force: bool = False) -> None:
    """Write a team file to start from, with comments.

    Args:
        path: The file.
        team: The shipped team to copy; `None`: a coder and a reviewer.
        model: The name of the default model; `None`: as it is in the team.
        force: Replace a file.

    Raises:
        RequestError: There is such a file, or no such team, or the file cannot be written.
    """
    if not has_suffix(path.name) or path.name.endswith(".json"):
        raise RequestError(f"the file {str(path)!r} must end with .yaml: it has comments")
    if team is None:
        text = resources.files("coderoom.configs").joinpath("starter.yaml").read_text("utf-8")
    else:
        source = find_source(team)
        if looks_like_path(team):
            raise RequestError(f"{team!r} is not a shipped team; copy that file instead")
        text = source.data.decode()
    if model is not None:
        known = service_of(model) or has_suffix(model) or model.startswith(REPLAY)
        if model.endswith(":") or (not known and (is_model_text(model) or not re.fullmatch(r"\w\S*", model))):
            raise RequestError(f"there is no model {model!r}; expected {MODEL_FORMS}, or the name of an OpenAI model")
        if re.search(r"[{}$\n]|:\s|\s#", model):
            raise RequestError(f"the model {model!r} cannot be written as a default; expected {MODEL_FORMS}")
        text = text.replace("${CODEROOM_MODEL:-gpt-4o}", f"${{CODEROOM_MODEL:-{model}}}")
    text = text.replace(" team.yaml ", f" {path} ")
    write_file(path, text, force=force)


def write_file(path: Path, text: str, *, force: bool = True) -> None:
    """Write a file in one step, or not at all; a link stays a link. Without `force`, no file may be there."""
    if path.exists() and not force:
        raise RequestError(f"the file {str(path)!r} is there already; --force replaces it")
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
