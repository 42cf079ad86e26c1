"""Team files: AutoGen's component format in YAML or JSON, checked as a whole before anything is built.

`load_team` loads a team from a file, or a shipped team by name; `dump_team` writes a team; `check_team` lists all
mistakes of a file, and `team_warnings` what it accepts but may not be meant; `read_team` reads one to show it.
`shipped_teams` lists the teams that come with the package, and `write_starter` writes a team file to start from.

`make_model` makes a model client from a short text such as `openai:gpt-4o`; `default_model` is that text if none is
given, and `resolve_model` also accepts a client. `ReplayModel` is the client behind `replay:FILE`. `make_gallery` makes
a gallery for AutoGen Studio, and `make_schema` the JSON Schema of team files; `write_made` writes either to a file.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coderoom.configs.dumping import dump_team, write_made
    from coderoom.configs.gallery import make_gallery
    from coderoom.configs.loading import check_team, load_team, shipped_teams, team_warnings
    from coderoom.configs.models import default_model, make_model, resolve_model
    from coderoom.configs.reading import read_team
    from coderoom.configs.replay import ReplayModel
    from coderoom.configs.schema import make_schema
    from coderoom.configs.starter import write_starter

__all__ = [
    "ReplayModel",
    "check_team",
    "default_model",
    "dump_team",
    "load_team",
    "make_gallery",
    "make_model",
    "make_schema",
    "read_team",
    "resolve_model",
    "shipped_teams",
    "team_warnings",
    "write_made",
    "write_starter",
]

_MODULES = {
    "ReplayModel": "replay",
    "check_team": "loading",
    "default_model": "models",
    "dump_team": "dumping",
    "load_team": "loading",
    "make_gallery": "gallery",
    "make_model": "models",
    "make_schema": "schema",
    "read_team": "reading",
    "resolve_model": "models",
    "shipped_teams": "loading",
    "team_warnings": "loading",
    "write_made": "dumping",
    "write_starter": "starter",
}


def __getattr__(name: str) -> Any:
    # Lazy, because AutoGen takes a third of a second to import, and most commands do not need it.
    if name in _MODULES:
        return getattr(importlib.import_module(f"coderoom.configs.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
