"""The user's config file, with the values of variables that are not set. Each command begins with it."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

from coderoom._util.files import refusing
from coderoom.errors import ConfigError, MissingDependencyError, Problem, RequestError
from coderoom.models.keys import kept_key, set_from_file

_VARIABLES: Final = {
    "model": "CODEROOM_MODEL",
    "wall": "CODEROOM_WALL",
    "workspace": "CODEROOM_WORKSPACE",
    "prices": "CODEROOM_PRICES",
}
_KEYS: Final = (*_VARIABLES, "env_file", "keyring")


def user_config_path() -> Path:
    """The file: `coderoom/config.yaml` in the user's config folder, which `XDG_CONFIG_HOME` may name."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "coderoom" / "config.yaml"


def read_user_config() -> dict[str, str]:
    """What the user's config file says, by key; empty if there is no file.

    Raises:
        ConfigError: It has mistakes.
        MissingDependencyError: It cannot be read without a package.
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
        raise ConfigError([Problem(f"expected a mapping with {', '.join(_KEYS)}", str(path))])
    found: list[tuple[tuple[str, ...], str]] = []
    for key, value in document.data.items():
        if key not in _KEYS:
            found.append(((key,), f"unknown key {key!r}{did_you_mean(key, _KEYS)}"))
        elif not isinstance(value, str) or not value.strip():
            found.append(((key,), "expected a text"))
        elif key == "wall":
            try:
                Sandbox(value)
            except RequestError as error:
                found.append(((key,), str(error)))
    if problems := [*document.problems, *document.distinct_problems(found)]:
        raise ConfigError(problems)
    return dict(document.data)


def apply_user_config(env: MutableMapping[str, str]) -> set[str]:
    """Set the variables that the user's config file names and that have no value yet.

    Returns:
        The variables that were set.

    Raises:
        ConfigError: The file has mistakes.
        MissingDependencyError: It cannot be read without a package.
        RequestError: The file of variables that it names cannot be read.
    """
    config, before = read_user_config(), dict(env)
    if file := config.get("env_file"):
        set_from_file(Path(file), env)
    for key, variable in _VARIABLES.items():
        if value := config.get(key):
            path_or_text = str(Path(value).expanduser()) if value.startswith("~") else value
            env[variable] = env.get(variable, "").strip() or path_or_text
    return {name for name, value in env.items() if before.get(name) != value}


def apply_kept_keys(env: MutableMapping[str, str]) -> None:
    """Set the keys that the user's config file says the system's keyring has, and that have no value yet.

    Raises:
        MissingDependencyError: The keyring does not give one of them.
    """
    for variable in read_user_config().get("keyring", "").replace(",", " ").split():
        if not env.get(variable):
            env[variable] = kept_key(variable)


def save_in_user_config(values: Mapping[str, str]) -> Path:
    """Write values into the user's config file, in which all else stays as it is; return the file."""
    from ruamel.yaml import YAML

    path, yaml = user_config_path(), YAML()
    with refusing(f"The config file {str(path)!r} cannot be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        data = (yaml.load(path) if path.is_file() else None) or {}
        data.update(values)
        yaml.dump(data, path)
    return path
