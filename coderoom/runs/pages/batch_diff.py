"""The page that compares two batches. Used by `coderoom batch diff --html`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from coderoom._util.text import visible
from coderoom.runs.batch_diff import Comparison, Pair, comparison_lines
from coderoom.runs.batch_report import models_of
from coderoom.runs.item_run import Result
from coderoom.runs.pages.batch import STYLES, table_html
from coderoom.runs.pages.frame import badge, facts_html, page_of, text_html

_MOST_ROWS: Final = 1_000
_LONGEST: Final = 300


def batch_diff_page(
    compared: Comparison,
    folders: tuple[Path, Path],
    settings: tuple[Mapping[str, Any], Mapping[str, Any]],
    links: tuple[str, str],
) -> str:
    """The page that compares two batches, with links to their runs.

    Args:
        compared: What differs.
        folders: The folders of the batches.
        settings: What they are, as in `batch.json`.
        links: The addresses of the folders, seen from the page.
    """
    places = list(zip(folders, links, strict=True))
    facts = {}
    for name, (folder, link), batch in zip(("first", "second"), places, settings, strict=True):
        about = f"{text_html(batch['team_name'])}, {text_html(models_of(batch))}"
        facts[name] = f'<a href="{escape(link)}/index.html">{text_html(folder)}</a><br>{about}'
    better, worse = set(compared.better), set(compared.worse)
    parts = [
        f"<h1>Two batches</h1>{facts_html(facts)}",
        "".join(f"<p>{text_html(line[:1].upper() + line[1:])}.</p>" for line in comparison_lines(compared)),
        _pairs("Worse in the second", [pair for pair in compared.changed if pair.id in worse], places),
        _pairs("Better in the second", [pair for pair in compared.changed if pair.id in better], places),
        _pairs("Other changes", [pair for pair in compared.changed if pair.id not in better | worse], places),
    ]
    if not compared.changed:
        parts.append('<p class="empty">The batches have the same results.</p>')
    return page_of("Two batches", "".join(parts), styles=["batch.css"])


def _pairs(title: str, pairs: Sequence[Pair], places: Sequence[tuple[Path, str]]) -> str:
    if not pairs:
        return ""
    rows = []
    for pair in pairs[:_MOST_ROWS]:
        both = [(result, *place) for result, place in zip((pair.first, pair.second), places, strict=True)]
        links = list(filter(None, (_href(*each) for each in both)))
        href = f' href="{links[-1]}"' if links else ""  # The second batch is the newer one.
        rows.append((f'<a{href} dir="auto">{text_html(pair.name)}</a>', *(_cell(*each) for each in both)))
    more = f"<p>and {len(pairs) - _MOST_ROWS:,} more</p>" if len(pairs) > _MOST_ROWS else ""
    columns = {"item": "item", "first": "why", "second": "why"}
    return f"<h2>{title} ({len(pairs):,})</h2>{table_html(title, columns, rows)}{more}"


def _href(result: Result | None, folder: Path, link: str) -> str:
    """The address of the page of a run; empty if it has none."""
    page = f"pages/{result.run}.html" if result else ""
    return f"{escape(link)}/{escape(page)}" if page and (folder / page).exists() else ""


def _cell(result: Result | None, folder: Path, link: str) -> str:
    if result is None:
        return badge("missing", "dim")
    shown = badge(result.status, STYLES[result.status])
    why = f'<div dir="auto">{escape(visible(result.why[:_LONGEST]))}</div>' if result.why else ""
    href = _href(result, folder, link)
    return f'<a href="{href}">{shown}</a>{why}' if href else f"{shown}{why}"
