"""Writes teams, galleries and schemas as files.

AutoGen's dump of a team has values where the file had references to variables, and the descriptions of classes. Where
the dump still means the same, the text of the file replaces them. Secrets are left out.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from autogen_agentchat.base import Team
from autogen_core.models import ChatCompletionClient
from pydantic import SecretBytes, SecretStr
from pydantic_core import to_jsonable_python
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from coderoom._util.autogen import clients_of
from coderoom._util.text import MASK, SHORTEST_SECRET
from coderoom.configs.components import provider_of
from coderoom.configs.findings import Checked
from coderoom.configs.reading import MAX_BYTES, Document, write_file
from coderoom.configs.repairs import repair_dump
from coderoom.configs.variables import Reference, References, escape, is_secret_key
from coderoom.configs.yaml import Location, core_value, in_a_line, value_at, walk
from coderoom.errors import RequestError

_HIDDEN = object()
"""Stands for a value that may not be written."""
_TRUE, _FALSE = {"1", "true", "t", "yes", "y", "on"}, {"0", "false", "f", "no", "n", "off"}
_NO_FILE = Checked(Document("", {}, {}), References())

_origins: WeakKeyDictionary[Team | ChatCompletionClient, Checked] = WeakKeyDictionary()


def dump_team(team: Team, path: str | Path | None = None) -> str:
    """Write a team in AutoGen's component format.

    A team from `load_team` keeps what its file said: references such as `${NAME}`, descriptions and labels. A secret
    without a reference is left out. If `load_team` replaced the model, the dump has the replacement. If a part of such
    a team cannot be dumped (some clients; AutoGen's `FunctionTool` after loading), the dump is the content of the file.

    AutoGen's own dump loses arguments. This one keeps them, if necessary with CodeRoom's class of the same name: for
    `sources` of `TextMentionTermination`, and `max_retries_on_error` of `CodeExecutorAgent`. A `UserWarning` names
    those that no file can contain, such as functions.

    Args:
        team: The team.
        path: A file to write, as JSON if its name ends in `.json`. It is replaced in one step, or not at all.

    Returns:
        The text, which is YAML unless the file is JSON.

    Raises:
        RequestError: The team has a part that cannot be dumped, or the file cannot be written.
    """
    as_json = path is not None and str(path).lower().endswith(".json")
    data = _content(team)
    try:
        text = to_json(data) if as_json else to_yaml(data)
    except (TypeError, ValueError) as error:
        raise RequestError(f"the team cannot be written: {error}") from error
    if path is not None:
        write_file(Path(path), text)
    return text


def remember(made: Any, checked: Checked) -> None:
    """Remember which file a team or a model came from."""
    with contextlib.suppress(TypeError):  # A class may not be hashable.
        _origins[made] = checked


def secrets_of(made: Team | ChatCompletionClient) -> dict[str, str]:
    """The values in a team or a model from a file that must not be written elsewhere, and what replaces each.

    They are the values of the variables that the file refers to, but for CodeRoom's own, and the keys that it contains.
    """
    clients = [] if isinstance(made, ChatCompletionClient) else clients_of(made)
    return _secrets_in(made, *clients)


def known_secrets() -> dict[str, str]:
    """The same for all teams and models that were loaded from files and are in use."""
    return _secrets_in(*_origins)


def _secrets_in(*made: Team | ChatCompletionClient) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in made:
        with contextlib.suppress(TypeError, KeyError):
            origin = _origins[each]
            used = {name: value for each in origin.references.values() for name, value in each.used.items()}
            found |= {value: f"${{{name}}}" for name, value in used.items() if not name.startswith("CODEROOM_")}
            for path, value in walk(origin.data):
                is_secret = is_secret_key(str(path[-1])) if path else False
                is_secret |= "default_headers" in path or ("credentials" in path and path[-1] == "value")
                if is_secret and isinstance(value, str):
                    found.setdefault(value, MASK)
    return {value: instead for value, instead in found.items() if len(value) >= SHORTEST_SECRET}


def _content(team: Team) -> Any:
    origin = None
    with contextlib.suppress(TypeError):
        origin = _origins.get(team)
    try:
        dumped = team.dump_component().model_dump(exclude_none=True)
        lost = repair_dump(team, dumped)
        data = plain(dumped)
    except Exception as error:  # A component may raise anything.
        if origin is not None:
            return _written(origin.document.data, (), origin)
        message = f"the {type(team).__name__} has a part that cannot be dumped: {in_a_line(error)}"
        raise RequestError(message) from error
    if lost:
        warnings.warn(f"a team file cannot contain: {', '.join(lost)}", UserWarning, stacklevel=3)
    return restored(data, origin)


def plain(value: Any) -> Any:
    """Turn a dump into mappings, lists and scalars, with a marker in place of each secret."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, (SecretStr, SecretBytes)) or value == MASK:
        return _HIDDEN
    if value is None or type(value) in (str, int, float, bool):
        return value
    return to_jsonable_python(value)


def _written(value: Any, path: Location, origin: Checked) -> Any:
    """The content of the file itself, without anchors and secrets."""
    if isinstance(value, dict):
        inner = {key: _written(item, (*path, key), origin) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item is not _HIDDEN and (*path, key) not in origin.dropped}
    if isinstance(value, list):
        return [_written(item, (*path, index), origin) for index, item in enumerate(value)]
    name = path[-1] if path else ""
    is_literal = isinstance(value, str) and "${" not in value
    return _HIDDEN if is_literal and isinstance(name, str) and is_secret_key(name) else value


def restored(data: Any, origin: Checked | None) -> Any:
    """Put the references and notes of the file back into a dump, and leave out secrets."""
    origin = origin or _NO_FILE
    moved = [
        (path, reference)
        for path, reference in origin.references.items()
        if path and not _is_same(value_at(data, path), reference.value)
    ]
    return _restored(data, (), origin, moved)


def _restored(value: Any, path: Location, origin: Checked, moved: list[tuple[Location, Reference]]) -> Any:
    if isinstance(value, dict):
        notes = {}
        if path in origin.elsewhere or path in origin.as_written:
            return {"component_type": "model", **_written(value_at(origin.document.data, path), path, origin)}
        if path in origin.components:
            if value.get("provider") == provider_of(origin.components[path]):
                envelope = value_at(origin.document.data, path)
                if isinstance(envelope, str):  # A function that stands there as its source.
                    source = (*path, "config", "source_code")
                    is_same = value["config"]["source_code"] == value_at(origin.data, source)
                    return envelope if is_same else value
                notes = {key: envelope[key] for key in ("description", "label") if isinstance(envelope.get(key), str)}
            else:  # Another component has replaced the one of the file.
                origin = _NO_FILE
        inner = {key: _restored(item, (*path, key), origin, moved) for key, item in value.items()}
        return {**{key: item for key, item in inner.items() if item is not _HIDDEN}, **notes}
    if isinstance(value, list):
        items = [_restored(item, (*path, index), origin, moved) for index, item in enumerate(value)]
        return [item for item in items if item is not _HIDDEN]
    reference = origin.references.get(path)
    if reference is not None and _is_same(value, reference.value):
        return reference.raw
    name = path[-1] if path else ""
    if isinstance(value, str) or value is _HIDDEN:
        for place, other in moved:  # AutoGen moves some parts, for instance tools into a workbench.
            if place[-1] == name and _is_same(value, other.value):
                return other.raw
    if isinstance(value, str):
        if isinstance(name, str) and is_secret_key(name):
            return _HIDDEN
        return References(moved).hide(origin.references.hide(escape(value)))
    return value


def _is_same(value: Any, resolved: str) -> bool:
    """Whether a dumped value may be what pydantic made of a resolved text."""
    if value is _HIDDEN:
        return True
    if isinstance(value, bool):
        return resolved.strip().lower() in (_TRUE if value else _FALSE)
    if isinstance(value, (int, float)):
        try:
            return float(resolved) == value
        except ValueError:
            return False
    return isinstance(value, str) and value == resolved


_LONG = 100
_NO_BLOCK = re.compile(
    r"\A\s|[^\S \n]|[^\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]| +$", re.M
)
"""Texts that a literal block would change, or make unreadable."""


def to_json(data: Any) -> str:
    """Write JSON, indented."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def to_yaml(data: Any) -> str:
    """Write YAML, in which long texts are literal blocks."""
    yaml = round_trip_yaml()
    yaml.default_flow_style = False
    yaml.representer.ignore_aliases = lambda *_: True
    return yaml_text(yaml, _styled(data))


def round_trip_yaml() -> YAML:
    """What reads and writes YAML with its comments, anchors and quotes."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1_000_000  # Folded text is hard to edit.
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def yaml_text(yaml: YAML, data: Any) -> str:
    """The text that `yaml` writes."""
    stream = io.StringIO()
    yaml.dump(data, stream)
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


def write_made(path: str | Path, made: Mapping[str, Any], *, force: bool = False) -> None:
    """Write the result of `make_gallery` or `make_schema` as JSON.

    Args:
        path: The file. It may be new, or an earlier result of the same function.
        made: The new content.
        force: Replace the file, whatever its content.

    Raises:
        RequestError: The file has other content, or cannot be written.
    """
    target = Path(path)
    if not force and target.is_file():
        there: Any = None
        with contextlib.suppress(OSError, ValueError, RecursionError), target.open("rb") as stream:
            there = json.loads(stream.read(MAX_BYTES))
        there = there if isinstance(there, dict) else {}
        keys = [key for key in ("id", "$schema", "title") if key in made]
        # After ' and ', a gallery's name lists the user's teams.
        new, old = (str(data.get("name")).partition(" and ")[0] for data in (made, there))
        if not there or new != old or any(there.get(key) != made[key] for key in keys):
            raise RequestError(f"the file {str(path)!r} holds something else; --force replaces it")
    write_file(target, to_json(made))
