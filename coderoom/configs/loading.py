"""Loads team files and models: reads and checks them, then builds the components that they describe.

Model clients are made from short texts too: `openai:gpt-4o`, `ollama:llama3.2`, `replay:FILE`. The package of a model
service is imported when one of its models is made. `models.services` describes the services.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from autogen_agentchat.base import Team
from autogen_core.models import ChatCompletionClient
from pydantic import ValidationError

from coderoom._util.text import misfits
from coderoom.configs.building import build
from coderoom.configs.checking import check, check_config
from coderoom.configs.components import MODEL, TEAM, Components, Kind, how_to_install
from coderoom.configs.findings import Checked
from coderoom.configs.reading import (
    Source,
    find_source,
    is_recording,
    looks_like_path,
    read_component,
    read_document,
    shipped_sources,
)
from coderoom.configs.rehearsing import rehearse
from coderoom.configs.yaml import Location, did_you_mean, value_at
from coderoom.errors import (
    ConfigError,
    MissingDependencyError,
    Problem,
    RequestError,
)
from coderoom.models.clients import make_client
from coderoom.models.recorded import RecordedModel, ReplayModel, ReplayModelConfig
from coderoom.models.services import (
    MODEL_FORMS,
    MODEL_VARIABLE,
    REPLAY,
    SERVICES,
    Service,
    client_config,
    service_of,
)
from coderoom.sandbox import RemoteSandbox, SandboxConfig

T = TypeVar("T")
_MAKERS = {"claude": "anthropic", "google": "gemini"}
"""Words that are taken for names of services, which are not similar to them."""


def load_team(
    path_or_name: str | Path | Source,
    model: ChatCompletionClient | str | None = None,
    *,
    trust: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    max_turns: int | None = None,
    network: bool | Sequence[str] | None = None,
    timeout: float | None = None,
    packages: Sequence[str] = (),
    allowed_hosts: Sequence[str] = (),
    credentials: Mapping[str, Mapping[str, Any]] | None = None,
    local_network: bool | None = None,
    server: str | None = None,
    workspace_mode: Literal["direct", "overlay"] | None = None,
    agents: Collection[str] = (),
) -> Team:
    """Load a team from a file, or a shipped team by its name.

    Args:
        path_or_name: A path to a YAML or JSON file, or the name of a shipped team: a text without a path separator
            and without a suffix.
        model: A model client, or a text that `make_model` understands. This one client replaces every component under
            a key `model_client`. What the file says there is not checked.
        trust: Namespaces whose providers may be imported, besides `autogen_*` and `coderoom`.
        env: The variables that `${NAME}` refers to; by default the environment.
        max_turns: Replaces the team's `max_turns`.
        network: Replaces `network` of every executor that has this field.
        timeout: Replaces `timeout` of every executor, in seconds.
        packages: Is added to `packages` of every executor that has this field.
        allowed_hosts: Is added to the hosts in `network` of every executor that has this field.
        credentials: Is added to `credentials` of every executor that has this field; a value names its variables, as
            `Bearer ${GITHUB_TOKEN}`.
        local_network: Replaces `local_network` of every executor that has this field.
        server: The URL of a server of sandboxes, at which every executor runs its code that has the fields `engine` and
            `options`; its token is in CODEROOM_SERVER_TOKEN.
        workspace_mode: Replaces `workspace_mode` of every executor that has this field.
        agents: The names of agents that the team must have.

    Returns:
        The team.

    Raises:
        ConfigError: The file has mistakes; all of them are listed.
        RequestError: There is no such file, team, agent or model, or nothing in the team has a field to replace.
        MissingDependencyError: A package is not installed, or a key is not set.
    """
    env = os.environ if env is None else env
    checked = examine(find_source(path_or_name), TEAM, trust, env, replace_models=model is not None)
    checked.refuse_mistakes()
    _replace(checked, "team", max_turns=max_turns)
    for given in (network, allowed_hosts):
        SandboxConfig(network=given or False)  # Says better what is wrong than the union in a file.
    if not isinstance(network, bool | str | None):
        network = list(network)
    SandboxConfig(credentials=credentials or {})
    _replace(checked, "code_executor", network=network, timeout=timeout, local_network=local_network)
    _replace(checked, "code_executor", packages=packages or None, allowed_hosts=allowed_hosts or None)
    _replace(checked, "code_executor", credentials=credentials or None, workspace_mode=workspace_mode)
    if server is not None:
        _move_to(checked, server)
    components: dict[Location, Any] = dict(checked.components)
    configs = [
        value_at(checked.data, path)["config"] for path, each in components.items() if each.component_type == "agent"
    ]
    names = [config["name"] for config in configs if "name" in config]
    if unknown := [name for name in agents if name not in names]:
        raise RequestError(f"The team has no agent {unknown[0]!r}; its agents are {', '.join(names)}.")
    client = None if model is None else resolve_model(model, env=env, trust=trust)

    def make(text: str | None) -> ChatCompletionClient:
        return client if client is not None else make_model(text or "", env=env, trust=trust)

    return build(checked, Team, make)  # type: ignore[type-abstract]


def _replace(checked: Checked, kind: str, **settings: Any) -> None:
    """Replace settings, which are not `None`, of the team itself or of all executors."""
    for setting, value in settings.items():
        name = "network" if setting == "allowed_hosts" else setting
        if value is None:
            continue
        components: dict[Location, Any] = dict(checked.components)
        paths = [
            path
            for path, component in components.items()
            if component.component_type == kind
            and name in component.component_config_schema.model_fields
            and (kind != "team" or path == ())
        ]
        if not paths:
            where = "the team" if kind == "team" else "no executor of the team"
            raise RequestError(
                f"{name} cannot be set: {where} {'does not have' if kind == 'team' else 'has'} this field."
            )
        for path in paths:
            config = value_at(checked.data, path)["config"]
            if setting == "credentials":
                config[name] = {**config.get(name, {}), **value}
            elif setting in ("packages", "allowed_hosts"):  # More of them.
                own = getattr(components[path].component_config_schema.model_validate(config), name)
                if own is True:
                    raise RequestError(
                        f"{', '.join(value)}: the team lets code use the whole network (network: true). Hosts can be "
                        "named instead of it, with --no-network (network=False)."
                    )
                config[name] = [*(own if isinstance(own, list) else [own] if own else []), *value]
            else:
                config[name] = value
            try:
                components[path].component_config_schema.model_validate(config)
            except ValidationError as error:
                shown = (
                    f"{value:g}" if isinstance(value, int | float) else "these" if setting == "credentials" else value
                )
                raise RequestError(f"{name} cannot be set to {shown}: {misfits(error)}.") from error


def _move_to(checked: Checked, server: str) -> None:
    """Let all executors run their code at a server."""
    RemoteSandbox(server)  # Refuses what is no URL.
    components: dict[Location, Any] = dict(checked.components)
    paths = [
        path
        for path, component in components.items()
        if component.component_type == "code_executor"
        and {"engine", "options"} <= component.component_config_schema.model_fields.keys()
    ]
    if not paths:
        raise RequestError("No executor of the team can run code at a server: that needs a SandboxCodeExecutor.")
    for path in paths:
        config = value_at(checked.data, path)["config"]
        for name in ("wall", "python", "readable", "environment"):
            config.pop(name, None)
        config |= {"engine": "remote", "options": {"url": server}}


def check_team(
    path_or_name: str | Path,
    *,
    trust: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    model_replaced: bool = False,
) -> list[Problem]:
    """List every mistake of a team file, without its models, and without running any code of it.

    Args:
        path_or_name: As for `load_team`.
        trust: As for `load_team`; other providers are not imported.
        env: As for `load_team`.
        model_replaced: Skip what is under `model_client`, because loading replaces it.

    Returns:
        The mistakes in the order of the file; empty if `load_team` has nothing to refuse.

    Raises:
        RequestError: There is no such file or team.
    """
    try:
        checked = examine(find_source(path_or_name), TEAM, trust, env, replace_models=model_replaced)
        return checked.problems or rehearse(checked)
    except ConfigError as error:
        return list(error.problems)


def team_warnings(
    path_or_name: str | Path, *, trust: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> list[Problem]:
    """List what `load_team` accepts but the author of a team file may not have meant.

    Args:
        path_or_name: As for `load_team`.
        trust: As for `load_team`; other providers are not imported.
        env: As for `load_team`.

    Returns:
        The warnings in the order of the file; empty if the file cannot be read.

    Raises:
        RequestError: There is no such file or team.
    """
    try:
        return examine(find_source(path_or_name), TEAM, trust, env).warnings
    except ConfigError:
        return []


def shipped_teams() -> dict[str, str]:
    """List the teams that come with the package.

    Returns:
        Their descriptions by their names, sorted.
    """
    descriptions = {}
    for name, source in shipped_sources().items():
        data = read_document(source).data
        text = data.get("description") if isinstance(data, dict) else ""
        descriptions[name] = " ".join(str(text or "").split())
    return descriptions


def examine(
    source: Source, kind: Kind, trust: Sequence[str], env: Mapping[str, str] | None, *, replace_models: bool = False
) -> Checked:
    """Read and check a file that describes a component; see `check`."""
    env = os.environ if env is None else env
    return check(read_component(source), kind, Components.trusting(trust, env), env, replace_models=replace_models)


def make_model(spec: str, *, env: Mapping[str, str] | None = None, trust: Sequence[str] = ()) -> ChatCompletionClient:
    """Make a model client.

    Args:
        spec: `openai:NAME`, `azure:DEPLOYMENT`, `anthropic:NAME`, `ollama:NAME`, `gemini:NAME`, `openrouter:NAME`,
            `vllm:NAME`, `http://HOST/v1#NAME` for any server with OpenAI's protocol, `replay:FILE`, or a path to a YAML
            or JSON file that holds one model component.
        env: The variables with keys and addresses; by default the environment.
        trust: Namespaces whose providers a file may name, besides `autogen_*` and `coderoom`.

    Returns:
        The client.

    Raises:
        RequestError: The text has none of these forms, or the file is not there.
        ConfigError: The file has mistakes.
        MissingDependencyError: A package is not installed, or a key is not set.
    """
    env = os.environ if env is None else env
    if spec.startswith(f"{REPLAY}:"):
        return _replay(spec)
    if (found := service_of(spec)) is not None:
        return _client(spec, found[0], env)
    if looks_like_path(spec):
        # A file that refers to the variable with its own name would be read without end.
        inside = {name: value for name, value in env.items() if name != MODEL_VARIABLE}
        checked = examine(find_source(spec), MODEL, trust, inside)
        checked.refuse_mistakes()
        made = partial(make_model, env=inside, trust=trust)
        return build(checked, ChatCompletionClient, made)  # type: ignore[type-abstract]
    prefix, colon, _ = spec.partition(":")
    hint = ""
    if colon:
        hint = did_you_mean(f"{_MAKERS.get(prefix, prefix)}:", [f"{known}:" for known in (*SERVICES, REPLAY)])
    elif spec:
        hint = f"; did you mean '{'replay:FILE' if spec == REPLAY else f'openai:{spec}'}'?"
    expected = f"{hint} Expected" if hint else "; expected"
    raise RequestError(f"there is no model {spec!r}{expected} {MODEL_FORMS}")


def resolve_model(
    model: ChatCompletionClient | str, *, env: Mapping[str, str] | None = None, trust: Sequence[str] = ()
) -> ChatCompletionClient:
    """Return a model client, or make one from a text.

    Args:
        model: A client, or a text that `make_model` understands.
        env: As for `make_model`.
        trust: As for `make_model`.

    Raises:
        RequestError: It is neither, or as `make_model`.
        ConfigError: As `make_model`.
        MissingDependencyError: As `make_model`.
    """
    if isinstance(model, str):
        return make_model(model, env=env, trust=trust)
    if not isinstance(model, ChatCompletionClient):
        raise RequestError(f"expected a model client or a text such as 'openai:gpt-4o', got {model!r}")
    return model


def _client(spec: str, service: Service, env: Mapping[str, str]) -> ChatCompletionClient:
    config = client_config(spec, env)
    try:
        return make_client(service.provider, config)
    except ImportError as error:
        raise MissingDependencyError(f"the model {spec!r} cannot be used: {how_to_install(error)}") from error
    except ValueError as error:
        raise RequestError(f"the model {spec!r} was refused: {error}") from error


def _replay(spec: str) -> ChatCompletionClient:
    name = spec.partition(":")[2].strip()
    if not name:
        raise RequestError(f"the model {spec!r} names nothing after the colon; expected {MODEL_FORMS}")
    source = find_source(name if looks_like_path(name) else f"./{name}")
    if is_recording(source):
        return RecordedModel(name)
    config = _replies_in(source)
    return ReplayModel(config.replies, config.model_info, name=config.name)


@functools.lru_cache(maxsize=4)  # All items of a batch have the same recording.
def _replies_in(source: Source) -> ReplayModelConfig:
    document = read_document(source)
    if isinstance(document.data, list):
        document = document.under("replies")
    elif isinstance(document.data, dict) and "provider" in document.data:
        raise RequestError(f"the file {source.name!r} is not a recording: it describes a team or a model")
    checked = check_config(document, ReplayModelConfig)
    checked.refuse_mistakes()
    return ReplayModelConfig.model_validate({"name": Path(source.name).name, **checked.data})
