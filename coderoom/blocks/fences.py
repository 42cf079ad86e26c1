"""Fences: CommonMark's, and those that models write."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from markdown_it.rules_block import StateBlock

from coderoom.blocks.info import normalize_language, parse_info
from coderoom.blocks.python_strings import PythonStrings
from coderoom.blocks.scan import Find, Scan, content_lines, is_outdented, line_start, scan_of

__all__ = ["fence_rule"]

_FENCE = re.compile(r"(`{3,})([^`]*)\Z|(~{3,})(.*)\Z")
_FENCE_IN_CONTAINER = re.compile(r"(?:(?:[-*+>]|\d{1,9}[.)])[ \t]*)+(?:```|~~~)")


@dataclass(frozen=True, slots=True)
class _Fence:
    marker: str
    length: int
    info: str

    def is_like(self, opening: _Fence) -> bool:
        return self.marker == opening.marker and self.length >= opening.length


class _Reading(Enum):
    """How a line that looks like a fence is read inside a block."""

    END = auto()
    CONTENT = auto()
    CONTRADICTION = auto()


def fence_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read a fenced block; a block rule for markdown-it."""
    opening = _read_fence(state, start)
    if opening is None:
        return False
    if silent:
        return True
    stop, closed = _find_end(state, start, end, opening)
    glued = closed and _ends_with(state, stop, opening) and _read_fence(state, stop) is None
    state.line = stop + 1 if closed else stop
    code = content_lines(state, start + 1, stop + 1 if glued else stop, state.sCount[start]).removesuffix("\n")
    if glued:
        code = code.rstrip(" \t").removesuffix(opening.marker * opening.length)
    exact = opening.marker == "`" and opening.length > 3
    scan_of(state).finds.append(Find(start, opening.info, code, closed, exact))
    return True


def _read_fence(state: StateBlock, line: int) -> _Fence | None:
    begin = line_start(state, line)
    if not state.src.startswith(("```", "~~~"), begin) or state.is_code_block(line):
        return None
    match = _FENCE.match(state.src, begin, state.eMarks[line])
    if match is None:
        return None
    run = match[1] or match[3]
    return _Fence(run[0], len(run), (match[2] or match[4] or "").strip(" \t"))


def _find_end(state: StateBlock, start: int, end: int, opening: _Fence) -> tuple[int, bool]:
    """Return the line of the closing fence and True, or the line after the content and False."""
    scan = scan_of(state)
    glued = _GluedEnd(opening)
    for line in range(start + 1, end):
        if is_outdented(state, line):
            if glued.line is not None:
                break
            outside = _find_outdented_end(state, line, end, opening, scan)
            return (line, False) if outside is None else (outside, True)
        fence = _read_fence(state, line)
        if fence is not None and fence.marker == opening.marker:
            if fence.info and glued.line is not None:
                break
            if not fence.info and fence.is_like(opening):
                inner_aware = _find_end_past_inner_fences(state, start, line, end, opening, scan)
                return (line if inner_aware is None else inner_aware), True
        glued.look_at(state, line, fence)
    return (end, False) if glued.line is None else (glued.line, True)


class _GluedEnd:
    """Looks for a closing fence that the model wrote at the end of the last line of code.

    To CommonMark that is no fence. It counts here only if the block would otherwise have no end, or take in the
    opening of another one.

    Attributes:
        line: The first line that ends so, or `None`.
    """

    def __init__(self, opening: _Fence) -> None:
        self._opening = opening
        language = normalize_language(parse_info(opening.info).tag)
        self._strings = PythonStrings() if language == "python" else None
        self._possible = language != "markdown"
        self.line: int | None = None

    def look_at(self, state: StateBlock, line: int, fence: _Fence | None) -> None:
        if self.line is not None or not self._possible:
            return
        if self._strings is not None:
            text = state.src[state.bMarks[line] : state.eMarks[line]].rstrip(" \t")
            self._strings.feed(text.removesuffix(self._opening.marker * self._opening.length))
            if self._strings.open:
                return
        if fence is None and _ends_with(state, line, self._opening):
            self.line = line


