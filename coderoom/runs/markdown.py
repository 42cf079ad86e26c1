"""What models write as Markdown, on the terminal. Used by `RunView`.

Models also write what only looks like Markdown: `2*3*4`, a diff, a traceback, a table with a cell too many. What is
read as Markdown loses nothing but marks, and those only where they can be nothing else. What is not shown at a terminal
keeps them all, but for those of headings, quotes and code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Heading, ListElement, ListItem, Markdown, MarkdownElement
from rich.segment import Segment
from rich.text import Text

from coderoom._util.text import visible
from coderoom.blocks import extract_code_blocks

_LONGEST: Final = 50_000
_MOST_LINES: Final = 2_000
"""The parser and Rich need more than linear time for long lists, and for what is nested."""
_MOST_QUOTES: Final = 500
_EMPHASIS: Final = ("em_open", "em_close", "strong_open", "strong_close")
_BEGINS: Final = re.compile(r"[\w\"'($“„«]")
_ENDS: Final = re.compile(r"[\w\"').:;,!?%…”“»]")
_WEB: Final = re.compile(r"(?:https?://|mailto:)\S+$")


def _is_web_link(url: str) -> bool:
    """Whether an address in brackets is one: `items[0](1)` is a call."""
    return _WEB.match(url) is not None


# Without the rules that hide text. Lines stay, with their indentation, so that a traceback stays one.
_NOT_READ: Final = ["autolink", "entity", "escape", "image", "lheading", "newline", "reference"]
_AT_TERMINAL: Final = MarkdownIt("commonmark", {"html": False, "maxNesting": 12}).enable("table").disable(_NOT_READ)
_AT_TERMINAL.validateLink = _is_web_link  # type: ignore[method-assign]
_ELSEWHERE: Final = MarkdownIt("commonmark", {"html": False}).disable([*_NOT_READ, "hr", "link", "list"])


def markdown(text: str, left_out: Sequence[str] = ()) -> RenderableType:
    """A text as Markdown, without these pieces of code."""
    # Code in tags is no Markdown.
    is_tagged = any(block.tag == "execute" for block in extract_code_blocks(text))
    is_long = len(text) > _LONGEST or text.count("\n") > _MOST_LINES or text.count(">") > _MOST_QUOTES
    if is_long or is_tagged:
        return Text(visible(text))
    return _Prose(visible(text), [visible(code) for code in left_out])


class _Title(Heading):
    """A heading at the left, where the text begins."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _List(ListElement):
    """A list whose items have the numbers and marks of the text, but for bullets."""

    mark: str

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> _List:
        made = cls(token.type, int(token.attrs.get("start", 1)))
        made.mark = token.markup
        return made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_numbered = self.list_type == "ordered_list_open"
        first = self.list_start if is_numbered and self.list_start is not None else 1
        width = len(str(first + len(self.items) - 1)) + 2 if is_numbered else 2
        inner = options.update(width=max(1, options.max_width - width))
        bullet = "+" if self.mark == "+" else "•"
        style = console.get_style("markdown.item.number" if is_numbered else "markdown.item.bullet", default="none")
        for number, item in enumerate(self.items, start=first):
            mark = f"{number}{self.mark}".rjust(width - 1) if is_numbered else bullet
            for place, line in enumerate(console.render_lines(item.elements, inner, style=item.style)):
                yield Segment(" " * width if place else f"{mark} ", style)
                yield from line
                yield Segment("\n")


class _Prose(Markdown):
    """Markdown that loses nothing but marks of its own: what looks like HTML, escapes or entities is text."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Title,
        "bullet_list_open": _List,
        "ordered_list_open": _List,
        "list_item_open": ListItem,
    }

    def __init__(self, text: str, left_out: Sequence[str]) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self._text, self._left_out = text, {each.strip() for each in left_out}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        tokens = (_AT_TERMINAL if console.is_terminal else _ELSEWHERE).parse(self._text)
        tokens = [each for each in tokens if each.type != "fence" or each.content.strip() not in self._left_out]
        self.parsed = list(_with_whole_tables(tokens, self._text.split("\n")))
        for token in self.parsed:
            token.children = list(_with_marks(token.children or [], all_marks=not console.is_terminal))
        yield from super().__rich_console__(console, options)


def _with_marks(tokens: Sequence[Token], *, all_marks: bool) -> Iterator[Token]:
    """The tokens of a line, with marks of emphasis as text where they may be operators or parts of names."""
    places = (place for place, token in enumerate(tokens) if token.type in _EMPHASIS)
    shown = set(places) if all_marks else _doubtful(tokens)
    for place, token in enumerate(tokens):
        marks = [Token("text", "", 0, content=token.markup)] if place in shown else []
        yield from [token, *marks] if token.nesting == 1 else [*marks, token]


def _doubtful(tokens: Sequence[Token]) -> set[int]:
    """The places of marks that may be something else: no word begins after or ends before them, as in `2*3*4`."""
    before, after = _beside(tokens, -1), _beside(tokens[::-1], 0)[::-1]
    found, opened = set[int](), list[int]()
    for place, token in enumerate(tokens):
        if token.type not in _EMPHASIS:
            continue
        if token.nesting == 1:
            opened.append(place)
            continue
        begin = opened.pop()
        is_clear = token.markup[0] == "*" and not re.match(r"\w", before[begin]) and not re.match(r"\w", after[place])
        if not (is_clear and _BEGINS.match(after[begin]) and _ENDS.match(before[place])):
            found |= {begin, place}
    return found


def _beside(tokens: Sequence[Token], at: int) -> list[str]:
    """The first or last character of the text before each of the tokens; a quote for code."""
    found, last = list[str](), ""
    for token in tokens:
        found.append(last)
        if token.content:
            last = '"' if token.type == "code_inline" else token.content[at]
    return found


def _with_whole_tables(tokens: Sequence[Token], lines: Sequence[str]) -> Iterator[Token]:
    """The same tokens, with the text in place of tables that have not all of it, as rows with a cell too many."""
    place = 0
    while place < len(tokens):
        token, end = tokens[place], place + 1
        if token.type == "table_open" and token.map:
            while tokens[end - 1].type != "table_close":
                end += 1
            source = "\n".join(lines[slice(*token.map)])
            cells = "".join(each.content for each in tokens[place:end] if each.type == "inline")
            if _letters(source) != _letters(cells):
                text = Token("text", "", 0, content=source)
                inline = Token("inline", "", 0, children=[text], content=source)
                yield from (Token("paragraph_open", "p", 1), inline, Token("paragraph_close", "p", -1))
                place = end
                continue
        yield from tokens[place:end]
        place = end


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text)
