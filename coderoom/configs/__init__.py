"""Team files: AutoGen's component format in YAML or JSON, checked as a whole before anything is built.

`load_team` loads a team from a file, or a shipped team by name; `dump_team` writes a team; `check_team` lists all
mistakes of a file, and `team_warnings` what it accepts but may not be meant; `read_team` reads one to show it.
`shipped_teams` lists the teams that come with the package, `write_starter` writes a team file to start from, and
`convert_team` converts one of AutoGen's.

`make_model` makes a model client from a short text such as `openai:gpt-4o`; `default_model` is that text if none is
given, and `resolve_model` also accepts a client. `RecordedModel` and `ReplayModel` are the clients behind
`replay:FILE`. `make_gallery` makes
a gallery for AutoGen Studio, and `make_schema` the JSON Schema of team files; `write_made` writes either to a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coderoom._util.lazy import lazy

if TYPE_CHECKING:
    from coderoom.configs.converting import Conversion, convert_team
    from coderoom.configs.dumping import dump_team, known_secrets, secrets_of, write_made
    from coderoom.configs.gallery import make_gallery
    from coderoom.configs.loading import (
        check_team,
        load_team,
        make_model,
        resolve_model,
        shipped_teams,
        team_warnings,
    )
    from coderoom.configs.reading import Source, find_source, read_team, write_starter
    from coderoom.configs.schema import make_schema
    from coderoom.models.recorded import RecordedModel, ReplayModel
    from coderoom.models.services import default_model

__all__ = [
    "Conversion",
    "RecordedModel",
    "ReplayModel",
    "Source",
    "check_team",
    "convert_team",
    "default_model",
    "dump_team",
    "find_source",
    "known_secrets",
    "load_team",
    "make_gallery",
    "make_model",
    "make_schema",
    "read_team",
    "resolve_model",
    "secrets_of",
    "shipped_teams",
    "team_warnings",
    "write_made",
    "write_starter",
]

# Lazy, because AutoGen takes a third of a second to import, and most commands do not need it.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "coderoom.configs.converting": "Conversion convert_team",
        "coderoom.configs.dumping": "dump_team known_secrets secrets_of write_made",
        "coderoom.configs.gallery": "make_gallery",
        "coderoom.configs.loading": "check_team load_team make_model resolve_model shipped_teams team_warnings",
        "coderoom.configs.reading": "Source find_source read_team write_starter",
        "coderoom.configs.schema": "make_schema",
        "coderoom.models.recorded": "RecordedModel ReplayModel",
        "coderoom.models.services": "default_model",
    },
)
