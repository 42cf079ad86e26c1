"""The thoughts in a model's reply, such as `<think>...</think>`. Used by the rules of `code_blocks`."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

TAG = re.compile(r"<(/?)(think(?:ing)?|thoughts?|reasoning)(?:\s[^<>\n]*)?(?<!/)>", re.IGNORECASE)
_BEFORE_MENTION = re.compile(r"[\w,][ \t]+\Z|\([ \t]*\Z")
_AFTER_MENTION = re.compile(r"[ \t]+[a-z(]|[ \t]*[,.;:)!?]")
_LINE_BREAK = re.compile(r"[^\n]+")


@dataclass(frozen=True, slots=True)
class _ThoughtTag:
    start: int
    end: int
    name: str
    closing: bool


class Thoughts:
    """The tags of thoughts in a reply, and the thoughts that the rules have found by where such a tag stands.

    A tag in quotes or backticks is a word. One that is never closed has all that follows as its thought; before a
    closing one without an opening one, all is thought. Alone, either may also be a word in a sentence.

    Attributes:
        lone: The tag without a partner that made a thought, as written; empty if all have one.
    """

    def __init__(self, source: str) -> None:
        found = [match for match in TAG.finditer(source) if not _is_quoted(source, match)]
        tags = [_ThoughtTag(m.start(), m.end(), m[2].lower(), bool(m[1])) for m in found]
        self._source = source
        self._tags = {tag.start: tag for tag in tags}
        self._closing: dict[str, list[_ThoughtTag]] = {"": [tag for tag in tags if tag.closing]}
        for tag in self._closing[""]:
            self._closing.setdefault(tag.name, []).append(tag)
        self._spans: list[tuple[int, int]] = []
        self.lone = ""

    def __bool__(self) -> bool:
        """Whether any thought was found."""
        return bool(self._spans)

    def has_tag_at(self, offset: int) -> bool:
        """Return whether a tag stands at the offset."""
        return offset in self._tags

    def close_at(self, offset: int) -> bool:
        """Return whether a closing tag stands at the offset."""
        return offset in self._tags and self._tags[offset].closing

    def closes_all(self, offset: int) -> bool:
        """Read the tag at the offset; return whether everything before it is thought."""
        tag = self._tags.get(offset)
        is_read = bool(self._spans) and offset < self._spans[-1][1]
        if tag is None or not tag.closing or is_read or self._is_mention(tag):
            return False
        self._spans = [(0, tag.end)]
        self.lone = self._source[tag.start : tag.end]
        return True

    def read(self, offset: int, limit: int) -> int | None:
        """Read the thought that the tag at the offset begins or ends, up to the limit; return its end.

        It is `None` if the tag is only mentioned.
        """
        tag = self._tags.get(offset)
        if tag is None:
            return None
        if tag.closing:
            return tag.end
        closing = self._next(tag.name, tag.end, limit) or self._next("", tag.end, limit)
        if closing is None and self._is_mention(tag):
            return None
        if closing is None:
            self.lone = self._source[tag.start : tag.end]
        end = limit if closing is None else closing.end
        self._spans.append((tag.start, end))
        return end

    def without(self) -> str:
        """The reply without its thoughts, with the lines where they were."""
        parts: list[str] = []
        position = 0
        for start, end in self._spans:
            parts += [self._source[position:start], _LINE_BREAK.sub("", self._source[start:end])]
            position = end
        return "".join([*parts, self._source[position:]])

    def _next(self, name: str, offset: int, limit: int) -> _ThoughtTag | None:
        tags = self._closing.get(name, [])
        index = bisect_left(tags, offset, key=lambda tag: tag.start)
        return tags[index] if index < len(tags) and tags[index].end <= limit else None

    def _is_mention(self, tag: _ThoughtTag) -> bool:
        """Whether a tag without a partner is a word in a sentence."""
        before = self._source[self._source.rfind("\n", 0, tag.start) + 1 : tag.start]
        return bool(_BEFORE_MENTION.search(before[-20:]) and _AFTER_MENTION.match(self._source, tag.end))


def _is_quoted(source: str, match: re.Match[str]) -> bool:
    before = source[match.start() - 1 : match.start()]
    # Three backticks are a fence that is glued to the tag.
    is_fence = source.startswith("```", match.start() - 3)
    return before != "" and before in "\"'`" and source[match.end() : match.end() + 1] == before and not is_fence
