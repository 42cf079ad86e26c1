"""Team files: AutoGen's component format in YAML or JSON, checked whole before anything is built.

`load_team` makes a team of a file or of a shipped team's name, `dump_team` writes one, `check_team` lists every mistake
of a file, `shipped_teams` names what comes with the package, and `make_model` makes a model client of a short text
such as `openai:gpt-4o`. `default_model` is that text for whoever names no model, `resolve_model` takes a client as
well, and `ReplayModel` is the client behind `replay:FILE`. `make_gallery` makes AutoGen Studio's gallery of teams, and
`make_schema` the JSON Schema of team files; `write_made` writes either to a file.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coderoom.configs.dumping import dump_team
    from coderoom.configs.gallery import make_gallery
    from coderoom.configs.loading import check_team, load_team, shipped_teams
    from coderoom.configs.models import default_model, make_model, resolve_model
    from coderoom.configs.replay import ReplayModel
    from coderoom.configs.schema import make_schema
    from coderoom.configs.writing import write_made

__all__ = [
    "ReplayModel",
    "check_team",
    "default_model",
    "dump_team",
    "load_team",
    "make_gallery",
    "make_model",
    "make_schema",
    "resolve_model",
    "shipped_teams",
    "write_made",
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
    "resolve_model": "models",
    "shipped_teams": "loading",
    "write_made": "writing",
}


def __getattr__(name: str) -> Any:
    # Lazy, because AutoGen takes a third of a second to import and most of what a command line does needs none of it.
    if name in _MODULES:
        return getattr(importlib.import_module(f"coderoom.configs.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
