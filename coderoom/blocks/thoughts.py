"""The thoughts in a model's reply, such as `<think>...</think>`. Used by the rules of `code_blocks`."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

# As most models write them, and as those of Mistral and Moonshot do.
TAG = re.compile(
    r"<[ \t]?/?[ \t]?(?:ant|seed:)?(?:think(?:ing)?|thoughts?|reasoning)(?:\s[^<>\n]{0,1000}+)?(?<!/)>"
    r"|\[/?(?-i:THINK)\]|\u25c1/?think\u25b7",
    re.IGNORECASE,
)
_NAME = re.compile(r"[a-z:]+", re.IGNORECASE)
_BEFORE_MENTION = re.compile(r"[\w,][ \t]+\Z|\([ \t]*\Z")
_AFTER_MENTION = re.compile(r"[ \t]+[a-z(]|[ \t]*[,.;:)!?]")
_PIECE = 100_000
_LONGEST = 2_000


def find_all(pattern: re.Pattern[str], text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
    """Find what a pattern matches, piece by piece, so that other threads go on meanwhile.

    The pattern must not need more than 2,000 characters.
    """
    while begin < end:
        stop = min(begin + _PIECE, end)
        for match in pattern.finditer(text, begin, min(stop + _LONGEST, end)):
            if match.start() >= stop:
                break
            begin = match.end()
            yield match
        begin = max(begin, stop)


class Thoughts:
    """The tags of thoughts in a reply, and the thoughts that the rules have found by where such a tag stands.

    A tag in quotes or backticks is a word. One that is never closed has all that follows as its thought; before a
    closing one without an opening one, all is thought. Alone, either may also be a word in a sentence.

    Attributes:
        lone: The tag without a partner that made a thought, as written; empty if all have one.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        # Only numbers, since Python's collector stops all threads while it looks at objects.
        self._ends: dict[int, int] = {}
        self._closing: dict[str, list[int]] = {"": []}
        for match in find_all(TAG, source, 0, len(source)):
            start, end = match.span()
            if _is_quoted(source, start, end):
                continue
            self._ends[start] = end
            if _is_closing(match[0]):
                self._closing[""].append(start)
                self._closing.setdefault(_name_of(match[0]), []).append(start)
        self._spans: list[tuple[int, int]] = []
        self.lone = ""

    def __bool__(self) -> bool:
        """Whether any thought was found."""
        return bool(self._spans)

    def has_tag_at(self, offset: int) -> bool:
        """Return whether a tag stands at the offset."""
        return offset in self._ends

    def close_at(self, offset: int) -> bool:
        """Return whether a closing tag stands at the offset."""
        return _is_closing(self._tag(offset))

    def closes_all(self, offset: int) -> bool:
        """Read the tag at the offset; return whether everything before it is thought."""
        tag = self._tag(offset)
        is_read = bool(self._spans) and offset < self._spans[-1][1]
        if not _is_closing(tag) or is_read or self._is_mention(offset):
            return False
        self._spans = [(0, offset + len(tag))]
        self.lone = tag
        return True

    def read(self, offset: int, limit: int) -> int | None:
        """Read the thought that the tag at the offset begins or ends, up to the limit; return its end.

        It is `None` if the tag is only mentioned.
        """
        tag = self._tag(offset)
        after = offset + len(tag)
        if not tag:
            return None
        if _is_closing(tag):
            return after
        end = self._closed_at(_name_of(tag), after, limit) or self._closed_at("", after, limit)
        if end is None and self._is_mention(offset):
            return None
        if end is None:
            self.lone, end = tag, limit
        self._spans.append((offset, end))
        return end

    def without(self) -> str:
        """The reply without its thoughts, with the lines where they were."""
        parts: list[str] = []
        position = 0
        for start, end in self._spans:
            parts += [self._source[position:start], "\n" * self._source.count("\n", start, end)]
            position = end
        return "".join([*parts, self._source[position:]])

    def _tag(self, offset: int) -> str:
        return self._source[offset : self._ends.get(offset, offset)]

    def _closed_at(self, name: str, offset: int, limit: int) -> int | None:
        """Return the end of the next closing tag of this name, or of any."""
        tags = self._closing.get(name, [])
        index = bisect_left(tags, offset)
        end = self._ends[tags[index]] if index < len(tags) else limit + 1
        return end if end <= limit else None

    def _is_mention(self, offset: int) -> bool:
        """Whether a tag without a partner is a word in a sentence."""
        before = self._source[max(0, offset - 20) : offset].rpartition("\n")[2]
        return bool(_BEFORE_MENTION.search(before) and _AFTER_MENTION.match(self._source, self._ends[offset]))


def _is_closing(tag: str) -> bool:
    return "/" in tag[:3]


def _name_of(tag: str) -> str:
    return tag[0] + "".join(_NAME.findall(tag)[:1]).lower()


def _is_quoted(source: str, start: int, end: int) -> bool:
    before = source[start - 1 : start]
    # Three backticks are a fence that is glued to the tag.
    is_fence = source.startswith("```", start - 3)
    return before != "" and before in "\"'`" and source[end : end + 1] == before and not is_fence
