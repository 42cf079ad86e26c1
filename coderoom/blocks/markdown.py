"""Markdown as replies use it: CommonMark's block rules, some of them replaced by our own."""

from __future__ import annotations

import re
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, blockquote, list_block

from coderoom.blocks.execute_tags import heading_rule, paragraph_rule
from coderoom.blocks.fences import fence_rule
from coderoom.blocks.scan import Find, Scan, TagIndex, is_outdented, line_start, scan_of

__all__ = ["find_code", "normalize_text"]

_LINE_END = re.compile(r"\r\n?")
_MAX_NESTING = 20
_MAX_QUOTES = 6
_BUDGET = 100_000
_BUDGET_PER_CHARACTER = 8


def normalize_text(text: str) -> str:
    """Return the text without a byte order mark, and with line feeds for line ends."""
    text = _LINE_END.sub("\n", text.removeprefix("\ufeff"))
    return text if text.endswith("\n") else text + "\n"


def find_code(source: str) -> list[Find]:
    """Return the code in a normalized text, in its order."""
    tags = TagIndex(source) if "<execute" in source.lower() else None
    scan = Scan(_BUDGET + _BUDGET_PER_CHARACTER * len(source), tags)
    parser = _parser()
    # Only blocks are parsed: what is inside a paragraph does not matter, and takes more than linear time.
    parser.block.parse(source, parser, {"scan": scan}, [])
    return scan.finds


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING})
    rules = parser.block.ruler
    rules.at("fence", fence_rule, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    rules.at("blockquote", _shallow_quote, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    rules.at("list", _shallow_list, {"alt": ["paragraph", "reference", "blockquote"]})
    rules.at("html_block", _comment_rule, {"alt": ["paragraph", "reference", "blockquote"]})
    rules.at("heading", heading_rule, {"alt": ["paragraph", "reference", "blockquote"]})
    rules.at("paragraph", paragraph_rule)
    # The paragraph rule reads underlined titles too; a link's definition is as good as a paragraph here.
    return parser.disable(["lheading", "reference"])


def _shallow_list(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Nest lists only so deep that markdown-it never drops the rest of a text as too deep."""
    return state.level < _MAX_NESTING - 2 and list_block(state, start, end, silent)


def _shallow_quote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Nest quotes less deep than lists, since each level of a quote reads all of its lines once more."""
    scan = scan_of(state)
    if scan.quotes == _MAX_QUOTES or state.level >= _MAX_NESTING - 2:
        return False
    if not silent and not _pay_for_lazy_lines(state, start, end):
        return False
    scan.quotes += 1
    found = blockquote(state, start, end, silent)
    scan.quotes -= 1
    return found


def _pay_for_lazy_lines(state: StateBlock, start: int, end: int) -> bool:
    """Pay for the lines that markdown-it looks at for a quote: all up to a blank one, also if they end up outside."""
    if not state.src.startswith(">", line_start(state, start)):
        return True
    scan = scan_of(state)
    for line in range(start, end):
        if state.isEmpty(line):
            break
        if not scan.pay(state.eMarks[line] - state.bMarks[line] + 1):
            return False
    return True


def _comment_rule(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read an HTML comment; it is the only HTML that hides the code in it.

    CommonMark reads on after `<think>` or `<details>` as HTML up to a blank line, which would lose a fence that
    follows at once; models write such lines, and readers see that fence. Nobody sees what is inside a comment.
    """
    begin = line_start(state, start)
    if not state.src.startswith("<!--", begin) or state.is_code_block(start):
        return False
    if silent:
        return True
    begin += len("<!--")
    line = start
    while line < end and state.src.find("-->", begin, state.eMarks[line]) < 0:
        line += 1
        if line == end or is_outdented(state, line):
            state.line = line
            return True
        begin = state.bMarks[line]
    state.line = line + 1
    return True
