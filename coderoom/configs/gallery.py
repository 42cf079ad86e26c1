"""Teams and their parts as a gallery of AutoGen Studio."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coderoom import __version__
from coderoom.configs.document import read_component
from coderoom.configs.kinds import TEAM
from coderoom.configs.portable import find_unportable, refuse_environment, resolved_numbers, without_secrets
from coderoom.configs.providers import Components
from coderoom.configs.source import Source, find_source, shipped_sources
from coderoom.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from coderoom.configs.findings import Checked

__all__ = ["make_gallery"]

_LISTS = {
    "team": "teams",
    "agent": "agents",
    "model": "models",
    "tool": "tools",
    "termination": "terminations",
    "workbench": "workbenches",
}
"""The lists of a gallery, by the type of what they hold. Studio wants all of them, also those that are empty."""


def make_gallery(
    teams: Sequence[str | Path] = (), *, model: str | None = None, trust: Sequence[str] = ()
) -> dict[str, Any]:
    """Make a gallery of AutoGen Studio, with the shipped teams, other teams, and what all of them consist of.

    Nothing in it is of this machine. References such as `${NAME:-default}`, which Studio does not know, become their
    defaults, whatever the environment says. Keys of services are left out; their clients take them from the
    environment of Studio.

    Args:
        teams: More teams, as for `load_team`.
        model: A text that `make_model` understands: this model takes the place of every one under a key `model_client`.
            It is made with what the environment says: its address, `OPENAI_BASE_URL` for instance, is in the gallery.
        trust: Namespaces whose providers may be imported, besides `autogen_*` and `coderoom`.

    Returns:
        The gallery, as plain data. Its file is the JSON of that.

    Raises:
        ConfigError: A team has mistakes, or something in it makes sense on this machine only.
        RequestError: There is no such file, team or model.
        MissingDependencyError: A team or the model needs a package, or a key, that is not there.
    """
    shipped = shipped_sources()
    sources = [*shipped.values(), *(find_source(team) for team in teams)]
    shelves = _Shelves()
    instead = _model_data(model, trust) if model is not None else None
    for source in sources:
        checked = _checked(source, trust, instead)
        shelves.add_all(checked)
    refuse_environment(_text(shelves.lists))
    # Studio tells galleries apart by their names only.
    own = [team["label"] for team in shelves.lists["teams"][len(shipped) :]]
    return {
        "id": "coderoom",
        "name": " and ".join(["CodeRoom", *own]),
        "url": None,
        "metadata": {
            "author": "CodeRoom",
            "version": __version__,
            "description": "Teams of agents that write, run, repair and review code.",
            "tags": ["coderoom", "code execution"],
            "license": "MIT",
        },
        "components": shelves.lists,
    }


def _checked(source: Source, trust: Sequence[str], model: dict[str, Any] | None) -> Checked:
    from coderoom.configs.build import refuse_mistakes
    from coderoom.configs.checking import check

    document = read_component(source)
    document = dataclasses.replace(document, data=_with_model(without_secrets(document.data), model))
    # What the environment says is of this machine, so that nothing is taken from it but whom to trust.
    checked = check(document, TEAM, Components.trusting(trust, os.environ), {})
    problems = find_unportable(checked)
    if problems:
        raise ConfigError(problems)
    refuse_mistakes(checked)
    if not checked.data["config"].get("participants"):
        # Studio's page of teams goes blank, and stays so.
        raise ConfigError([document.problem((), "AutoGen Studio shows only teams that have participants")])
    resolved_numbers(checked)
    return checked


def _model_data(spec: str, trust: Sequence[str]) -> dict[str, Any]:
    from coderoom.configs.models import make_model

    component = make_model(spec, trust=trust).dump_component().model_dump(exclude_none=True)
    data: dict[str, Any] = without_secrets(component)
    return data


def _with_model(data: Any, model: dict[str, Any] | None) -> Any:
    """A document with another model in the place of its own ones."""
    if model is None:
        return data
    if isinstance(data, dict):
        own = {"model_client": copy.deepcopy(model)} if data.get("model_client") is not None else {}
        return {key: _with_model(value, model) for key, value in data.items()} | own
    return [_with_model(value, model) for value in data] if isinstance(data, list) else data


class _Shelves:
    """The lists of a gallery while they are filled."""

    def __init__(self) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {name: [] for name in _LISTS.values()}
        self._seen: set[str] = set()

    def add_all(self, checked: Checked) -> None:
        """Add a team and, each for itself, what it consists of."""
        by_place = sorted(checked.components.items(), key=lambda item: [str(step) for step in item[0]])
        placed = [(path, component_class, _at(checked.data, path)) for path, component_class in by_place]
        for _, component_class, component in sorted(placed, key=lambda item: -len(item[0])):
            _complete(component, component_class, checked.document.file)
        team = checked.data["label"]
        for agent in _teams_as_agents(checked):
            self._add("agents", agent, team)
        for path, component_class, component in placed:
            kind = component_class.component_type  # type: ignore[attr-defined]
            # A team in a team is no use alone.
            if kind in _LISTS and (kind != "team" or not path):
                self._add(_LISTS[kind], component, team)

    def _add(self, name: str, component: dict[str, Any], team: str) -> None:
        identity = json.dumps([component["provider"], component["config"]], sort_keys=True)
        if identity in self._seen:
            return
        self._seen.add(identity)
        labels = {other["label"] for other in self.lists[name]}
        label = component["label"]
        if label in labels and name != "teams":
            label = f"{label} ({team})"
        free = (f"{label} ({number})" if number > 1 else label for number in itertools.count(1))
        self.lists[name].append({**component, "label": next(other for other in free if other not in labels)})


def _complete(component: dict[str, Any], component_class: Any, file: str) -> None:
    """Fill in what Studio shows, or looks for, and a file may leave out."""
    from autogen_core._component_config import WELL_KNOWN_PROVIDERS

    config = component["config"]
    kind = component_class.component_type
    name = config.get("name") or (config.get("model") if kind == "model" else None)
    if name is None and kind == "team":
        name = Path(file).stem
    component["provider"] = WELL_KNOWN_PROVIDERS.get(component["provider"], component["provider"])
    component.setdefault("version", component_class.component_version)
    component.setdefault("component_version", component_class.component_version)
    component.setdefault("label", name if isinstance(name, str) else component_class.__name__)
    component.setdefault("description", config.get("description") or _summary(component_class))


def _teams_as_agents(checked: Checked) -> list[dict[str, Any]]:
    """Put an agent around each team in a team, in whose place it does the same: Studio's builder drops teams there."""
    from coderoom.teams import CodingTeam, TeamAgent

    made: list[dict[str, Any]] = []
    if not issubclass(checked.components[()], CodingTeam):
        return made
    participants = checked.data["config"]["participants"]
    for index, team in enumerate(participants):
        team_class: Any = checked.components["config", "participants", index]
        if team_class.component_type != "team":
            continue
        name = team["config"].get("name") or getattr(team_class, "DEFAULT_NAME", team_class.__name__)
        agent = {
            "provider": TeamAgent.component_provider_override,
            "component_type": TeamAgent.component_type,
            "label": team["label"],
            "description": team["description"],
            "config": {"name": name, "team": team},
        }
        _complete(agent, TeamAgent, checked.document.file)
        participants[index] = agent
        made.append(agent)
    return made


def _text(data: Any) -> str:
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise RequestError("a team holds a number without an end, which JSON does not have") from None


def _summary(component_class: type) -> str:
    paragraph, _, _ = (inspect.getdoc(component_class) or component_class.__name__).partition("\n\n")
    return " ".join(paragraph.replace("`", "").split())  # Studio shows it as it is.


def _at(data: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        data = data[step]
    return data
