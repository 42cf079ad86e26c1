"""What the rules know about the document they are reading."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field

from markdown_it.rules_block import StateBlock

__all__ = ["Find", "Scan", "TagIndex", "content_lines", "dedent", "is_outdented", "line_start", "scan_of"]

_PREFIX = r"^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*"
_TAG = re.compile(rf"({_PREFIX})?<(/?)execute[ \t]*>", re.MULTILINE | re.IGNORECASE)
_FENCE_LINE = re.compile(rf"{_PREFIX}(?:```|~~~)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Find:
    """A piece of code as a rule found it; `line` counts from 0."""

    line: int
    info: str
    code: str
    closed: bool
    exact: bool = False
    in_tag: bool = False


@dataclass(slots=True)
class Scan:
    """The state that all rules share while one document is read.

    Attributes:
        budget: How many characters may still be looked at twice. A rule that looks ahead pays for what it looks at,
            and without budget it reads plain CommonMark; so the whole takes linear time, whatever the text.
        finds: What was found, in the order of the text.
        tags: The document's `<execute>` tags, `None` if it has none.
        quotes: How many block quotes are open.
    """

    budget: int
    tags: TagIndex | None = None
    finds: list[Find] = field(default_factory=list)
    quotes: int = 0

    def pay(self, characters: int) -> bool:
        """Take the characters from the budget; return whether it sufficed."""
        self.budget -= characters
        return self.budget >= 0


def scan_of(state: StateBlock) -> Scan:
    """Return the scan that belongs to markdown-it's state."""
    scan = state.env["scan"]
    assert isinstance(scan, Scan)
    return scan


class TagIndex:
    """Where the `<execute>` tags of a document are, so that none of them is searched for twice.

    A tag in quotes is none: it is a string in the code, or a word of the prose.

    Attributes:
        starts: The offsets of all tags, opening and closing.
        ends: The offsets after them.
        closing: Whether the tag is a closing one.
        leading: Whether nothing but the markers of quotes and lists stands before the tag on its line.
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


def line_start(state: StateBlock, line: int) -> int:
    """Return the offset of the line's first character that is no white space."""
    return state.bMarks[line] + state.tShift[line]


def is_outdented(state: StateBlock, line: int) -> bool:
    """Return whether the line is too far left to belong to the container that is being read."""
    return state.sCount[line] < state.blkIndent and not state.isEmpty(line)


def content_lines(state: StateBlock, start: int, stop: int, indent: int) -> str:
    """Return the lines without the indentation that they have because of where their fence or tag stands.

    CommonMark takes it from each line as far as it is there. If the content starts further left than that, this would
    flatten its levels, so then only what all lines share is taken.
    """
    indents = [state.sCount[line] for line in range(start, stop) if not state.isEmpty(line)]
    if indents and indents[0] < indent:
        indent = max(0, min(indents))
    return state.getLines(start, stop, indent, True)


def dedent(text: str) -> str:
    """Remove the indentation that all lines share; unlike `textwrap.dedent`, leave the other white space alone."""
    lines = text.split("\n")
    indents = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip(" \t")]
    if not indents:
        return text
    lowest, highest = min(indents), max(indents)
    margin = next((at for at, pair in enumerate(zip(lowest, highest, strict=False)) if pair[0] != pair[1]), len(lowest))
    return "\n".join(line[margin:] if line.strip(" \t") else line.lstrip(" \t") for line in lines)
