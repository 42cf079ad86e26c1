"""What all pages share: the frame with its policy, and how code, Markdown and text become HTML."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib import resources
from pathlib import Path
from threading import get_ident
from typing import Final
from zlib import crc32

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from coderoom._util.html import text_html as text_html
from coderoom._util.text import visible
from coderoom.runs.journal import RunEntry
from coderoom.runs.listing import RunRow

_POLICY: Final = "default-src 'none'; img-src data:; base-uri 'none'"
NO_LOOK_UPS: Final = '<meta http-equiv="x-dns-prefetch-control" content="off">'
"""Without it, a browser may look up the hosts of links that nobody has clicked."""
_LIVE_SCRIPTS: Final = ("vendor/htmx.min.js", "vendor/idiomorph-ext.min.js", "live.js")
_HTMX: Final = {
    "allowEval": False,
    "includeIndicatorStyles": False,
    "historyCacheSize": 0,  # It would keep pages in the browser.
    "refreshOnHistoryMiss": True,
    "responseHandling": [
        {"code": "[23]04", "swap": False},
        {"code": "2..", "swap": True},
        {"code": "...", "swap": False, "error": True},
    ],
}
_TRAIL: Final = '<nav aria-label="Pages"><ol>'


def page_of(
    title: str,
    body: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    live: bool = False,
    trail: Sequence[tuple[str, str]] = (),
    shared_at: str = "",
) -> str:
    """A page in one file, which loads nothing from elsewhere, but its styles and scripts if other pages share them.

    Args:
        title: The title, as text.
        body: What is in `<main>`, as HTML.
        styles: Files of `static/` that are added to `page.css`.
        scripts: Files of `static/` that run in the page.
        live: Whether the page comes from a server, which its scripts and forms may ask; htmx is in it then.
        trail: The pages above this one, as names and links.
        shared_at: The folder that has them, by `write_shared`, as an address; empty: they are in the page.
    """
    scripts = (*(_LIVE_SCRIPTS if live else ()), *scripts)
    if shared_at:
        at, (styles_name, _), (scripts_name, _) = escape(shared_at), _together(styles), _together(scripts)
        style = f'<link rel="stylesheet" href="{at}/{styles_name}">'
        # Browsers check the integrity of no file that is opened without a server. The page cannot know this in advance.
        nonce = secrets.token_urlsafe(16)
        code = f'<script src="{at}/{scripts_name}" nonce="{nonce}"></script>' * bool(scripts)
        styles_from, scripts_from = "'unsafe-inline' 'self' file:", f"'nonce-{nonce}'"
    else:
        style, texts = f"<style>{_together(styles)[1]}</style>", [_static(name) for name in scripts]
        code = "".join(f"<script>{text}</script>" for text in texts)
        hashes = (base64.b64encode(sha256(text.encode()).digest()).decode() for text in texts)
        styles_from, scripts_from = "'unsafe-inline'", " ".join(f"'sha256-{each}'" for each in hashes)
    source = "'self'" if live else "'none'"
    policy = f"{_POLICY}; style-src {styles_from}; connect-src {source}; form-action {source}" + (
        f"; script-src {scripts_from}" if scripts else ""
    )
    htmx = f'<meta name="htmx-config" content="{escape(json.dumps(_HTMX))}">' if live else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{NO_LOOK_UPS}{htmx}'
        f"<title>{escape(title)}</title>{style}</head>\n"
        '<body hx-ext="morph"><a class="skip" href="#main">Skip to the content</a>\n'
        f'<header class="bar"><b>CodeRoom</b>{_TRAIL}{_above(trail)}'
        f'<li aria-current="page" dir="auto">{text_html(title)}</li></ol></nav></header>\n'
        f'<main id="main" tabindex="-1">\n{body}\n</main>\n'
        f"{code}</body></html>\n"
    )


def _above(trail: Iterable[tuple[str, str]]) -> str:
    return "".join(f'<li><a href="{escape(link)}">{text_html(name)}</a></li>' for name, link in trail)


def under(page: str, trail: Sequence[tuple[str, str]]) -> str:
    """A page that `page_of` has made, with more pages above it."""
    return page.replace(_TRAIL, _TRAIL + _above(trail), 1)


def write_shared(folder: Path, styles: Sequence[str], scripts: Sequence[str]) -> None:
    """Write what pages share into a folder, which is made; they know the names of the files."""
    for name, text in (_together(styles), _together(scripts)):
        if not (folder / name).exists():
            folder.mkdir(parents=True, exist_ok=True)
            new = folder / f"{name}.{os.getpid()}.{get_ident()}"
            new.write_text(text, encoding="utf-8")
            new.replace(folder / name)


def _together(names: Sequence[str]) -> tuple[str, str]:
    """Styles or scripts as one, and the name of a file with them, which is another one when they have changed."""
    is_code = any(name.endswith(".js") for name in names)
    text = ("" if is_code else _style()) + "\n".join(map(_static, names))
    return f"{sha256(text.encode()).hexdigest()[:16]}.{'js' if is_code else 'css'}", text


def polled(name: str, body: str, *, seconds: int = 1) -> str:
    """A part of a live page, as HTML, that takes its place in the page every few seconds, if there is a new one."""
    asks = f'hx-get="" hx-trigger="every {seconds}s" hx-select="#{name}" hx-swap="morph" hx-sync="this:drop"'
    return f'<div id="{name}" class="polled" {asks}>\n{body}\n</div>'


@cache
def _static(name: str) -> str:
    return resources.files("coderoom.runs.pages").joinpath("static", name).read_text("utf-8")


@cache
def _style() -> str:
    light = HtmlFormatter(style="default").get_style_defs("pre.hl")
    dark = HtmlFormatter(style="monokai").get_style_defs("pre.hl")
    own = _static("page.css")
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{own}\npre.hl {{ background: var(--panel); }}"


def style_of(entry: RunEntry | RunRow) -> str:
    """The class of a run's outcome in the CSS."""
    return {"ok": "good", "running": "dim", "no_code": "warn"}.get(entry.state, "bad")


