"""Tables that code has displayed, as HTML and as text: what shows both reads the table, and leaves the text out."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

_WORD: Final = re.compile(r"[^\s|]+")
_BETWEEN: Final = re.compile(r"\s*|\[\d+ rows in between\]|\[\d+ rows x \d+ columns\]")
"""Lines of a table's text that are no rows."""
_ABOVE: Final = re.compile(r"[^\n]*, \d+ rows? x \d+ columns?\ntypes: [^\n]*\n\Z")
"""What describes a table above it."""


def rows_of(html: str) -> list[list[str]]:
    """The rows of HTML that is one table of texts, with its head; none if it is something else."""
    parser = _Table()
    parser.feed(html)
    return parser.rows if parser.is_plain else []


def without_table(text: str, html: str) -> str:
    """A text without the table at its end, if it is the same as the one in HTML that follows."""
    rows = [_words(" ".join(row)) for row in rows_of(html)]
    if not rows:
        return text
    known, lines = set(rows), text.splitlines(keepends=True)
    while lines:
        words = _words(line := lines.pop())
        if words == rows[0]:
            return _ABOVE.sub("", "".join(lines))
        if words not in known and not _BETWEEN.fullmatch(line.rstrip("\n")):
            break
    return text


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text))


class _Table(HTMLParser):
    """Reads HTML that is one table of texts, as pandas writes it."""

    _INSIDE: Final = frozenset({"div", "style", "table", "thead", "tbody", "tr", "th", "td", "p"})

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.is_plain = True
        self._tables = 0
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tables += tag == "table"
        is_known = tag in self._INSIDE and not any(name in ("rowspan", "colspan") for name, _ in attrs)
        self.is_plain = self.is_plain and is_known and self._tables <= 1
        self._inside = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td") and self.rows:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("th", "td") and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data
        elif self._inside not in ("style", "p") and data.strip():
            self.is_plain = False
