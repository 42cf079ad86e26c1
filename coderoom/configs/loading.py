"""Reading, checking and loading team files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coderoom.configs.kinds import TEAM, Kind
from coderoom.configs.providers import Components
from coderoom.configs.reading import Source, find_source, read_component, read_document, shipped_sources
from coderoom.errors import ConfigError, Problem

if TYPE_CHECKING:
    from autogen_agentchat.base import Team
    from autogen_core.models import ChatCompletionClient

    from coderoom.configs.findings import Checked

# AutoGen, and what needs it, is imported inside the functions: a file that cannot be read is told of without it.

__all__ = ["check_team", "examine", "load_team", "shipped_teams"]


def load_team(
    path_or_name: str | Path,
    model: ChatCompletionClient | str | None = None,
    *,
    trust: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Team:
    """Load a team from a file, or a shipped team by its name.

    Args:
        path_or_name: A path to a YAML or JSON file, or the name of a shipped team: a text without a path separator
            and without a suffix.
        model: A model client, or a text that `make_model` understands. It takes the place of every component under a
            key `model_client`: all of them are then this one object, and what the file says there is not even read.
        trust: Namespaces whose providers may be imported, besides `autogen_*` and `coderoom`.
        env: The variables that `${NAME}` refers to; by default the environment.

    Returns:
        The team.

    Raises:
        ConfigError: The file has mistakes; all of them are listed.
        RequestError: There is no such file, team or model.
        MissingDependencyError: It needs a package that is not installed, or a key that is not set.
    """
    env = os.environ if env is None else env
    checked = examine(find_source(path_or_name), TEAM, trust, env, replace_models=model is not None)

    from autogen_agentchat.base import Team

    from coderoom.configs.build import build, refuse_mistakes
    from coderoom.configs.models import resolve_model
    from coderoom.configs.restoring import remember

    refuse_mistakes(checked)
    client = None if model is None else resolve_model(model, env=env, trust=trust)
    team = build(checked, Team, client)  # type: ignore[type-abstract]
    remember(team, checked)
    return team


def check_team(
    path_or_name: str | Path,
    *,
    trust: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    model_replaced: bool = False,
) -> list[Problem]:
    """List every mistake of a team file, without making anything of what it describes.

    Args:
        path_or_name: As for `load_team`.
        trust: As for `load_team`; other providers are not imported.
        env: As for `load_team`.
        model_replaced: Leave out what stands under `model_client`, as it is replaced when loading.

    Returns:
        The mistakes in the order of the file; none if `load_team` has nothing to refuse.

    Raises:
        RequestError: There is no such file or team.
    """
    env = os.environ if env is None else env
    try:
        return examine(find_source(path_or_name), TEAM, trust, env, replace_models=model_replaced).problems
    except ConfigError as error:
        return list(error.problems)


def shipped_teams() -> dict[str, str]:
    """List the teams that come with the package.

    Returns:
        Their descriptions by their names, sorted.
    """
    return {name: _description(source) for name, source in shipped_sources().items()}


def examine(
    source: Source, kind: Kind, trust: Sequence[str], env: Mapping[str, str], *, replace_models: bool = False
) -> Checked:
    """Read and check a file whose top is a component of a kind.

    Args:
        source: The file.
        kind: What its top has to be.
        trust: Namespaces whose providers may be imported.
        env: The variables that its texts may refer to.
        replace_models: Put a placeholder in place of every component under a key `model_client`.

    Returns:
        Its mistakes and its cleaned content.

    Raises:
        ConfigError: The file cannot be read as a document at all.
    """
    document = read_component(source)

    from coderoom.configs.checking import check

    return check(document, kind, Components.trusting(trust, env), env, replace_models=replace_models)


def _description(source: Source) -> str:
    data: Any = read_document(source).data
    text = data.get("description", "") if isinstance(data, dict) else ""
    return " ".join(str(text or "").split())
