"""Converts AutoGen's team files to CodeRoom's agents and executors, for `coderoom convert`."""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from autogen_core.code_executor import CodeExecutor

from coderoom._util.text import MASK, SHORTEST_SECRET
from coderoom.agents import CodeExecutorAgent
from coderoom.configs.checking import check
from coderoom.configs.components import PARTICIPANT, Components, provider_of
from coderoom.configs.dumping import round_trip_yaml, to_json, to_yaml, yaml_text
from coderoom.configs.findings import Checked
from coderoom.configs.reading import Source, find_source, read_component, write_file
from coderoom.configs.repairs import SUCCESSORS, fill_nulls, replace_provider, temporary_values
from coderoom.configs.variables import is_secret_key
from coderoom.configs.yaml import Location, show, value_at, walk
from coderoom.errors import ConfigError, Problem, RequestError
from coderoom.executors import SandboxCodeExecutor
from coderoom.teams import CodingTeam

_LOCAL = "autogen_ext.code_executors.local.LocalCommandLineCodeExecutor"
_WITHOUT_COUNTERPART = {
    "functions_module": "it names a module of functions, which no config contains",
    "cleanup_temp_files": "blocks are not run as files",
}
"""The keys of AutoGen's local executor that a `SandboxCodeExecutor` does not have, and why."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What `convert_team` did.

    Attributes:
        text: The content of the converted file.
        diff: A unified diff without the values of keys and passwords; empty if there is nothing to convert.
        notes: What the diff does not explain, with places in the original file.
    """

    text: str
    diff: str
    notes: list[Problem]


def convert_team(
    path: str | Path, out: str | Path | None = None, *, force: bool = False, trust: Sequence[str] = ()
) -> Conversion:
    """Convert a file with a team, or one agent, from AutoGen's classes to CodeRoom's.

    `CodeExecutorAgent` becomes CodeRoom's, and `LocalCommandLineCodeExecutor` a `SandboxCodeExecutor`. AutoGen's other
    executors stay, since no setting of a sandbox means the same as their images, volumes and kernels. What AutoGen's
    dump has lost or masked is repaired. One agent becomes a team of one turn.

    Args:
        path: The file.
        out: The file to write if there is something to convert: JSON if its name ends in `.json`, otherwise YAML.
        force: Replace a file.
        trust: As for `load_team`.

    Returns:
        The conversion.

    Raises:
        ConfigError: The file has mistakes that a conversion does not repair; all of them are listed.
        RequestError: There is no such file, or `out` is there already or cannot be written.
    """
    source, components = find_source(path), Components.trusting(trust, os.environ)
    document = read_component(source)
    if document.problems:  # Such as duplicate keys.
        raise ConfigError(document.problems)
    checked = check(document, PARTICIPANT, components, os.environ)
    as_json = source.is_json if out is None else str(out).lower().endswith(".json")
    if as_json or source.is_json:
        data, to_text = copy.deepcopy(document.data), to_json if as_json else to_yaml
    else:  # YAML that stays YAML keeps its comments.
        yaml = round_trip_yaml()
        data, to_text = yaml.load(source.data.decode("utf-8-sig")), partial(yaml_text, yaml)
    try:
        before = to_text(data)
    except ValueError as error:  # JSON has no infinite numbers.
        raise RequestError(f"the file cannot be written as JSON: {error}") from error
    notes = _convert(data, checked)
    after = to_text(data)
    read_again = read_component(Source(source.name, after.encode(), as_json))
    again = check(replace(read_again, marks=document.marks), PARTICIPANT, components, os.environ)
    unresolved = {show(path) for path in again.unresolved}  # A conversion does not need the values of variables.
    again.problems = [problem for problem in again.problems if problem.path not in unresolved]
    again.refuse_mistakes()
    if after != before and getattr(checked.components.get(()), "component_type", None) == "agent":
        notes.append(((), "the agent is now in a team of one turn, because a team file describes a team"))
        config = {"participants": [data], "max_turns": 1}
        provider = provider_of(CodingTeam)
        after = to_text({"provider": provider, "component_type": CodingTeam.component_type, "config": config})
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(out or path), lineterm="")
    diff = "\n".join(lines)
    for secret in _secrets(document.data):
        diff = diff.replace(secret, MASK)
    if diff and out is not None:
        write_file(Path(out), after, force=force)
    return Conversion(after, diff, document.distinct_problems(notes))


def _convert(data: Any, checked: Checked) -> list[tuple[Location, str]]:
    """Convert the components of a file in place; return notes about what is not obvious."""
    notes: list[tuple[Location, str]] = []
    for place, value in walk(checked.document.data):
        parent = value_at(data, place[:-1])
        if value == MASK and isinstance(parent, dict) and parent.pop(place[-1], None) is not None:
            notes.append((place, "the masked value was left out; clients read their keys from the environment"))
    seen = set()
    for path, component_class in checked.components.items():
        envelope = value_at(data, path)
        if isinstance(envelope.setdefault("config", {}), dict) and id(envelope) not in seen:
            seen.add(id(envelope))  # YAML's aliases are one object.
            for key, message in _convert_component(envelope, component_class):
                notes.append(((*path, "config", key) if key else path, message))
    return notes


def _convert_component(envelope: dict[str, Any], component_class: Any) -> Iterator[tuple[str, str]]:
    """Convert one component in place; yield notes, with the key of the config that each is about."""
    config, provider = envelope["config"], provider_of(component_class)
    for key in list(temporary_values(provider, config)):
        yield key, f"{key!r} was left out: AutoGen made {config.pop(key)!r} for one process"
    successor, lost = SUCCESSORS.get(provider, (None, ""))
    if lost and lost not in config and (successor is not CodeExecutorAgent or config.get("model_client")):
        yield "", f"AutoGen's dump never has {lost!r}; if it was set in Python, add it to this file and convert again"
    if successor is CodeExecutorAgent or (lost and lost in config):
        if config.get("model_client") and config.get("system_message") is None:
            yield "", "an empty 'system_message' was written: without it, only CodeRoom's agent has a default one"
        replace_provider(envelope, component_class, successor)
    elif provider == _LOCAL:
        replace_provider(envelope, component_class, SandboxCodeExecutor)
        for key, reason in _WITHOUT_COUNTERPART.items():
            if config.pop(key, None) is not None:
                yield key, f"{key!r} was left out: {reason}"
        config["state"] = "fresh"
        yield "", "each block has fresh variables, as before; 'state: session' keeps them"
        yield "", "new: no network, environment or other folders ('network', 'env' and 'readable' allow them)"
    elif issubclass(component_class, CodeExecutor) and provider.startswith("autogen_"):
        yield "", f"{component_class.__name__} stays, since no setting of a sandbox means the same"
    else:
        fill_nulls(component_class.component_config_schema, config)


def _secrets(data: Any) -> Iterator[str]:
    for path, value in walk(data):
        is_secret = bool(path) and isinstance(path[-1], str) and is_secret_key(path[-1])
        if is_secret and isinstance(value, str) and len(value) >= SHORTEST_SECRET and "${" not in value:
            yield value
