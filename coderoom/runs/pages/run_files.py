"""The files that code has made, on the page of a run: pictures, tables that can be sorted, Markdown, code."""

from __future__ import annotations

import base64
import csv
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import PurePosixPath
from typing import Any, Final

from coderoom.runs.pages.frame import NO_LOOK_UPS, code_html, prose_html, text_html
from coderoom.runs.tables import rows_of

_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"})
_LARGEST_SHOWN: Final = 500_000
_MOST_ROWS: Final = 200
_MOST_COLUMNS: Final = 40
_DELIMITERS: Final = {"text/csv": ",", "text/tab-separated-values": "\t"}
_LANGUAGES: Final = {
    ".py": "python",
    ".js": "javascript",
    ".sh": "sh",
    ".json": "json",
    ".yaml": "yaml",
    ".toml": "toml",
}
_FRAME: Final = (
    f"<!doctype html><meta charset='utf-8'>{NO_LOOK_UPS}"
    "<style>body { font: 0.9em sans-serif; background: white; }</style>"
)
_REACHING: Final = re.compile("<(?=link|meta|base)", re.IGNORECASE)
"""Where tags begin that make a browser look up or connect to hosts, which no policy forbids."""


def is_picture(artifact: Mapping[str, Any]) -> bool:
    """Whether a file is a picture that browsers show."""
    return artifact["media_type"] in _PICTURES


def file_html(artifact: Mapping[str, Any], data: bytes, place: str = "") -> str:
    """A file by name and size, with what it shows, if the journal has its data; `place` is its id in the page."""
    name, shown = artifact["name"], _shown(artifact, data) if data else ""
    line = f'{text_html(name)} <span class="dim">{artifact["size"]:,} bytes</span>'
    at = f' id="{place}"' if place else ""
    if shown and artifact.get("position") is None and not is_picture(artifact):  # It was written, and not displayed.
        return f'<details{at} class="file"><summary>{line}</summary>{shown}</details>'
    return f'<figure{at} class="file">{shown}<figcaption>{line}</figcaption></figure>'


def _shown(artifact: Mapping[str, Any], data: bytes) -> str:
    name, kind = artifact["name"], artifact["media_type"]
    if kind in _PICTURES:
        return f'<img src="data:{kind};base64,{base64.b64encode(data).decode()}" alt="{text_html(name)}">'
    text = data.decode("utf-8", "replace")
    if len(data) > _LARGEST_SHOWN or "\0" in text:
        return ""
    if kind == "text/html":
        return _html(text, name) if artifact.get("position") is not None else code_html(text, "html")
    if kind == "text/markdown":
        return prose_html(text)
    if kind in _DELIMITERS:
        rows = list(csv.reader(text.splitlines(), delimiter=_DELIMITERS[kind]))
        return table_html(rows, name) if rows else ""
    if kind == "application/json" and (rows := _records(text)):
        return table_html(rows, name)
    suffix = PurePosixPath(name).suffix
    is_text = kind.startswith("text/") or suffix in _LANGUAGES
    return code_html(text, _LANGUAGES.get(suffix, "text")) if is_text else ""


def _html(text: str, name: str) -> str:
    """HTML that code has displayed: a plain table as one of ours, all else in a frame."""
    if rows := rows_of(text):
        return table_html(rows, name)
    # It may be anything: nothing in it runs, and it reaches nothing.
    height = min(30, 2.5 + 1.4 * text.count("<tr"))
    source = escape(_FRAME + _REACHING.sub("&lt;", text))
    return f'<iframe sandbox title="{text_html(name)}" srcdoc="{source}" style="height: {height}em"></iframe>'


def _records(text: str) -> list[list[str]]:
    """The rows of a JSON list of flat objects, with a head; none if it is something else."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(data, list) or not data or not all(isinstance(each, dict) for each in data):
        return []
    if any(isinstance(value, dict | list) for each in data for value in each.values()):
        return []
    names = list(dict.fromkeys(name for each in data for name in each))
    return [names, *([_cell(each.get(name)) for name in names] for each in data)]


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def table_html(rows: Sequence[Sequence[str]], name: str) -> str:
    """A table whose first row is its head. Its columns can be sorted."""
    head, body = rows[0][:_MOST_COLUMNS], rows[1 : _MOST_ROWS + 1]
    numbers = [all(_is_number(row[at]) for row in body if at < len(row) and row[at]) for at in range(len(head))]
    style = [' class="number"' if each and body else "" for each in numbers]
    columns = "".join(
        f'<th scope="col"{each}><button type="button">{text_html(title.strip()) or f"({at})"}</button></th>'
        for at, (title, each) in enumerate(zip(head, style, strict=True), 1)
    )
    cells = "".join(
        f"<tr>{''.join(f'<td{each}>{text_html(cell)}</td>' for cell, each in zip(row, style, strict=False))}</tr>"
        for row in body
    )
    left_out = []
    if len(rows) - 1 > len(body):
        left_out.append(f"{len(body):,} of {len(rows) - 1:,} rows")
    if len(rows[0]) > len(head):
        left_out.append(f"{len(head)} of {len(rows[0]):,} columns")
    note = f'<p class="dim">{", ".join(left_out)}</p>' if left_out else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text_html(name)}">'
        f'<table class="sortable"><thead><tr>{columns}</tr></thead><tbody>{cells}</tbody></table></div>{note}'
    )


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True
