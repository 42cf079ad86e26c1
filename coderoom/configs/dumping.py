"""Writing teams as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from coderoom.configs.locations import in_a_line
from coderoom.errors import RequestError

if TYPE_CHECKING:
    from autogen_agentchat.base import Team

__all__ = ["dump_team"]


def dump_team(team: Team, path: str | Path | None = None) -> str:
    """Write a team in AutoGen's component format.

    A team that came from a file with `load_team` keeps what the file said: references such as `${NAME}`, and the
    descriptions and labels. A secret without a reference is left out. Where `load_team` was given a model, the dump has
    that model. If a part cannot be dumped (some clients; AutoGen's `FunctionTool` once it was loaded), the dump of a
    team from a file is what the file says.

    Args:
        team: The team.
        path: A file to write, as JSON if its name ends in `.json`. It is replaced in one step, or not at all.

    Returns:
        The text, which is YAML unless the file is JSON.

    Raises:
        RequestError: The team has a part that cannot be dumped, or the file cannot be written.
    """
    from coderoom.configs.writing import replace_file, to_json, to_yaml  # slow: it imports ruamel.yaml

    as_json = path is not None and str(path).lower().endswith(".json")
    data = _content(team)
    try:
        text = to_json(data) if as_json else to_yaml(data)
    except (TypeError, ValueError) as error:
        raise RequestError(f"the team cannot be written: {error}") from error
    if path is not None:
        replace_file(Path(path), text)
    return text


def _content(team: Team) -> Any:
    from coderoom.configs.restoring import origin_of, plain, restored, written

    origin = origin_of(team)
    try:
        data = plain(team.dump_component().model_dump(exclude_none=True))
    except Exception as error:  # a component of somebody else's may raise anything
        if origin is not None:
            return written(origin)
        message = f"the {type(team).__name__} has a part that cannot be dumped: {in_a_line(error)}"
        raise RequestError(message) from error
    return restored(data, origin)
