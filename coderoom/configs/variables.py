"""Resolves `${NAME}` and `${NAME:-default}` in the texts of a document, and keeps secret values out of messages.

`$${` means a literal `${`. As in a shell, the default of `:-` also replaces a variable that is set but empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coderoom._util.text import SHORTEST_SECRET, is_secret_name
from coderoom.configs.yaml import Location, show_key

_TOKEN = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\})?")
_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<or>:-(?P<default>.*))?", re.DOTALL)
_SECRET_KEY = re.compile(
    r"(?:^|_)(?:api_?key|secret(?:_key)?|password|passwd|authorization|(?:access|auth|ad|bearer|refresh|session)_token)$",
    re.IGNORECASE,
)
_LITERALLY = "for a literal '${' write '$${'"


@dataclass(frozen=True, slots=True)
class Reference:
    """A text that refers to variables, with their values if there are no problems, and the variables that it uses."""

    raw: str
    value: str
    used: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class References(dict[Location, Reference]):
    """The texts of a document that refer to variables, by location."""

    def hide(self, text: str) -> str:
        """Replace secret values in a text by their references."""
        secrets = {
            value: f"${{{name}}}"
            for reference in self.values()
            for name, value in reference.used.items()
            if len(value) >= SHORTEST_SECRET and is_secret_name(name)
        }
        for value, name in secrets.items():
            text = text.replace(value, name)
            if "..." in text:  # The value may be shortened.
                cut = next((n for n in range(len(value) - 1, 5, -1) if f"{value[:n]}..." in text), None)
                text = text if cut is None else text.replace(value[:cut], name)
        return text


def is_secret_key(key: str) -> bool:
    """Whether a text under this key of a config must not be shown or written."""
    return bool(_SECRET_KEY.search(key.replace("-", "_")))


def escape(text: str) -> str:
    """Write a text so that `resolve` returns it unchanged."""
    return text.replace("${", "$${")


def resolve(text: str, env: Mapping[str, str]) -> Reference | str:
    """Insert the values of variables into a text: a `Reference` if it refers to variables or tries to."""
    used: dict[str, str] = {}
    problems: list[str] = []

    def replace(token: re.Match[str]) -> str:
        if token["body"] is None:
            return "${"
        try:
            return _value(token, env, used)
        except LookupError as error:
            problems.append(str(error.args[0]))
            return token[0]

    value = _TOKEN.sub(replace, text)
    if problems:
        return Reference(text, text, {}, tuple(dict.fromkeys(problems)))
    refers = any(token["body"] is not None for token in _TOKEN.finditer(text))
    return Reference(text, value, used) if refers else value


def resolve_all(
    data: Any, env: Mapping[str, str], found: Callable[[Location, Reference], None], path: Location = ()
) -> Any:
    """Copy a document with its references resolved, except in keys; `found` is called with each reference."""
    if isinstance(data, dict):
        return {key: resolve_all(value, env, found, (*path, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [resolve_all(value, env, found, (*path, index)) for index, value in enumerate(data)]
    if isinstance(data, str) and "${" in data:
        resolved = resolve(data, env)
        if isinstance(resolved, Reference):
            found(path, resolved)
            return resolved.value
        return resolved
    return data


def _value(token: re.Match[str], env: Mapping[str, str], used: dict[str, str]) -> str:
    body = token["body"]
    if token["end"] is None:
        raise LookupError(f"the reference {show_key(token[0])} is never closed with '}}'; {_LITERALLY}")
    parts = _BODY.fullmatch(body)
    if parts is None:
        raise LookupError(f"{show_key(token[0])} does not name a variable; {_LITERALLY}")
    name, default = parts["name"], parts["default"]
    if default is not None and "{" in default:
        raise LookupError(f"the default of ${{{name}}} cannot hold a '{{', and so no other reference")
    value = env.get(name)
    if value is None or (value == "" and default is not None):
        if default is None:
            message = f"the environment variable {name!r} is not set; set it, or write ${{{name}:-default}}"
            raise LookupError(message)
        return str(default)
    used[name] = value
    return value
