"""Which file a team came from, and how what it says goes back into the dump of the team.

AutoGen's dump of a team has the values of variables where the file had references, and its classes' own descriptions.
What the file said goes back where the dump still says the same; what may not be written at all is left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pydantic import SecretBytes, SecretStr
from pydantic_core import to_jsonable_python

from coderoom.configs.findings import Checked, is_under
from coderoom.configs.locations import Location
from coderoom.configs.providers import provider_of
from coderoom.configs.variables import Reference, References, escape, is_secret_key

if TYPE_CHECKING:
    from autogen_agentchat.base import Team

__all__ = ["Origin", "origin_of", "plain", "remember", "restored", "written"]


_MASK = "**********"
_HIDDEN = object()
"""Stands in a dump for a value that may not be written."""

_TRUE, _FALSE = {"1", "true", "t", "yes", "y", "on"}, {"0", "false", "f", "no", "n", "off"}


@dataclass(frozen=True, slots=True)
class Origin:
    """What a file said that a dump of its team does not.

    Attributes:
        data: The file's content as it was written, without what only carries anchors.
        references: The texts that refer to variables.
        providers: By the place of each component, the name that it has in a dump.
        notes: By the place of each component, the `description` and `label` that the file gives it.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    references: References = field(default_factory=References)
    providers: Mapping[Location, str] = field(default_factory=dict)
    notes: Mapping[Location, Mapping[str, str]] = field(default_factory=dict)


_origins: WeakKeyDictionary[Team, Origin] = WeakKeyDictionary()


def remember(team: Team, checked: Checked) -> None:
    """Remember which file a team came from."""
    written = checked.document.data
    notes: dict[Location, Mapping[str, str]] = {}
    for path in checked.components:
        envelope = _at(written, path)
        notes[path] = {key: envelope[key] for key in ("description", "label") if isinstance(envelope.get(key), str)}
    origin = Origin(
        data=_without(written, checked.dropped, ()),
        references=checked.references,
        providers={path: provider_of(found) for path, found in checked.components.items()},
        notes=notes,
    )
    with contextlib.suppress(TypeError):  # a class of somebody else's may not be hashable
        _origins[team] = origin


def origin_of(team: Team) -> Origin | None:
    """Give what is remembered of the file that a team came from."""
    with contextlib.suppress(TypeError):
        return _origins.get(team)
    return None


def plain(value: Any) -> Any:
    """Make mappings, lists and scalars of a dump; what may not be written becomes a marker that `restored` knows."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, (SecretStr, SecretBytes)) or value == _MASK:
        return _HIDDEN
    if value is None or type(value) in (str, int, float, bool):
        return value
    return to_jsonable_python(value)


def restored(data: Any, origin: Origin | None) -> Any:
    """Put back into a dump what its file said, and leave out what may not be written.

    Args:
        data: What `plain` gives.
        origin: The file, if there is one.

    Returns:
        What to write.
    """
    origin = origin or Origin()
    moved = [
        (path, reference)
        for path, reference in origin.references.items()
        if path and not _is_same(_at(data, path), reference.value)
    ]
    return _restored(data, (), origin, moved)


def written(origin: Origin) -> Any:
    """Give what the file itself said, without what may not be written."""
    return _written(origin.data, (), origin)


def _written(value: Any, path: Location, origin: Origin) -> Any:
    if isinstance(value, dict):
        inner = {key: _written(item, (*path, key), origin) for key, item in value.items()}
        return {key: item for key, item in inner.items() if item is not _HIDDEN}
    if isinstance(value, list):
        return [_written(item, (*path, index), origin) for index, item in enumerate(value)]
    name = path[-1] if path else ""
    is_literal = isinstance(value, str) and "${" not in value
    return _HIDDEN if is_literal and isinstance(name, str) and is_secret_key(name) else value


def _restored(value: Any, path: Location, origin: Origin, moved: list[tuple[Location, Reference]]) -> Any:
    if isinstance(value, dict):
        if path in origin.providers and value.get("provider") != origin.providers[path]:
            # Something else stands here now: what the file said of this place is not meant for it.
            origin = Origin()
        inner = {key: _restored(item, (*path, key), origin, moved) for key, item in value.items()}
        return {**{key: item for key, item in inner.items() if item is not _HIDDEN}, **origin.notes.get(path, {})}
    if isinstance(value, list):
        items = [_restored(item, (*path, index), origin, moved) for index, item in enumerate(value)]
        return [item for item in items if item is not _HIDDEN]
    reference = origin.references.get(path)
    if reference is not None and _is_same(value, reference.value):
        return reference.raw
    name = path[-1] if path else ""
    if isinstance(value, str) or value is _HIDDEN:
        for place, other in moved:  # AutoGen moves some parts, for instance tools into a workbench
            if place[-1] == name and _is_same(value, other.value):
                return other.raw
    if isinstance(value, str):
        if isinstance(name, str) and is_secret_key(name):
            return _HIDDEN
        return _hide(escape(value), origin, moved)
    return value


def _hide(text: str, origin: Origin, moved: list[tuple[Location, Reference]]) -> str:
    text = origin.references.hide(text)
    return References(moved).hide(text)


def _is_same(value: Any, resolved: str) -> bool:
    """Say whether a dumped value may be what pydantic made of a resolved text."""
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


def _at(data: Any, path: Location) -> Any:
    for step in path:
        if isinstance(data, dict):
            data = data.get(str(step)) if isinstance(step, str) else None
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def _without(data: Any, dropped: set[Location], path: Location) -> Any:
    if isinstance(data, dict):
        return {
            key: _without(value, dropped, (*path, key))
            for key, value in data.items()
            if not is_under((*path, key), dropped)
        }
    if isinstance(data, list):
        return [_without(value, dropped, (*path, index)) for index, value in enumerate(data)]
    return data
