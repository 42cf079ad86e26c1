"""Hiding secrets in what is written to files: values of variables that hold keys, and what looks like a key."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Final

from coderoom.configs.variables import MASK, is_secret_name

_SHORTEST_SECRET: Final = 6
_KEYS: Final = re.compile(
    r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf]))"  # In JSON, a line break before it is a letter.
    r"(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|xox[abprs]-[\w-]{10,}"
    r"|hf_\w{20,}|ey[JK][\w-]{10,}\.[\w-]{10,}\.[\w-]{10,})"
)
"""What looks like the key of a service."""


class Masking:
    """Replaces secrets in texts: at first, the values of variables of the environment whose names tell of secrets."""

    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}
        self._secret: re.Pattern[str] = _KEYS
        found = {value: f"${{{name}}}" for name, value in os.environ.items() if is_secret_name(name)}
        self.hide_values({value: name for value, name in found.items() if not value.startswith("/")})  # As PWD.

    def hide_values(self, secrets: Mapping[str, str]) -> None:
        """Have these values, of 6 characters or more, replaced from now on."""
        for value, instead in secrets.items():
            if len(value) >= _SHORTEST_SECRET:
                self._secrets |= {value: instead, json.dumps(value)[1:-1]: instead}
        known = sorted(self._secrets, key=len, reverse=True)
        self._secret = re.compile("|".join([*map(re.escape, known), _KEYS.pattern]))

    def hide(self, text: str) -> str:
        """Replace secret values, and what looks like a key, in a text."""
        return self._secret.sub(lambda found: self._secrets.get(found[0], MASK), text)

    def restore(self, text: str) -> str:
        """Put the values of variables back into JSON text, which were replaced by the names of these."""
        values = {instead: value for value, instead in self._secrets.items()}  # Of two, the one as JSON comes last.
        return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], text) if values else text