def _ends_with(state: StateBlock, line: int, opening: _Fence) -> bool:
    text = state.src[line_start(state, line) : state.eMarks[line]].rstrip(" \t")
    rest = text.removesuffix(opening.marker * opening.length)
    return rest not in {text, ""} and not rest.endswith(opening.marker)


def _find_outdented_end(state: StateBlock, outdented: int, end: int, opening: _Fence, scan: Scan) -> int | None:
    """Find the closing fence of a block in a list item that goes on left of the item.

    Strictly the item ends here and the block with it, and its closing fence would open a new block that swallows the
    rest. If the closing fence is the first line on the left, it closes. If code comes first, bare fences are counted
    up to the next one that can only open: an odd number leaves one over, which is ours; an even number pairs up
    without us.
    """
    fence = _read_fence(state, outdented) if state.sCount[outdented] >= 0 else None
    if fence is not None and not fence.info and fence.is_like(opening):
        return outdented
    first, count = None, 0
    for line in range(outdented, end):
        # A negative count marks the lazy lines of a block quote.
        if state.sCount[line] < 0 or not scan.pay(state.eMarks[line] - state.bMarks[line] + 1):
            return None
        fence = _read_fence(state, line)
        if _FENCE_IN_CONTAINER.match(state.src, line_start(state, line), state.eMarks[line]):
            break
        if fence is None or fence.marker != opening.marker:
            continue
        if fence.info:
            break
        if fence.length >= opening.length:
            first = line if first is None else first
            count += 1
    return first if count % 2 else None


def _find_end_past_inner_fences(
    state: StateBlock, start: int, first: int, end: int, opening: _Fence, scan: Scan
) -> int | None:
    """Find the end of a block that shows fences itself; `first` is where CommonMark would end it.

    Only for three backticks: who writes a longer fence or tildes has thought of the inner ones.
    """
    language = normalize_language(parse_info(opening.info).tag)
    if language not in {"python", "markdown"} or opening.marker != "`" or opening.length > 3:
        return None
    reader = _PythonReader() if language == "python" else _MarkdownReader()
    for line in range(start + 1, end):
        if is_outdented(state, line):
            return None
        text = state.src[state.bMarks[line] : state.eMarks[line]]
        if line > first and not scan.pay(len(text) + 1):
            return None
        fence = _read_fence(state, line)
        if fence is not None and fence.is_like(opening):
            reading = reader.read_fence(fence, past_first=line > first)
            if reading is _Reading.END:
                return line
            if reading is _Reading.CONTRADICTION:
                return None
        reader.read_text(text)
    return None


@dataclass(slots=True)
class _MarkdownReader:
    """Pairs the labelled fences inside a Markdown block with the bare ones that close them."""

    lengths: list[int] = field(default_factory=list)

    def read_fence(self, fence: _Fence, past_first: bool) -> _Reading:
        if fence.info:
            self.lengths.append(fence.length)
        elif not self.lengths:
            return _Reading.END
        elif fence.length >= self.lengths[-1]:
            self.lengths.pop()
        return _Reading.CONTENT

    def read_text(self, line: str) -> None:
        pass


@dataclass(slots=True)
class _PythonReader:
    """Takes the fences inside a triple-quoted string for a part of the string.

    A string that the model never closed would take in the prose and the blocks that follow, too. That shows when a
    labelled fence comes where a pair of fences should be closed, or where the string is over.
    """

    strings: PythonStrings = field(default_factory=PythonStrings)
    inner: _Fence | None = None

    def read_fence(self, fence: _Fence, past_first: bool) -> _Reading:
        if not self.strings.open:
            if not fence.info:
                return _Reading.END
            return _Reading.CONTRADICTION if past_first else _Reading.CONTENT
        if fence.info:
            if self.inner is not None and not self.inner.info:
                return _Reading.CONTRADICTION
            self.inner = fence
        else:
            self.inner = fence if self.inner is None else None
        return _Reading.CONTENT

    def read_text(self, line: str) -> None:
        self.strings.feed(line)
        if self.strings.tail is not None:
            starts_with_fence = self.strings.tail.lstrip().startswith("```")
            self.inner = _Fence("`", 3, "labelled") if starts_with_fence else None
        elif not self.strings.open:
            self.inner = None
