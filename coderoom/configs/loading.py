"""Loads team files: reads and checks them, then builds the components that they describe.

A team that is loaded with another model has a placeholder under every `model_client`. Building the placeholder returns
that model's client. This works for every agent that loads its client with `load_component`.
"""

from __future__ import annotations

import copy
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self, TypeVar

from autogen_agentchat.base import Team
from autogen_core import Component, ComponentLoader
from autogen_core.models import ChatCompletionClient

from coderoom._util.components import StrictConfig
from coderoom._util.services import OPENAI
from coderoom.configs.checking import check
from coderoom.configs.components import TEAM, Components, Kind, how_to_install, provider_of
from coderoom.configs.dumping import remember
from coderoom.configs.findings import Checked
from coderoom.configs.reading import Source, find_source, read_component, read_document, shipped_sources
from coderoom.configs.yaml import Location, value_at
from coderoom.errors import (
    CodeRoomError,
    ConfigError,
    MissingDependencyError,
    Problem,
    RequestError,
    SandboxUnavailable,
)

T = TypeVar("T")


def load_team(
    path_or_name: str | Path | Source,
    model: ChatCompletionClient | str | None = None,
    *,
    trust: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    max_turns: int | None = None,
    network: bool | None = None,
    timeout: float | None = None,
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

    Returns:
        The team.

    Raises:
        ConfigError: The file has mistakes; all of them are listed.
        RequestError: There is no such file, team or model, or nothing in the team has a field to replace.
        MissingDependencyError: A package is not installed, or a key is not set.
    """
    from coderoom.configs.models import make_model, resolve_model  # It imports this module.

    env = os.environ if env is None else env
    checked = examine(find_source(path_or_name), TEAM, trust, env, replace_models=model is not None)
    checked.refuse_mistakes()
    _replace(checked, "team", max_turns=max_turns)
    _replace(checked, "code_executor", network=network, timeout=timeout)
    client = None if model is None else resolve_model(model, env=env, trust=trust)

    def make(text: str | None) -> ChatCompletionClient:
        return client if client is not None else make_model(text or "", env=env, trust=trust)

    team = build(checked, Team, make)  # type: ignore[type-abstract]
    remember(team, checked)
    return team


def _replace(checked: Checked, kind: str, **settings: Any) -> None:
    """Replace settings, which are not `None`, of the team itself or of all executors."""
    for name, value in settings.items():
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
            value_at(checked.data, path)["config"][name] = value


def check_team(
    path_or_name: str | Path,
    *,
    trust: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    model_replaced: bool = False,
) -> list[Problem]:
    """List every mistake of a team file without building anything.

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
    env = os.environ if env is None else env
    try:
        return examine(find_source(path_or_name), TEAM, trust, env, replace_models=model_replaced).problems
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
        return examine(find_source(path_or_name), TEAM, trust, os.environ if env is None else env).warnings
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
    source: Source, kind: Kind, trust: Sequence[str], env: Mapping[str, str], *, replace_models: bool = False
) -> Checked:
    """Read and check a file that describes a component; see `check`."""
    components = Components.trusting(trust, env)
    checked = check(read_component(source), kind, components, env, replace_models=replace_models)
    if env.get("OPENAI_BASE_URL") and not env.get("OPENAI_API_KEY"):
        # A server of the user's own may need no key, but the client requires one.
        for path, component_class in checked.components.items():
            config = value_at(checked.data, path)["config"]
            if provider_of(component_class) == OPENAI and not config.get("api_key"):
                config["api_key"] = "none"
                checked.as_written.add(path)
    return checked


MakeModel = Callable[[str | None], ChatCompletionClient]

_make: ContextVar[MakeModel | None] = ContextVar("coderoom_injected_model", default=None)


class InjectedModelConfig(StrictConfig):
    """The config of the placeholder: the text that `make_model` understands, or `None` for the model that is given."""

    text: str | None = None


class InjectedModel(ChatCompletionClient, Component[InjectedModelConfig]):
    """The placeholder for a model client; it is never instantiated."""

    component_type = "model"
    component_config_schema = InjectedModelConfig
    component_provider_override = "coderoom.configs.loading.InjectedModel"

    @classmethod
    def _from_config(cls, config: InjectedModelConfig) -> Self:
        make = _make.get()
        if make is None:
            raise RuntimeError("the placeholder of a model client was loaded outside of coderoom.load_team")
        client: Any = make(config.text)
        return client  # type: ignore[no-any-return]


def build(checked: Checked, expected: type[T], make: MakeModel) -> T:
    """Build the component that a file without mistakes describes; `make` makes the clients in place of placeholders."""
    # One client for all agents with the same model: a recording has an order.
    token = _make.set(functools.cache(make))
    try:
        return _load(checked.data, expected)
    except Exception as error:
        path, cause = _culprit(checked, error)
        raise _as_our_own(checked, path, cause) from cause
    finally:
        _make.reset(token)


def _load(data: dict[str, Any], expected: type[T]) -> T:
    # AutoGen modifies its argument.
    return ComponentLoader.load_component(copy.deepcopy(data), expected)


def _culprit(checked: Checked, error: Exception) -> tuple[Location, Exception]:
    """Find the innermost component that fails on its own."""
    for path in (*checked.replaced, *checked.components):
        try:
            _load(value_at(checked.data, path), object)
        except Exception as cause:
            return path, cause
    return (), error


def _as_our_own(checked: Checked, path: Location, error: Exception) -> CodeRoomError:
    if isinstance(error, (ConfigError, SandboxUnavailable)):
        return error
    name = checked.components[path].__name__ if path in checked.components else "the model"
    missing = None
    if isinstance(error, MissingDependencyError):
        missing = checked.references.hide(str(error))
    elif isinstance(error, ImportError):
        missing = f"{name}: {how_to_install(error)}"
    elif _is_missing_key(error):
        missing = f"{name} has no API key; set OPENAI_API_KEY, or give another model (--model NAME)"
    if missing is not None:
        return MissingDependencyError(str(checked.document.problem(path, missing)))
    text = checked.references.hide(" ".join(str(error).split()))
    kind = "" if isinstance(error, RequestError) else f"{type(error).__name__}: "
    return ConfigError([checked.document.problem(path, f"{name} could not be made: {kind}{text}")])


def _is_missing_key(error: Exception) -> bool:
    openai = sys.modules.get("openai")
    return openai is not None and type(error) is openai.OpenAIError and "api_key" in str(error)
