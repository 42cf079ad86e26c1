"""The user's config file, with the values of variables that are not set. Each command begins with it."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from coderoom.errors import ConfigError, MissingDependencyError, Problem, RequestError

_VARIABLES: Final = {
    "model": "CODEROOM_MODEL",
    "wall": "CODEROOM_WALL",
    "workspace": "CODEROOM_WORKSPACE",
    "prices": "CODEROOM_PRICES",
}


def user_config_path() -> Path:
    """The file: `coderoom/config.yaml` in the user's config folder, which `XDG_CONFIG_HOME` may name."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "coderoom" / "config.yaml"


def apply_user_config(env: MutableMapping[str, str]) -> dict[str, str]:
    """Set the variables that the user's config file names and that have no value yet.

    What the file says is returned by key: `model`, `wall`, `workspace` and `prices`; empty if there is no file.
    """
    path = user_config_path()
    if not path.is_file():
        return {}
    # Only here, because few have such a file, and each command begins with this.
    try:
        from coderoom.configs.reading import find_source, read_document
        from coderoom.configs.yaml import did_you_mean
    except ModuleNotFoundError as error:  # `ruamel.yaml`, which coderoom-slim leaves out.
        words = f"The config file {str(path)!r} cannot be read without {error.name}: pip install 'coderoom-slim[cli]'"
        raise MissingDependencyError(words) from error
    from coderoom.sandbox import Sandbox

    document = read_document(find_source(path))
    if not isinstance(document.data, dict):
        raise ConfigError([Problem(f"expected a mapping with {', '.join(_VARIABLES)}", str(path))])
    found: list[tuple[tuple[str, ...], str]] = []
    for key, value in document.data.items():
        if key not in _VARIABLES:
            found.append(((key,), f"unknown key {key!r}{did_you_mean(key, _VARIABLES)}"))
        elif not isinstance(value, str) or not value.strip():
            found.append(((key,), "expected a text"))
        elif key == "wall":
            try:
                Sandbox(value)
            except RequestError as error:
                found.append(((key,), str(error)))
    if problems := [*document.problems, *document.distinct_problems(found)]:
        raise ConfigError(problems)
    for key, value in document.data.items():
        path_or_text = str(Path(value).expanduser()) if value.startswith("~") else value
        env[_VARIABLES[key]] = env.get(_VARIABLES[key], "").strip() or path_or_text
    return dict(document.data)
