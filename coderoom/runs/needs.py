"""What a run needed of the network, of packages, folders and functions, and the smallest lists for its team's file.

Used by `coderoom runs policy`. Only what the journal knows is said: see `Needs.unknown`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from coderoom._util.text import MASK
from coderoom.configs.dumping import round_trip_yaml, to_json, yaml_text
from coderoom.errors import RequestError
from coderoom.runs.journal import RunEntry, Step
from coderoom.runs.record import network_in
from coderoom.sandbox import NetworkUse
from coderoom.sandbox.guest.failures import package_of
from coderoom.sandbox.proxy.rules import advice, parse_rule
from coderoom.sandbox.requirements import ON_REQUEST, WORDS, check_requirement, installs_in, packages_in
from coderoom.steps import CODE

_EXECUTOR: Final = "SandboxCodeExecutor"
# As a whole, since code chooses words that stand in other reasons.
_NO_CONNECTION: Final = re.compile(
    r'No connection to (\S+): (?:\S+ is an? [a-z\' ]+; network: \["(\S+)"\] allows it\.)?.*'
)
_NOT_THERE: Final = re.compile(r"\[Errno (?:2|13)\] [^:\n]+: '(/[^'\n]+)'")
_NO_MODULE: Final = re.compile(r"No module named '([\w.]+)'")
_REFUSED: Final = "asked for, and refused"
_MISSING: Final = "not installed"
_MASKED: Final = "masked-in-the-journal"


@dataclass
class Needs:
    """What code needed. What it was refused is not needed for what it did, but it was asked for.

    Attributes:
        hosts: The hosts that it reached, or that were allowed and did not answer; as entries of an allow-list.
        refused: The hosts that it asked for in vain, as entries.
        installed: The packages that it installed, and those of its inline metadata.
        missing: The packages that it could not import.
        folders: The folders of this machine with files that it did not find behind the wall.
        functions: The functions of the host that it called.
        odd: What was refused and cannot be allowed.
    """

    hosts: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    installed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)


def needs_of(steps: Iterable[Step], actors: Sequence[str] = (), workspace: str | None = None) -> Needs:
    """What the code of a run needed; of some of its agents, if they are named."""
    found = Needs()
    for step in steps:
        if step.kind != CODE or (actors and step.actor not in actors):
            continue
        result = step.result
        error = result.get("error") or {}
        blocks = (step.request or {}).get("blocks") or [[result.get("language"), result.get("code", "")]]
        for use in network_in(result):
            _note_use(found, use)
        for _, code in blocks:
            found.installed += installs_in(code)
            with suppress(RequestError):
                found.installed += packages_in(code)
        if error.get("type") == "ModuleNotFoundError" and (module := _NO_MODULE.match(error["message"])):
            with suppress(RequestError):
                found.missing.append(check_requirement(package_of(module[1])))
        if (missed := _NOT_THERE.search(error.get("message") or "")) is not None:
            found.folders += _folder_of(Path(missed[1]), workspace)
        found.functions += [call["name"] for call in result.get("calls") or ()]
    for name, values in vars(found).items():
        setattr(found, name, sorted(set(values)))
    found.refused = [each for each in found.refused if each not in found.hosts]
    found.missing = [each for each in found.missing if each not in found.installed]
    return found


def _note_use(found: Needs, use: NetworkUse) -> None:
    try:
        parse_rule(use.place)
    except ValueError:  # The code has written it.
        found.odd += [use.why] if use.why else []
        return
    failed = _NO_CONNECTION.fullmatch(use.why)
    if not use.why or (failed is not None and failed[1] == use.place):
        found.hosts.append(use.place)
        if failed is not None and failed[2]:  # The name is allowed, and leads to an address that is not.
            found.refused.append(failed[2])
    elif use.why == advice(use.host, use.port):
        found.refused.append(use.place)
    else:
        found.odd.append(use.why)


def _folder_of(path: Path, workspace: str | None) -> Iterator[str]:
    """The folder of this machine that code would have to read for a file that it did not find, if there is one."""
    with suppress(OSError):
        inside = workspace is not None and path.is_relative_to(workspace)
        if path.exists() and not inside:
            folder = path if path.is_dir() else path.parent
            if folder != folder.parent:
                yield str(folder)


@dataclass(frozen=True)
class Policy:
    """The smallest lists for a run.

    Attributes:
        needs: What the whole run needed.
        lines: The change of the team's file as a unified diff; without a team, or an executor with lists, what to
            write into the config of one.
        unknown: What nobody knows.
    """

    needs: Needs
    lines: list[str]
    unknown: list[str]


def policy_of(entry: RunEntry, steps: Sequence[Step]) -> Policy:
    """The smallest lists that a run needed, as a change of its team's file."""
    request = entry.request
    needs = needs_of(steps, workspace=request.get("workspace"))
    unknown = [f"Refused, and no list allows it: {why}" for why in needs.odd]
    if request.get("source") is None:
        unknown += _unknown_network(request.get("network", False))
        return Policy(needs, _yaml_of(needs), unknown)
    is_json, yaml = entry.name.lower().endswith(".json"), round_trip_yaml()
    source = request["source"].replace(MASK, _MASKED)  # Which is no YAML.
    before, after = ((json.loads if is_json else yaml.load)(source) for _ in range(2))
    executors = list(_executors_in(after))
    if not executors:
        return Policy(needs, _yaml_of(needs), [*unknown, f"The team has no {_EXECUTOR}, whose config has the lists."])
    for config, agents in executors:
        names = [str(agent.get("name")) for agent in agents]
        own = needs if len(executors) == 1 else needs_of(steps, names, request.get("workspace"))
        unknown += _change(config, own, request, is_json)
        for agent in agents:
            unknown += _change_tools(agent, own)

    def text_of(data: Any) -> str:
        return (to_json(data) if is_json else yaml_text(yaml, data)).replace(_MASKED, MASK)

    # Both as they are written here, so that the diff has no change of quotes and spaces.
    old, new = (text_of(data).splitlines() for data in (before, after))
    lines = list(difflib.unified_diff(old, new, entry.name, entry.name, lineterm=""))
    return Policy(needs, lines, list(dict.fromkeys(unknown)))


