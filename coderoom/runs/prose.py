"""What models write as Markdown: without the code in it that is shown elsewhere. Used by pages and exports of runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from markdown_it import MarkdownIt

LONGEST_PROSE: Final = 200_000
"""The most characters of a text that is read as Markdown."""
COMMONMARK: Final = MarkdownIt("commonmark")


def without_code(text: str, left_out: Sequence[str]) -> tuple[str, bool]:
    """A text without the fenced blocks that have this code, and whether all of the code was found in such blocks."""
    code, found = {each.strip() for each in left_out}, set[str]()
    lines: list[str | None] = list(re.split("\r\n|\r|\n", text))
    for token in COMMONMARK.parse(text) if len(text) <= LONGEST_PROSE else ():
        if token.type == "fence" and token.level == 0 and token.map and token.content.strip() in code:
            found.add(token.content.strip())
            lines[slice(*token.map)] = [None] * (token.map[1] - token.map[0])
    return "\n".join(line for line in lines if line is not None).strip(), found == code
