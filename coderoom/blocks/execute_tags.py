"""The `<execute>` tags in paragraphs and headings. Used by the rules of `code_blocks`."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace

from markdown_it.rules_block import StateBlock

from coderoom.blocks.fences import Find, Scan, content_lines, dedent, fence_rule, is_outdented, line_start, scan_of
from coderoom.blocks.tags import Tag, TagIndex
from coderoom.blocks.thoughts import TAG as THOUGHT
from coderoom.blocks.thoughts import find_all

_FENCE = re.compile(r"[ \t]*(?:```|~~~)")
# Each alternative begins with a character of its own, which is found much faster.
_MARK = re.compile(rf"``*|<execute[ \t]{{0,100}}>|<!--|-->|{THOUGHT.pattern}", re.IGNORECASE)


def read_tags(state: StateBlock, offset: int, line: int, stop: int, end: int) -> int | None:
    """Read the tags of code and thoughts between the offset and the end of the lines.

    Return where the last one ends if that is beyond, or if a fence follows on its line.
    """
    scan, limit = scan_of(state), state.eMarks[stop - 1]
    for begin, span_end in _code_spans_and_tags(state, offset, line, stop):
        if begin < offset:
            continue
        tag = None if scan.tags is None else scan.tags.get(begin)
        if span_end:
            after: int | None = span_end
        elif tag is not None and scan.tags is not None:
            after = _read_tag(state, scan.tags, tag, end)
        elif scan.thoughts is None:
            after = None
        else:
            after = scan.thoughts.read(begin, state.eMarks[end - 1])
            if scan.thoughts.closes_all(begin):
                scan.finds.clear()
            if after is not None and _FENCE.match(state.src, after):
                return after
        if after is None:
            continue
        if after > limit:
            return after
        offset = after
    return None


def _code_spans_and_tags(state: StateBlock, offset: int, line: int, stop: int) -> list[tuple[int, int]]:
    """List the opening tags as (offset, 0), and what hides them, code spans and comments, as (offset, its end)."""
    marks: list[tuple[int, int]] = []
    span_ends: dict[str, int] = {}
    comment_end = 0
    for number in range(stop - 1, line - 1, -1):
        begin = offset if number == line else line_start(state, number)
        found = [match.span() for match in find_all(_MARK, state.src, begin, state.eMarks[number])]
        for start, mark_end in reversed(found):
            mark = state.src[start:mark_end]
            if mark == "-->":
                comment_end = mark_end
            elif mark == "<!--":
                # A comment that is not closed hides nothing: the rule for blocks has read those that are.
                if comment_end:
                    marks.append((start, comment_end))
            elif mark[0] != "`":
                marks.append((start, 0))
            else:
                if mark in span_ends:
                    marks.append((start, span_ends[mark]))
                span_ends[mark] = mark_end
    marks.reverse()
    return marks


def _read_tag(state: StateBlock, tags: TagIndex, tag: Tag, end: int) -> int | None:
    """Read the block that an opening tag begins; return the offset after it, or None if the tag is only mentioned."""
    limit, last = state.eMarks[end - 1], tags.get(tag.ended_by)
    if _is_mention(state, tag, tags.get(tag.following)):
        return None
    if last is not None and last.start < limit:
        if last.closing:
            code = _content(state, tag.end, last.start)
            _report(state, tag.end, code, _single_fence(state, code), closed=True)
            return last.end
        if not tag.leading:
            return None
        limit = state.eMarks[bisect_left(state.eMarks, last.start) - 1]
    return _read_unclosed(state, tags, tag.end, limit)


def _is_mention(state: StateBlock, tag: Tag, following: Tag | None) -> bool:
    """Return whether another tag opens first on the same line; after a quote it is taken for a part of a string."""
    if following is None or following.closing:
        return False
    is_one_line = state.src.find("\n", tag.end, following.start) < 0
    return is_one_line and not state.src.endswith(('"', "'", "`"), tag.end, following.start)


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
