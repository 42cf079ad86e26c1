"""Keys of model services: in the system's keyring, and in files of variables that the user names.

Used by the user's config file, by `--env-file`, and where the first run asks for a key.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from coderoom._util.distribution import install_command
from coderoom._util.files import refusing
from coderoom.errors import MissingDependencyError

_SERVICE: Final = "coderoom"
"""The name under which the keyring has the keys; each has the name of its variable."""


def why_no_keyring() -> str:
    """Why no key can be kept in the system's keyring; empty if it can."""
    try:
        found = _keyring().get_keyring()
    except MissingDependencyError as error:
        return str(error)
    return "" if found.priority > 0 else "this system has no keyring that works"


def keep_key(variable: str, key: str) -> None:
    """Keep the key of a variable in the system's keyring.

    Raises:
        MissingDependencyError: There is no keyring, or it is locked.
    """
    keyring = _keyring()
    try:
        keyring.set_password(_SERVICE, variable, key)
    except keyring.errors.KeyringError as error:
        raise MissingDependencyError(f"The keyring does not take the key {variable}: {error}") from error


def kept_key(variable: str) -> str:
    """The key of a variable in the system's keyring.

    Raises:
        MissingDependencyError: There is no keyring, it is locked, or it has no such key.
    """
    keyring = _keyring()
    try:
        key = keyring.get_password(_SERVICE, variable)
    except keyring.errors.KeyringError as error:
        raise MissingDependencyError(f"The keyring does not give the key {variable}: {error}") from error
    if not key:
        raise MissingDependencyError(f"The keyring has no key {variable}: `coderoom models --setup` asks for it.")
    return str(key)


def _keyring() -> Any:
    try:
        return import_module("keyring")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"the keyring needs a package: {install_command('keyring')}") from error


def set_from_file(path: Path, env: MutableMapping[str, str], over: Collection[str] = ()) -> None:
    """Set the variables of a file, such as `.env`, that have no value yet.

    Args:
        path: The file, with `NAME=value` in each line.
        env: Where they are set.
        over: Variables that are set in any case.

    Raises:
        RequestError: The file cannot be read.
        MissingDependencyError: The package for it is not installed.
    """
    try:
        from dotenv import dotenv_values
    except ModuleNotFoundError as error:
        raise MissingDependencyError("A file of variables needs a package: pip install python-dotenv") from error
    with (
        refusing(f"The file of variables {str(path)!r} cannot be read"),
        path.expanduser().open(encoding="utf-8") as file,
    ):
        found = dotenv_values(stream=file)
    for name, value in found.items():
        if value and (name in over or not env.get(name, "").strip()):
            env[name] = value
