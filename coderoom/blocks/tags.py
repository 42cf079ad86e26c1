"""Where a document has `<execute>` tags. Used by the rules for fences and for tags."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

from coderoom.blocks.thoughts import find_all

TAG = re.compile(r"<(/?)execute[ \t]{0,100}>", re.IGNORECASE)
_PREFIX = re.compile(r"[ \t>]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]+){0,50}")


class Tag(NamedTuple):
    """A tag, its offsets, and the offsets of the next one and of the one that ends its content; -1: there is none.

    A closing one ends it, or a leading one, which has only the markers of quotes and lists before it on its line.
    """

    start: int
    end: int
    closing: bool
    leading: bool
    following: int
    ended_by: int


class TagIndex:
    """The `<execute>` tags of a document by their offsets, so that each is searched for once.

    A tag in quotes does not count: it is a string in code, or a word in prose.
    """

    def __init__(self, source: str) -> None:
        found: list[tuple[int, int, bool, bool]] = []
        self._fences: list[int] = []
        begin = 0
        while (end := source.find("\n", begin)) >= 0:
            prefix = _PREFIX.match(source, begin, end)
            text = begin if prefix is None else prefix.end()
            if source.startswith(("```", "~~~"), text):
                self._fences.append(begin)
            for match in find_all(TAG, source, begin, end):
                start, stop = match.span()
                if not _is_quoted(source, start, stop):
                    found.append((start, stop, match[1] != "", start == text))
            begin = end + 1
        # Plain tuples of numbers, since Python's collector stops all threads while it looks at objects.
        self._tags: dict[int, tuple[int, int, bool, bool, int, int]] = {}
        following = ended_by = -1
        for start, stop, closing, leading in reversed(found):
            self._tags[start] = start, stop, closing, leading, following, ended_by
            following = start
            if closing or leading:
                ended_by = start

    def get(self, offset: int) -> Tag | None:
        """Return the tag at an offset."""
        found = self._tags.get(offset)
        return None if found is None else Tag(*found)

    def has_fence(self, start: int, stop: int) -> bool:
        """Return whether a line that looks like a fence begins between the offsets."""
        index = bisect_left(self._fences, start)
        return index < len(self._fences) and self._fences[index] < stop


def _is_quoted(source: str, start: int, end: int) -> bool:
    return start > 0 and source[start - 1] in "\"'" and source[start - 1] == source[end : end + 1]