def _unknown_network(network: object) -> list[str]:
    """What nobody knows about a run with this `network`."""
    if network is True:
        return ["The code could use the whole network, and what it reached is not known; `network: observe` notes it."]
    if network is False:
        return ["The code had no network, and what it asked for is not known; `network: observe` notes it."]
    return []


def _executors_in(data: Any, agent: Any = None) -> Iterator[tuple[Any, list[Any]]]:
    """The configs of executors with lists, and those of the agents that have them."""
    found: dict[int, tuple[Any, list[Any]]] = {}

    def walk(value: Any, agent: Any) -> None:
        config = value.get("config") if isinstance(value, Mapping) else None
        if isinstance(config, Mapping) and str(value.get("provider")).endswith(_EXECUTOR):
            agents = found.setdefault(id(config), (config, []))[1]
            agents += [agent] if agent is not None else []
        elif isinstance(value, Mapping):
            for each in value.values():
                walk(each, value if "code_executor" in value else agent)
        elif isinstance(value, list):
            for each in value:
                walk(each, agent)

    walk(data, None)
    yield from found.values()


def _change(config: Any, needs: Needs, request: Mapping[str, Any], is_json: bool) -> Iterator[str]:
    """Change the config of an executor to the smallest lists; say what is not known."""
    given = request.get("network")
    used = config.get("network", False) if given is None else given
    unknown = [] if request.get("allowed_hosts") else _unknown_network(used)
    yield from unknown
    if not unknown and (needs.hosts or needs.refused or config.get("network")):
        yield from _set(config, "network", needs.hosts, needs.refused, _REFUSED, is_json)
        config["network"] = config["network"] or False
    own = config.get("packages") or []
    own = [own] if isinstance(own, str) else list(own)
    kept = [each for each in own if each != ON_REQUEST]
    if needs.installed or needs.missing or kept != own:
        yield from _set(config, "packages", [*kept, *needs.installed], needs.missing, _MISSING, is_json)
    if listed := [each for each in kept if each not in WORDS]:
        yield f"Which of the packages {', '.join(listed)} the code has imported is not known: they stay."
    folders = config.get("readable") or []
    if folders:
        yield f"Which of the folders {', '.join(map(str, folders))} the code has read is not known: they stay."
    if missing := [each for each in needs.folders if each not in folders]:
        yield from _set(config, "readable", folders, missing, _REFUSED, is_json)


def _set(
    config: Any, name: str, items: Sequence[str], doubtful: Sequence[str], why: str, is_json: bool = False
) -> Iterator[str]:
    """Set a list. Those that a person should look at first have a comment in YAML, and are only told of for JSON."""
    from ruamel.yaml.comments import CommentedSeq

    if is_json:
        config[name] = list(dict.fromkeys(items))
        if doubtful:
            yield f"{name}: {why}: {', '.join(doubtful)}"
        return
    config[name] = listed = CommentedSeq(dict.fromkeys([*items, *doubtful]))
    for place, item in enumerate(listed):
        if item in doubtful:
            listed.yaml_add_eol_comment(why, place, column=0)


def _change_tools(agent: Any, needs: Needs) -> Iterator[str]:
    """Leave the functions of an agent that were not called out of its config."""
    tools = agent.get("tools")
    if isinstance(tools, list):
        names = [((tool.get("config") or {}).get("name") if isinstance(tool, Mapping) else None) for tool in tools]
        for place in reversed(range(len(tools))):
            if names[place] is not None and names[place] not in needs.functions:
                del tools[place]
    if agent.get("workbench"):
        called = ", ".join(needs.functions) or "none"
        yield f"Of the functions of {agent.get('name')} and its workbench, these were called: {called}."


def _yaml_of(needs: Needs) -> list[str]:
    """The lists as lines of an executor's config."""
    config: dict[str, Any] = {}
    lists = (
        ("network", needs.hosts, needs.refused, _REFUSED),
        ("packages", needs.installed, needs.missing, _MISSING),
        ("readable", (), needs.folders, _REFUSED),
    )
    for name, items, doubtful, why in lists:
        if items or doubtful:
            list(_set(config, name, items, doubtful, why))
    return yaml_text(round_trip_yaml(), config).splitlines() if config else []
