"""How objects show themselves in notebooks: small HTML without scripts and links, in which every text is escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from typing import Any, Final

from coderoom._util.text import visible

_LONGEST: Final = 10_000
_COLOURS: Final = {True: "#17704a", False: "#b42f26", None: "#7d889c"}
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
LARGEST_PICTURE: Final = 2 << 20


def text_html(value: Any) -> str:
    """A value as text in HTML, with control characters made visible."""
    return escape(visible("" if value is None else str(value)))


def shown_html(title: str, success: bool | None, facts: Mapping[str, Any], *parts: str) -> str:
    """A box with a title, which is bold, the facts that are not empty, and parts, which are HTML.

    Args:
        title: The title.
        success: Whether that is good; `None` if it is neither.
        facts: Names and values.
        parts: What stands below.
    """
    words = " · ".join(f"{name} {_short(value)}" for name, value in facts.items() if value not in (None, ""))
    line = f'<div><b dir="auto">{_short(title)}</b> <small style="opacity:.75">{words}</small></div>'
    style = f"border-left:4px solid {_COLOURS[success]};padding:.1em 0 .1em .75em;margin:.25em 0"
    return f'<div style="{style}">{line}{"".join(parts)}</div>'


def _short(text: Any) -> str:
    shown = str(text)
    return text_html(shown if len(shown) <= 300 else f"{shown[:300]}…")


def lines_html(text: str, name: str = "") -> str:
    """A text of several lines, cut if it is long, below its name; empty if it is."""
    if not text.strip():
        return ""
    cut = f"\n[... {len(text) - _LONGEST:,} characters left out ...]" if len(text) > _LONGEST else ""
    head = f'<small style="opacity:.75">{text_html(name)}</small>' if name else ""
    style = "white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;overflow:auto;margin:.25em 0"
    return f'{head}<pre style="{style}">{text_html(text[:_LONGEST])}{cut}</pre>'


def picture_html(data: bytes, media_type: str, name: str) -> str:
    """A picture whose type is one of `PICTURES`."""
    source = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return f'<div><img src="{source}" alt="{text_html(name)}" style="max-width:100%"></div>'


def rows_html(rows: Mapping[str, Any]) -> str:
    """A table of names and values."""
    listed = "".join(
        f'<tr><th style="text-align:left">{_short(name)}</th><td style="text-align:left">{_short(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table>{listed}</table>"