def badge(words: str, style: str) -> str:
    """Words on a coloured ground, with a sign for who sees no colours; the style: `good`, `bad`, `warn` or `dim`."""
    return f'<span class="badge {style}">{text_html(words)}</span>'


def duration(seconds: float) -> str:
    """A time, in words."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:,.1f} h"


def path_html(path: object) -> str:
    """A path or an address, which may have a line break after each of its parts."""
    return text_html(path).replace("/", "/<wbr>")


def facts_html(facts: Mapping[str, str]) -> str:
    """Names and their values, which are HTML, as a compact grid; empty ones are left out."""
    listed = (f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in facts.items() if value)
    return f'<dl class="facts">{"".join(listed)}</dl>'


_FORMATTER: Final = HtmlFormatter(nowrap=True)
_LONGEST: Final = 50_000
"""Longer code and Markdown is shown as plain text: what reads them needs more than linear time."""


def code_html(code: str, language: str) -> str:
    """Code as HTML, with its syntax highlighted if the language is known."""
    lexer = _lexer(language) if len(code) <= _LONGEST else None
    marked = text_html(code) if lexer is None else highlight(visible(code), lexer, _FORMATTER)
    return f'<pre class="hl" tabindex="0">{marked}</pre>'


@cache
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        return None


# Nothing of a page is loaded from elsewhere, and what looks like HTML stays text.
_MARKDOWN: Final = (
    MarkdownIt("commonmark", {"html": False, "breaks": True, "highlight": lambda code, name, _: code_html(code, name)})
    .enable("table")
    .disable("image")
)


def markdown_html(text: str) -> str:
    """Markdown as HTML; HTML in it stays text, and nothing is loaded."""
    return str(_MARKDOWN.render(visible(text))) if len(text) <= _LONGEST else f"<pre>{text_html(text)}</pre>"


def prose_html(text: str) -> str:
    """What was said, which may be Markdown, in a column that is easy to read; nothing for no words."""
    return f'<div class="prose" dir="auto">{markdown_html(text)}</div>' if text.strip() else ""


def section_html(place: str, title: str, body: str, style: str = "") -> str:
    """A section under a title, with a place that links lead to; the title is a text, the body is HTML."""
    head = f'<h2 id="{place}" dir="auto">{text_html(title)}</h2>'
    return f'<section class="{style}" aria-labelledby="{place}">{head}{body}</section>'


_PART: Final = 40
"""Pieces that a browser renders together, when one of them comes into sight."""


def part_html(place: str, body: str, have: Container[str] = ()) -> str:
    """A part of a page, with its version; it is empty if the version is one of those that the browser has already."""
    return _part(*_versioned(place, body), have, "div", "")


def _versioned(place: str, body: str) -> tuple[str, str, str]:
    return place, str(crc32(f"{place} {body}".encode())), body


def _part(place: str, version: str, body: str, have: Container[str], tag: str, style: str) -> str:
    return f'<{tag} id="{place}" class="{style}" data-v="{version}">{"" if version in have else body}</{tag}>'


class Parts:
    """Pieces of a page, as HTML, in parts: a browser gets those that are new, and renders those that are seen.

    Args:
        name: What their ids begin with.
        tag: The element of a part.
        style: Its class.
    """

    def __init__(self, name: str, *, tag: str = "div", style: str = "part") -> None:
        self._name, self._tag, self._style = name, tag, style
        self._full: list[tuple[str, str, str]] = []
        self._last: list[str] = []

    def add(self, piece: str) -> None:
        """Add a piece."""
        self._last.append(piece)
        if len(self._last) == _PART:
            self._full.append(self._versioned())
            self._last = []

    def html(self, have: Container[str] = (), *, packed: bool = False) -> str:
        """All parts; those are empty whose versions the browser has already.

        Packed ones are for a page that is sent as a whole: a browser with scripts takes them as text, until they are
        near.
        """
        parts = [*self._full, self._versioned()] if self._last else self._full
        if packed:
            style = f"{self._style} packed"
            parts = [(place, version, f"<noscript>{body}</noscript>") for place, version, body in parts]
        else:
            style = self._style
        return "".join(_part(*part, have, self._tag, style) for part in parts)

    def _versioned(self) -> tuple[str, str, str]:
        return _versioned(f"{self._name}-{len(self._full) + 1}", "".join(self._last))


_HEAD_LINES: Final = 24
_TAIL_LINES: Final = 10
_HEAD: Final = 4_000
_TAIL: Final = 2_000
_LARGEST_TEXT: Final = 1_000_000


def folded_html(text: str, style: str = "") -> str:
    """A text as it was printed: if it is long, its head and its tail, and what is between them to be opened."""
    head = "\n".join(text[:_HEAD].split("\n")[:_HEAD_LINES])
    tail = "\n".join(text[len(head) :][-_TAIL:].split("\n")[-_TAIL_LINES:])
    middle = text[len(head) : len(text) - len(tail)]
    if middle.count("\n") <= 1 and len(middle) < _TAIL:
        return f'<pre class="output {style}" dir="auto">{text_html(text)}</pre>'
    lines = (
        f"{middle.count(chr(10)):,} more lines" if "\n" in middle.strip("\n") else f"{len(middle):,} more characters"
    )
    left_out = len(middle) - _LARGEST_TEXT
    more = f'<p class="notice">{left_out:,} characters are left out here.</p>' if left_out > 0 else ""
    parts = [
        f'<pre class="output {style}" dir="auto">{text_html(part)}</pre>'
        for part in (head, middle[:_LARGEST_TEXT].strip("\n"), tail.lstrip("\n"))
    ]
    return (
        f'<div class="folded">{parts[0]}<details><summary>{lines}</summary>{parts[1]}{more}</details>{parts[2]}</div>'
    )
