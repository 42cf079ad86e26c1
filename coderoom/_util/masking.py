"""Hiding secrets in what is written to files: values of variables that hold keys, and what looks like a key."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Final, TypeVar

from coderoom._util.text import in_texts

T = TypeVar("T")

MASK: Final = "**********"
"""What AutoGen and pydantic write instead of a secret."""
_SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD|PAT|CREDENTIALS?|AUTH|AUTHORIZATION|COOKIE)(?:_|$)",
    re.IGNORECASE,
)
SHORTEST_SECRET: Final = 6
"""Shorter values are too often ordinary words."""
_KEYS: Final = re.compile(
    r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf]))"  # In JSON inside of a text, a line break before it is a letter.
    r"(?:sk-[\w-]{16,}|[sr]k_(?:live|test)_\w{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|gsk_\w{20,}|xai-\w{20,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|xox[abprs]-[\w-]{10,}|hf_\w{20,}|npm_\w{30,}"
    r"|ey[JK][\w-]{10,}\.[\w-]{10,}\.[\w-]{10,})"
    r"|(?<=://)[^\s/:@\"']{0,100}:[^\s/:@\"']{1,200}(?=@)"
    r"|-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----(?s:.{1,20000}?)-----END (?:[A-Z]+ )*PRIVATE KEY-----"
)
"""What looks like the key of a service, or the user and password of an address."""


def is_secret_name(name: str) -> bool:
    """Whether the value of a variable with this name must not be shown."""
    return bool(_SECRET_NAME.search(name))


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
            if len(value) >= SHORTEST_SECRET:
                self._secrets |= {value: instead, json.dumps(value)[1:-1]: instead}
        known = sorted(self._secrets, key=len, reverse=True)
        self._secret = re.compile("|".join([*map(re.escape, known), _KEYS.pattern]))

    def hide(self, data: T) -> T:
        """Replace secret values, and what looks like a key, in a text or in all texts of JSON-like data."""
        hidden: T = in_texts(data, lambda text: self._secret.sub(lambda found: self._secrets.get(found[0], MASK), text))
        return hidden

    def restore(self, data: T) -> T:
        """Put the values of variables back, which `hide` replaced by their names."""
        values = {instead: value for value, instead in reversed(self._secrets.items())}  # Not the value as JSON.
        known = re.compile("|".join(map(re.escape, values)) or "(?!)")
        restored: T = in_texts(data, lambda text: known.sub(lambda found: values[found[0]], text))
        return restored
