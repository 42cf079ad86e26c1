"""The `<execute>` tags in paragraphs and headings. Used by the rules of `code_blocks`."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace

from markdown_it.rules_block import StateBlock

from coderoom.blocks.fences import Find, Scan, content_lines, dedent, fence_rule, is_outdented, line_start, scan_of

_PREFIX = r"^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*"
_TAG = re.compile(rf"({_PREFIX})?<(/?)execute[ \t]*>", re.MULTILINE | re.IGNORECASE)
_FENCE_LINE = re.compile(rf"{_PREFIX}(?:```|~~~)", re.MULTILINE)
_MARK = re.compile(r"`+|<execute[ \t]*>|<!--|-->", re.IGNORECASE)


class TagIndex:
    """The positions of the `<execute>` tags of a document, so that each is searched for once.

    A tag in quotes does not count: it is a string in code, or a word in prose.

    Attributes:
        starts: The offsets of all tags, opening and closing.
        ends: The offsets after them.
        closing: Whether the tag is a closing one.
        leading: Whether only markers of quotes and lists are before the tag on its line.
    """

    __slots__ = ("_fences", "_next_end", "closing", "ends", "leading", "starts")

    def __init__(self, source: str) -> None:
        matches = [match for match in _TAG.finditer(source) if not _is_quoted(source, match)]
        self.starts = [_start(match) for match in matches]
        self.ends = [match.end() for match in matches]
        self.closing = [bool(match[2]) for match in matches]
        self.leading = [match[1] is not None for match in matches]
        self._fences = [match.start() for match in _FENCE_LINE.finditer(source)] if matches else []
        self._next_end = [len(matches)] * (len(matches) + 1)
        for index in range(len(matches) - 1, -1, -1):
            ends_here = self.closing[index] or self.leading[index]
            self._next_end[index] = index if ends_here else self._next_end[index + 1]

    def first_from(self, offset: int) -> int:
        """Return the index of the first tag that starts at the offset or after it."""
        return bisect_left(self.starts, offset)

    def end_of(self, index: int) -> int:
        """Return the index of the tag that ends the content of an opening tag: a closing one, or a leading one."""
        return self._next_end[index + 1]

    def has_fence(self, start: int, stop: int) -> bool:
        """Return whether a line that looks like a fence begins between the offsets."""
        index = bisect_left(self._fences, start)
        return index < len(self._fences) and self._fences[index] < stop


def _start(match: re.Match[str]) -> int:
    return match.start() if match[1] is None else match.end(1)


def _is_quoted(source: str, match: re.Match[str]) -> bool:
    start, end = _start(match), match.end()
    return start > 0 and source[start - 1] in "\"'" and source[start - 1] == source[end : end + 1]


def read_tags(state: StateBlock, tags: TagIndex, offset: int, line: int, stop: int, end: int) -> int | None:
    """Read the tags between the offset and the end of the lines; return where the last one ends if that is beyond."""
    limit = state.eMarks[stop - 1]
    index = tags.first_from(offset)
    if index == len(tags.starts) or tags.starts[index] >= limit:
        return None
    for begin, span_end in _code_spans_and_tags(state, offset, line, stop):
        if begin < offset:
            continue
        if span_end:
            offset = span_end
            continue
        index = tags.first_from(begin)
        is_tag = index < len(tags.starts) and tags.starts[index] == begin
        after = _read_tag(state, tags, index, end) if is_tag else None
        if after is None:
            continue
        if after > limit:
            return after
        offset = after
    return None


def _code_spans_and_tags(state: StateBlock, offset: int, line: int, stop: int) -> list[tuple[int, int]]:
    """List the opening tags as (offset, 0), and what hides them, code spans and comments, as (offset, its end)."""
    marks: list[tuple[int, int]] = []
    span_ends: dict[int, int] = {}
    comment_end = 0
    for number in range(stop - 1, line - 1, -1):
        begin = offset if number == line else line_start(state, number)
        for match in reversed(list(_MARK.finditer(state.src, begin, state.eMarks[number]))):
            if match[0] == "-->":
                comment_end = match.end()
                continue
            if match[0] == "<!--":
                # A comment that is not closed hides nothing: the rule for blocks has read those that are.
                if comment_end:
                    marks.append((match.start(), comment_end))
                continue
            if match[0][0] == "<":
                marks.append((match.start(), 0))
                continue
            length = match.end() - match.start()
            if length in span_ends:
                marks.append((match.start(), span_ends[length]))
            span_ends[length] = match.end()
    marks.reverse()
    return marks


def _read_tag(state: StateBlock, tags: TagIndex, index: int, end: int) -> int | None:
    """Read the block that an opening tag begins; return the offset after it, or None if the tag is only mentioned."""
    begin, limit = tags.ends[index], state.eMarks[end - 1]
    if _is_mention(state, tags, index):
        return None
    last = tags.end_of(index)
    if last < len(tags.starts) and tags.starts[last] < limit:
        if tags.closing[last]:
            code = _content(state, begin, tags.starts[last])
            _report(state, begin, code, _single_fence(state, code), closed=True)
            return tags.ends[last]
        if not tags.leading[index]:
            return None
        limit = state.eMarks[bisect_left(state.eMarks, tags.starts[last]) - 1]
    return _read_unclosed(state, tags, begin, limit)


def _is_mention(state: StateBlock, tags: TagIndex, index: int) -> bool:
    """Return whether another tag opens first on the same line; after a quote it is taken for a part of a string."""
    following = index + 1
    if following == len(tags.starts) or tags.closing[following]:
        return False
    between = state.src[tags.ends[index] : tags.starts[following]]
    return "\n" not in between and not between.endswith(('"', "'", "`"))


def _read_unclosed(state: StateBlock, tags: TagIndex, begin: int, limit: int) -> int | None:
    """Read a tag without an end: the reply was cut, unless fences follow; then the tag was only a word."""
    # Without fences the text is used up and need not be paid for.
    if tags.has_fence(begin, limit) and not scan_of(state).pay(limit - begin):
        return None
    lines = range(bisect_left(state.eMarks, begin) + 1, bisect_left(state.eMarks, limit) + 1)
    stop = next((line for line in lines if is_outdented(state, line)), lines.stop)
    limit = state.eMarks[stop - 1]
    code = _content(state, begin, limit)
    fenced = _single_fence(state, code)
    if fenced is None and tags.has_fence(begin, limit):
        return None
    _report(state, begin, code, fenced, closed=False)
    return limit


def _content(state: StateBlock, begin: int, finish: int) -> str:
    """Return the text between the offsets as code: without a container's marks, blank edges and indentation."""
    first, last = bisect_left(state.eMarks, begin), bisect_left(state.eMarks, finish)
    text = state.src[begin : min(finish, state.eMarks[first])]
    starts_on_tag_line = bool(text.strip(" \t"))
    if last > first:
        lines = content_lines(state, first + 1, last + 1, state.blkIndent).removesuffix("\n")
        text += "\n" + lines[: len(lines) - (state.eMarks[last] - finish)]
    text = text.rstrip(" \t\n")
    blank = len(text) - len(text.lstrip(" \t\n"))
    code = dedent(text[text.rfind("\n", 0, blank) + 1 :])
    return code.lstrip(" \t") if starts_on_tag_line else code


def _single_fence(state: StateBlock, code: str) -> Find | None:
    """Return the fenced block that the code of a tag consists of, if it does."""
    if not code.startswith(("```", "~~~")):
        return None
    scan = Scan(scan_of(state).budget)
    inner = StateBlock(code + "\n", state.md, {"scan": scan}, [])
    is_single = fence_rule(inner, 0, inner.lineMax, False) and inner.line == inner.lineMax
    scan_of(state).budget = scan.budget
    return scan.finds[0] if is_single else None


def _report(state: StateBlock, begin: int, code: str, fenced: Find | None, *, closed: bool) -> None:
    # An empty pair of tags is how prose names them.
    if not code:
        return
    line = bisect_left(state.eMarks, begin)
    found = fenced or Find(line, "", code, closed)
    scan_of(state).finds.append(replace(found, line=line, closed=closed, in_tag=True))
