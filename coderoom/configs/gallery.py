"""Makes AutoGen Studio's gallery of teams, which has no keys, values of variables or paths of this machine."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretBytes, SecretStr

from coderoom import __version__
from coderoom._util.autogen import WELL_KNOWN_PROVIDERS
from coderoom._util.text import MASK, is_secret_name
from coderoom.configs.checking import check
from coderoom.configs.components import TEAM, Components, alternatives, fields_by_key
from coderoom.configs.findings import Checked
from coderoom.configs.loading import make_model
from coderoom.configs.reading import Source, find_source, read_component, shipped_sources
from coderoom.configs.variables import is_secret_key
from coderoom.configs.yaml import Location, show_key, value_at, walk
from coderoom.errors import ConfigError, Problem, RequestError
from coderoom.models.services import NO_KEY, OPENAI, key_of
from coderoom.teams import CodingTeam, TeamAgent

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
_PATH_KEYS = {"work_dir", "bind_dir", "cwd", "python", "readable", "output_dir", "downloads_folder", "cache_dir"}
_ABSOLUTE = re.compile(r"[/~\\]|[A-Za-z]:[/\\]")
_CREDENTIALS = re.compile(r"://[^/\s:@]*:[^/\s@]+@|\bhttps?://[^/\s@?#]+@")
_IN_QUERY = re.compile(r"[?&]([\w.-]+)=[^&\s]{8,}")
_OPTION = re.compile(r"--?([\w-]+)(?:=(.*))?", re.DOTALL)
_NAMES_VARIABLES = re.compile(r"(?:.*_)?(?:headers|env|query|cookies)")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# The keys of services that can be recognized by their form.
_KEY_OF_A_SERVICE = re.compile(
    r"\b(?:sk-(?=[a-zA-Z_-]*\d)[\w-]{20,}|gh[opsru]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_\w{20,}|xox[abprs]-[\w-]{10,}"
    r"|AIza[\w-]{35}|AKIA[A-Z0-9]{16})|\bBearer [\w.~+/-]{16,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_LOOKS_LIKE_A_KEY = "this looks like a key, which a gallery must not contain; set it in the environment of Studio"
_NO_ENVIRONMENT = "a gallery takes nothing from the environment"
_LONG_ENOUGH = 12
"""Shorter secrets are too often ordinary words."""


def _without_secrets(data: Any, names_variables: bool = False) -> Any:
    """Copy a document without keys and passwords, whether they are references or literal.

    `names_variables` says that the keys are the names of variables or headers.
    """
    if isinstance(data, dict):
        config, provider = data.get("config") or {}, str(data.get("provider"))
        is_openai = WELL_KNOWN_PROVIDERS.get(provider, provider) == OPENAI and isinstance(config, dict)
        if is_openai and config.get("base_url") and not config.get("api_key"):  # As in `load_team`.
            data = {**data, "config": {**config, "api_key": NO_KEY}}
        return {
            key: _without_secrets(value, _NAMES_VARIABLES.fullmatch(key) is not None)
            for key, value in data.items()
            if not _is_secret(key, value) and not (names_variables and is_secret_name(_in_words(key)))
        }
    return [_without_secrets(value) for value in data] if isinstance(data, list) else data


def _find_unportable(checked: Checked) -> list[Problem]:
    """Remove the fields of secret types from a checked team, and list what makes sense on this machine only."""
    for path, component_class in checked.components.items():
        config = value_at(checked.data, (*path, "config"))
        schema: Any = component_class.component_config_schema  # type: ignore[attr-defined]
        for key, name in fields_by_key(schema).items():
            kinds = alternatives(schema.model_fields[name].annotation)
            if (SecretStr in kinds or SecretBytes in kinds) and config.get(key) != NO_KEY:
                config.pop(key, None)
    found = [
        (path, f"{show_key(reference.raw)} needs a default here, as in '${{NAME:-default}}': {_NO_ENVIRONMENT}")
        for path, reference in checked.references.items()
        if reference.problems
    ]
    for path, value in walk(checked.data):
        if isinstance(value, str):
            found += [(path, reason) for reason in _reasons(path, value)]
        elif isinstance(value, list):
            # Arguments may pass a key to a program: `--token=...`, or `--token` and the next argument.
            for index, argument in enumerate(value):
                option = _OPTION.fullmatch(argument) if isinstance(argument, str) else None
                if option is not None and (is_secret_key(option[1]) or option[1].lower().endswith("token")):
                    following = value[index + 1] if index + 1 < len(value) else None
                    given = following if option[2] is None else option[2]
                    if isinstance(given, str) and given and not given.startswith("-"):
                        found.append(((*path, index), _LOOKS_LIKE_A_KEY))
    return checked.document.distinct_problems(found)


def _is_secret(key: str, value: Any) -> bool:
    if not isinstance(value, str) or (key == "api_key" and value == NO_KEY):
        return False
    # In capitals, it is the name of a variable for a server.
    if is_secret_key(key) or value == MASK or (key.isupper() and is_secret_name(key)):
        return True
    refers = _REFERENCE.fullmatch(value)
    return refers is not None and is_secret_name(refers[1])


def _reasons(path: Location, text: str) -> list[str]:
    keys = [step for step in path if isinstance(step, str)]
    is_place = bool(keys) and keys[-1] in _PATH_KEYS and _ABSOLUTE.match(text)
    # A folder such as `/tmp` exists on every machine.
    own = [str(folder) for folder in (Path.home(), Path.cwd()) if len(folder.parts) > 2 or folder == Path.home()]
    is_own = any(len(folder) > 1 and re.search(rf"{re.escape(folder)}(?![\w.-])", text) for folder in own)
    if is_place or is_own:
        return ["this is a path of this machine, which a gallery must not contain; write a relative one"]
    in_query = "://" in text and any(is_secret_name(_in_words(name)) for name in _IN_QUERY.findall(text))
    if in_query or _CREDENTIALS.search(text):
        return ["this URL contains a password or a key, which a gallery must not contain"]
    return [_LOOKS_LIKE_A_KEY] if _KEY_OF_A_SERVICE.search(text) else []


def _in_words(name: str) -> str:
    """A name such as `X-Api-Key` or `apiKey`, written like a variable."""
    return _CAPITAL.sub("_", name).replace("-", "_").replace(".", "_")


_LISTS = {
    "team": "teams",
    "agent": "agents",
    "model": "models",
    "tool": "tools",
    "termination": "terminations",
    "workbench": "workbenches",
}
"""The lists of a gallery, by component type. Studio requires all of them, even if they are empty."""


def make_gallery(
    teams: Sequence[str | Path] = (), *, model: str | None = None, trust: Sequence[str] = ()
) -> dict[str, Any]:
    """Make a gallery of AutoGen Studio with the shipped teams, other teams, and the components of all of them.

    It contains nothing of this machine. Studio does not know references such as `${NAME:-default}`: they become their
    defaults, and the environment is not read. Keys of services are left out; their clients read them from Studio's
    environment.

    Args:
        teams: More teams, as for `load_team`.
        model: A text that `make_model` understands: this model replaces every one under a key `model_client`. It is
            made with the variables of the environment: its address, such as `OPENAI_BASE_URL`, is in the gallery.
        trust: Namespaces whose providers may be imported, besides `autogen_*` and `coderoom`.

    Returns:
        The gallery, as plain data to write as JSON.

    Raises:
        ConfigError: A team has mistakes, or something in it makes sense on this machine only.
        RequestError: There is no such file, team or model.
        MissingDependencyError: A team or the model needs a package that is not installed, or a key that is not set.
    """
    shipped = shipped_sources()
    sources = [*shipped.values(), *(find_source(team) for team in teams)]
    replacement = None if model is None else _dumped(model, trust)
    lists = _lists(_checked(source, trust, replacement) for source in sources)
    try:
        text = json.dumps(lists, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise RequestError("a team contains an infinite number or NaN, which JSON does not have") from None
    for name, value in os.environ.items():
        if is_secret_name(name) and len(value) >= _LONG_ENOUGH and value in text:
            raise RequestError(f"a team contains the value of the environment variable {name!r}; it is not written")
    # Studio tells galleries apart by their names only.
    own = [team["label"] for team in lists["teams"][len(shipped) :]]
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
        "components": lists,
    }


def _checked(source: Source, trust: Sequence[str], model: dict[str, Any] | None) -> Checked:
    document = read_component(source)
    document = dataclasses.replace(document, data=_with_model(_without_secrets(document.data), model))
    # The environment is of this machine: only the trusted namespaces are read from it.
    components = Components.trusting(trust, os.environ)
    checked = check(document, TEAM, components, {})
    takers = [path for path, each in checked.components.items() if getattr(each, "TAKES_DEFAULT_MODEL", False)]
    if checked.elsewhere or (model and takers):
        for path, text in checked.elsewhere.items():  # Studio does not know such texts.
            value_at(document.data, path[:-1])[path[-1]] = _dumped(text, trust)
        for path in takers if model else ():
            value_at(document.data, path)["config"]["model_client"] = copy.deepcopy(model)
        checked = check(document, TEAM, components, {})
    problems = _find_unportable(checked)
    if problems:
        raise ConfigError(problems)
    checked.refuse_mistakes()
    if not checked.data["config"].get("participants"):
        # Studio's page of teams would stay blank.
        raise ConfigError([document.problem((), "AutoGen Studio shows only teams that have participants")])
    # Studio's forms expect numbers and booleans, and not texts of resolved references to variables.
    for path in checked.references:
        place = max((other for other in checked.components if path[: len(other)] == other), key=len, default=None)
        if place is None or path[len(place) : len(place) + 1] != ("config",):
            continue
        inside = path[len(place) + 1 :]
        schema: Any = checked.components[place].component_config_schema  # type: ignore[attr-defined]
        config = value_at(checked.data, (*place, "config"))
        value = value_at(schema.model_validate(config).model_dump(mode="json", warnings=False), inside)
        if isinstance(value, (bool, int, float)):
            value_at(checked.data, path[:-1])[path[-1]] = value
    return checked


def _dumped(model: str, trust: Sequence[str]) -> Any:
    """The component of a model, without secrets."""
    component = make_model(model, trust=trust).dump_component().model_dump(exclude_none=True)
    if key_of(model, os.environ) == NO_KEY:
        component["config"]["api_key"] = NO_KEY
    return _without_secrets(component)


def _with_model(data: Any, model: dict[str, Any] | None) -> Any:
    """A copy of a document in which a model replaces all others."""
    if model is None:
        return data
    if isinstance(data, dict):
        own = {"model_client": copy.deepcopy(model)} if data.get("model_client") is not None else {}
        return {key: _with_model(value, model) for key, value in data.items()} | own
    return [_with_model(value, model) for value in data] if isinstance(data, list) else data


def _lists(teams: Iterable[Checked]) -> dict[str, list[dict[str, Any]]]:
    """The lists of a gallery with all teams, and each of their components on its own, but once."""
    lists: dict[str, list[dict[str, Any]]] = {name: [] for name in _LISTS.values()}
    seen: set[str] = set()
    for checked in teams:
        for name, component in _components(checked):
            identity = json.dumps([component["provider"], component["config"]], sort_keys=True)
            if identity in seen:
                continue
            seen.add(identity)
            labels = {other["label"] for other in lists[name]}
            label = component["label"]
            if label in labels and name != "teams":
                label = f"{label} ({checked.data['label']})"
            free = (f"{label} ({number})" if number > 1 else label for number in itertools.count(1))
            lists[name].append({**component, "label": next(other for other in free if other not in labels)})
    return lists


def _components(checked: Checked) -> Iterator[tuple[str, dict[str, Any]]]:
    """A team, what it consists of, and agents in place of the teams in it, each with the list that it belongs to."""
    by_place = sorted(checked.components.items(), key=lambda item: [str(step) for step in item[0]])
    placed = [(path, component_class, value_at(checked.data, path)) for path, component_class in by_place]
    for _, component_class, component in placed:
        _complete(component, component_class, checked.document.file)
    yield from (("agents", agent) for agent in _teams_as_agents(checked))
    for path, component_class, component in placed:
        kind = component_class.component_type  # type: ignore[attr-defined]
        # A team in a team is of no use alone.
        if kind in _LISTS and (kind != "team" or not path):
            yield _LISTS[kind], component


def _complete(component: dict[str, Any], component_class: Any, file: str) -> None:
    """Add what Studio needs and a file may leave out."""
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
    """Replace each team in a team by an agent that runs it, because Studio's builder drops nested teams."""
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


def _summary(component_class: type) -> str:
    paragraph, _, _ = (inspect.getdoc(component_class) or component_class.__name__).partition("\n\n")
    return " ".join(paragraph.replace("`", "").split())  # Studio shows no Markdown here.
