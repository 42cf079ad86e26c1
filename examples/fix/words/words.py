"""Counts and shortens words."""

from __future__ import annotations

import re


def count(text: str) -> dict[str, int]:
    """How often each word is in a text, in small letters."""
    found: dict[str, int] = {}
    for word in re.findall(r"[a-z]+", text.lower()):
        found[word] = found.get(word, 0) + 1
    return found


def shorten(text: str, most: int) -> str:
    """A text with at most so many characters: whole words, and an ellipsis for the rest."""
    if len(text) <= most:
        return text
    return text[:most].rsplit(" ", 1)[0] + "…"
