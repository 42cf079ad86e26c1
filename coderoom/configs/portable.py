"""What of a team makes sense on one machine only, or may not leave it."""

from __future__ import annotations

import os
import re
from pathlib import Path as FilePath
from typing import Any

from pydantic import SecretBytes, SecretStr

from coderoom.configs.findings import Checked
from coderoom.configs.locations import Path, show_key
from coderoom.configs.shapes import alternatives, fields_by_key
from coderoom.configs.variables import is_secret_key, is_secret_name
from coderoom.errors import Problem, RequestError

__all__ = ["find_unportable", "refuse_environment", "resolved_numbers", "without_secrets"]

_MASK = "**********"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
_PATH_KEYS = {"work_dir", "bind_dir", "cwd", "python", "readable", "output_dir", "downloads_folder", "cache_dir"}
_ABSOLUTE = re.compile(r"[/~\\]|[A-Za-z]:[/\\]")
_CREDENTIALS = re.compile(r"://[^/\s:@]*:[^/\s@]+@|\bhttps?://[^/\s@?#]+@")
_IN_QUERY = re.compile(r"[?&]([\w.-]+)=[^&\s]{8,}")
_OPTION = re.compile(r"--?([\w-]+)(?:=(.*))?", re.DOTALL)
_NAMED_BY_OTHERS = re.compile(r"(?:.*_)?(?:headers|env|query|cookies)")
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# The keys of services that mark theirs, so that they are known wherever they stand.
_KEY_OF_A_SERVICE = re.compile(
    r"\b(?:sk-(?=[a-zA-Z_-]*\d)[\w-]{20,}|gh[opsru]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|hf_\w{20,}|xox[abprs]-[\w-]{10,}"
    r"|AIza[\w-]{35}|AKIA[A-Z0-9]{16})|\bBearer [\w.~+/-]{16,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_LOOKS_LIKE_A_KEY = "this looks like a key, which a gallery of Studio does not hold; let it come from the environment"
_LONG_ENOUGH = 12
"""Shorter secrets are words too often to look for them in texts."""


def without_secrets(data: Any, named_by_others: bool = False) -> Any:
    """Copy a document without what a key or a password stands in, referred to or literally.

    Args:
        data: The document, or a part of it.
        named_by_others: Whether its keys are the names of variables or headers.
    """
    if isinstance(data, dict):
        return {
            key: without_secrets(value, _NAMED_BY_OTHERS.fullmatch(key) is not None)
            for key, value in data.items()
            if not _is_secret(key, value) and not (named_by_others and is_secret_name(_in_words(key)))
        }
    if isinstance(data, list):
        return [without_secrets(value) for value in data]
    return data


def find_unportable(checked: Checked) -> list[Problem]:
    """List what cannot be written for other machines, and take away what is a secret by its type.

    Args:
        checked: The checked team.

    Returns:
        The mistakes: references without defaults, and paths of this machine.
    """
    document = checked.document
    told = [
        (
            path,
            f"{show_key(reference.raw)} needs a default here, as in '${{NAME:-default}}': "
            "a gallery of Studio takes nothing from the environment",
        )
        for path, reference in checked.references.items()
        if reference.problems
    ]
    for path, component_class in checked.components.items():
        _drop_secret_fields(_at(checked.data, (*path, "config")), component_class)
    places = _texts(checked.data, ())
    told += [(path, reason) for path, text in places for reason in _reasons(path, text)]
    told += [(path, _LOOKS_LIKE_A_KEY) for path in _keys_in_arguments(checked.data, ())]
    # What an alias repeats has the place of its anchor, and is told for its first use only.
    unique = {(document.mark(path), message): path for path, message in reversed(told)}
    return [document.problem(path, message) for (_, message), path in reversed(unique.items())]


def refuse_environment(text: str) -> None:
    """Refuse a text in which the value of a secret variable stands, wherever it came from.

    Raises:
        RequestError: It does.
    """
    for name, value in os.environ.items():
        if is_secret_name(name) and len(value) >= _LONG_ENOUGH and value in text:
            raise RequestError(f"the value of the environment variable {name!r} stands in a team; it is not written")


def resolved_numbers(checked: Checked) -> None:
    """Make the numbers and truth values of texts that a reference was resolved to, as Studio's forms want them."""
    for path in checked.references:
        place = max((other for other in checked.components if path[: len(other)] == other), key=len, default=None)
        if place is None or path[len(place) : len(place) + 1] != ("config",):
            continue
        inside = path[len(place) + 1 :]
        schema: Any = checked.components[place].component_config_schema  # type: ignore[attr-defined]
        config = _at(checked.data, (*place, "config"))
        value = _at(schema.model_validate(config).model_dump(mode="json", warnings=False), inside)
        if isinstance(value, (bool, int, float)):
            _at(checked.data, path[:-1])[path[-1]] = value


def _is_secret(key: str, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    if is_secret_key(key) or value == _MASK:
        return True
    # The names of variables that a server is given.
    if key.isupper() and is_secret_name(key):
        return True
    refers = _REFERENCE.fullmatch(value)
    return refers is not None and is_secret_name(refers[1])


def _drop_secret_fields(config: dict[str, Any], component_class: Any) -> None:
    schema = component_class.component_config_schema
    for key, name in fields_by_key(schema).items():
        if {SecretStr, SecretBytes} & {
            kind for kind in alternatives(schema.model_fields[name].annotation) if isinstance(kind, type)
        }:
            config.pop(key, None)


def _reasons(path: Path, text: str) -> list[str]:
    keys = [step for step in path if isinstance(step, str)]
    is_place = bool(keys) and keys[-1] in _PATH_KEYS and _ABSOLUTE.match(text)
    # A folder such as `/tmp` is one of every machine.
    own = [
        str(folder)
        for folder in (FilePath.home(), FilePath.cwd())
        if len(folder.parts) > 2 or folder == FilePath.home()
    ]
    is_own = any(len(folder) > 1 and re.search(rf"{re.escape(folder)}(?![\w.-])", text) for folder in own)
    if is_place or is_own:
        return ["this is a path of this machine, which a gallery of Studio does not hold; write a relative one"]
    in_query = "://" in text and any(is_secret_name(_in_words(name)) for name in _IN_QUERY.findall(text))
    if in_query or _CREDENTIALS.search(text):
        return ["there is a password or a key in this URL, which a gallery of Studio does not hold"]
    return [_LOOKS_LIKE_A_KEY] if _KEY_OF_A_SERVICE.search(text) else []


def _in_words(name: str) -> str:
    """A name such as `X-Api-Key` or `apiKey` as variables are written."""
    return _CAPITAL.sub("_", name).replace("-", "_").replace(".", "_")


def _keys_in_arguments(data: Any, path: Path) -> list[Path]:
    """Where a program is given a key: `--token=...`, or `--token` and what follows."""
    found: list[Path] = []
    if isinstance(data, list):
        for index, text in enumerate(data):
            option = _OPTION.fullmatch(text) if isinstance(text, str) else None
            if option is None or not (is_secret_key(option[1]) or option[1].lower().endswith("token")):
                continue
            following = data[index + 1] if index + 1 < len(data) else None
            value = following if option[2] is None else option[2]
            if isinstance(value, str) and value and not value.startswith("-"):
                found.append((*path, index))
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return found + [place for key, value in items for place in _keys_in_arguments(value, (*path, key))]


def _texts(data: Any, path: Path) -> list[tuple[Path, str]]:
    if isinstance(data, str):
        return [(path, data)]
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [found for key, value in items for found in _texts(value, (*path, key))]


def _at(data: Any, path: Path) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data
