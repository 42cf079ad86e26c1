"""The page of a batch: rates, groups, charts, a grid of all runs, and a table to search, filter and sort.

The summary and the first runs are HTML. All runs are data in the page, of which `batch.js` shows what is asked for, so
that a page with 10,000 of them opens at once.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from coderoom._util.text import counted, in_dollars, visible
from coderoom.runs.batch_report import (
    STATUSES,
    Estimate,
    Summary,
    models_of,
    read_results,
    read_settings,
    summary_lines,
)
from coderoom.runs.item_run import ERRORED, NOT_PASSED, PASSED, UNCHECKED, Result
from coderoom.runs.items import BadLine
from coderoom.runs.pages.charts import histogram_svg, interval_svg, shares_svg
from coderoom.runs.pages.frame import badge, facts_html, page_of, path_html, text_html

_SIGNS: Final = {PASSED: "✓", NOT_PASSED: "✕", UNCHECKED: "•", ERRORED: "!"}
STYLES: Final = {PASSED: "good", NOT_PASSED: "bad", UNCHECKED: "dim", ERRORED: "warn"}
_MOST_ROWS: Final = 50_000
_MOST_PLAIN: Final = 500
"""How many runs are shown without scripts."""
_MOST_BAD: Final = 200
_MOST_NAMED: Final = 20
_LONGEST: Final = 300
_NO_LINK: Final = ' role="img"'


@dataclass(frozen=True)
class Row:
    """A run on the page; its texts are visible ones. `page` is empty if it has none: it could not begin."""

    id: str
    repeat: int
    status: str
    checked_by: str
    can_be_fooled: bool
    outcome: str
    seconds: float
    tokens: int
    cost_usd: float | None
    reason: str
    why: str
    run: str
    page: str
    tags: Sequence[str]

    @property
    def name(self) -> str:
        """The item, and which of its runs it is."""
        return f"{self.id}, {self.repeat}" if self.repeat > 1 else self.id


def _row_of(result: Result, reason: str, pages: Container[str]) -> Row:
    """A result on the page, with the reason that it is counted with; `pages` are those that there are."""
    page = f"{result.run}.html"
    return Row(
        visible(result.id),
        result.repeat,
        result.status,
        result.checked_by,
        result.can_be_fooled,
        result.outcome,
        round(result.seconds, 2),
        result.prompt_tokens + result.completion_tokens,
        result.cost_usd,
        reason,
        visible(result.why[:_LONGEST]),
        result.run,
        f"pages/{page}" if page in pages else "",
        result.tags,
    )


def write_batch_page(folder: Path, bad_lines: Sequence[BadLine] = (), notes: Sequence[str] = ()) -> Summary:
    """Write `index.html` for the results so far, and return their summary."""
    summary, rows = Summary(), list[Row]()
    pages = {path.name for path in (folder / "pages").glob("*.html")}
    for result in read_results(folder):
        summary.add(result)
        if len(rows) < _MOST_ROWS:
            rows.append(_row_of(result, summary.reason_of(result), pages))
    new = folder / "index.html.new"
    new.write_text(batch_page(read_settings(folder), summary, rows, bad_lines, notes), encoding="utf-8")
    new.replace(folder / "index.html")
    return summary


def batch_page(
    batch: Mapping[str, Any],
    summary: Summary,
    rows: Sequence[Row],
    bad_lines: Sequence[BadLine] = (),
    notes: Sequence[str] = (),
) -> str:
    """The page of a batch.

    Args:
        batch: What the batch is, as in `batch.json`.
        summary: The summary of all its results.
        rows: Its runs, perhaps not all.
        bad_lines: The lines that are no items.
        notes: Sentences that stand under the summary.
    """
    about = [("team", batch["team_name"]), ("model", models_of(batch)), ("items", batch["items"])]
    above = (*STATUSES, "pass@1")
    lines = [line for line in summary_lines(summary.to_json()) if line[0] not in above]
    groups = list(summary.tags.groups())
    parts = [
        f"<h1>Batch</h1>{_headline(summary)}",
        facts_html({name: path_html(value) for name, value in [*about, *lines]}),
        "".join(f'<p class="notice">{text_html(each)}</p>' for each in [*summary.warnings, *notes]),
        _bad_lines(bad_lines),
        _by_tag(summary),
        _reasons(summary, rows),
        _charts(summary),
        _runs(summary, rows, groups),
        f'<script type="application/json" id="data">{_data(rows, list(summary.reasons), groups)}</script>',
    ]
    return page_of(f"Batch: {batch['team_name']}", "".join(parts), styles=["batch.css"], scripts=["batch.js"])


def _between(rate: Estimate) -> str:
    """The interval of a rate, in words."""
    return f"95 %: {rate[1]:.1%} to {rate[2]:.1%}"


def _link(row: Row) -> str:
    return f'<a{_href(row)} dir="auto">{escape(row.name)}</a>'


def _href(row: Row) -> str:
    return f' href="{escape(row.page)}"' if row.page else ""


def _headline(summary: Summary) -> str:
    counts = [(status, summary.counts[status]) for status in STATUSES if summary.counts[status]]
    if not counts:
        return "<p>There are no results.</p>"
    passed, rate = "", summary.pass_at(1)
    if rate is not None:
        checked = counted(sum(number for number, _ in summary.runs.values()), "checked run")
        of = f"of {checked} of {counted(len(summary.runs), 'item')}"
        passed = f'<p class="rate"><b>{rate[0]:.1%}</b> pass rate <span class="dim">({_between(rate)}), {of}</span></p>'
    words = ", ".join(f"{number:,} {status}" for status, number in counts)
    links = " ".join(
        f'<a href="{_asked("status", status)}">{badge(f"{number:,} {status}", STYLES[status])}</a>'
        for status, number in counts
    )
    shares = shares_svg([(STYLES[status], number) for status, number in counts], words)
    return f"{passed}{shares}<p>{links}</p>"


def _asked(name: str, value: str) -> str:
    """The address of the table with only the runs that have a value; `batch.js` reads it."""
    return f"#{escape(urlencode({name: visible(value)}))}"


def _bad_lines(bad_lines: Sequence[BadLine]) -> str:
    if not bad_lines:
        return ""
    listed = "".join(f"<li>line {each.number}: {text_html(each.why)}</li>" for each in bad_lines[:_MOST_BAD])
    more = f"<p>and {len(bad_lines) - _MOST_BAD:,} more</p>" if len(bad_lines) > _MOST_BAD else ""
    return f"<h2>Lines that are no items</h2><ul>{listed}</ul>{more}"


def _by_tag(summary: Summary) -> str:
    rows = []
    for tag, group in summary.tags.groups().items():
        rate = group.pass_rate
        shown = ("not checked", "") if rate is None else (f"{rate[0]:.1%}", f"{_between(rate)}{interval_svg(rate)}")
        name = f'<a href="{_asked("tag", tag)}" dir="auto">{text_html(tag)}</a>'
        rows.append((name, f"{len(group.items):,}", f"{group.number:,}", *shown))
    titles = {"tag": "nowrap", "items": "number", "runs": "number", "pass rate": "number", "interval": "nowrap"}
    return f"<h2>By tag</h2>{table_html('By tag', titles, rows)}" if rows else ""


def _reasons(summary: Summary, rows: Sequence[Row]) -> str:
    if not summary.reasons:
        return ""
    first: dict[str, list[Row]] = {reason: [] for reason in summary.reasons}
    for row in rows:
        if row.reason and len(first[row.reason]) < _MOST_NAMED:
            first[row.reason].append(row)
    listed = ""
    for reason, number in summary.reasons.most_common():
        links = ", ".join(map(_link, first[reason]))
        more = f" and {number - _MOST_NAMED:,} more" if number > _MOST_NAMED else ""
        listed += (
            f'<details><summary><b>{number:,}</b> <span dir="auto">{text_html(reason)}</span></summary>'
            f'<p>{links}{more} · <a href="{_asked("reason", reason)}">show in the table</a></p></details>'
        )
    return f'<h2>Why runs have not passed</h2><div class="reasons">{listed}</div>'


def _charts(summary: Summary) -> str:
    if not summary.total:
        return ""
    charts = histogram_svg(summary.seconds, "Time", lambda value: f"{_short(value)} s")
    if any(summary.tokens):
        charts += histogram_svg(summary.tokens, "Tokens", lambda value: f"{value:,.0f}")
    if any(summary.costs):
        charts += histogram_svg(summary.costs, "Cost", lambda value: f"${_short(value)}")
    return f'<h2>Each run</h2><div class="cards">{charts}</div>'


def _short(value: float) -> str:
    return f"{value:,.2g}" if value < 100 else f"{value:,.0f}"


# --- All runs ---


def _runs(summary: Summary, rows: Sequence[Row], groups: Sequence[str]) -> str:
    plain = rows[:_MOST_PLAIN]
    left_out = ""
    if summary.total > len(rows):
        left_out = f"<p>These are the first {len(rows):,} of {summary.total:,} runs; results.jsonl has all.</p>"
    no_script = ""
    if len(rows) > len(plain):
        no_script = f"<noscript><p>Without scripts, these are the first {len(plain):,} runs.</p></noscript>"
    cells = "".join(
        f'<a{_href(row) or _NO_LINK} class="cell {STYLES[row.status]}" title="{name}" aria-label="{name}">'
        f"{_SIGNS[row.status]}</a>"
        for row in plain
        for name in [escape(f"{row.name}: {row.status}")]
    )
    return (
        f'<h2 id="grid-title">Items and repeats</h2>{no_script}'
        f'<div id="grid" role="group" aria-labelledby="grid-title">{cells}</div>'
        f'<h2 id="runs">Runs</h2>{left_out}{_controls(summary, groups)}<div id="table">{_table(plain)}</div>'
        '<p class="toolbar" id="pages" hidden><button type="button" data-step="-1">previous</button> '
        '<button type="button" data-step="1">next</button></p>'
    )


def _controls(summary: Summary, groups: Sequence[str]) -> str:
    chosen = [
        _choice("status", [(status, summary.counts[status]) for status in STATUSES if summary.counts[status]]),
        _choice("tag", [(tag, summary.tags.groups()[tag].number) for tag in groups]),
        _choice("reason", summary.reasons.items()),
    ]
    return (
        '<form class="toolbar" id="filters" role="search" hidden>'
        '<label>search<input type="search" name="q" placeholder="/"></label>'
        f"{''.join(chosen)}"
        '<button type="button" data-save="csv">save as CSV</button>'
        '<button type="button" data-save="json">save as JSON</button>'
        '<output id="found" aria-live="polite"></output></form>'
    )


def _choice(name: str, options: Iterable[tuple[str, int]]) -> str:
    listed = "".join(
        f'<option value="{text_html(value)}">{text_html(value)} ({number:,})</option>' for value, number in options
    )
    choice = f'<label>{name}<select name="{name}"><option value="">any</option>{listed}</select></label>'
    return choice if listed else ""


_COLUMNS: Final = {
    "item": "item",
    "status": "status",
    "time": "time number",
    "tokens": "tokens number",
    "cost": "cost number",
    "checked by": "checked",
    "outcome": "outcome",
    "why": "why",
}
"""The titles, and the classes of their cells in the CSS; `batch.js` makes the same cells."""


def _table(rows: Sequence[Row]) -> str:
    listed = [
        (
            _link(row),
            badge(row.status, STYLES[row.status]),
            f"{row.seconds:.1f} s",
            f"{row.tokens:,}" if row.tokens else "",
            in_dollars(row.cost_usd) if row.cost_usd else "",
            escape(row.checked_by) + " (can be fooled)" * row.can_be_fooled,
            escape(row.outcome),
            f'<span dir="auto">{escape(row.why)}</span>',
        )
        for row in rows
    ]
    return table_html("Runs", _COLUMNS, listed)


def table_html(name: str, columns: Mapping[str, str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls by itself where the page is narrow.

    Args:
        name: What a screen reader calls it.
        columns: The titles, with the classes of their cells.
        rows: The cells, as HTML.
    """
    classes = [f' class="{each}"' if each else "" for each in columns.values()]
    head = "".join(f'<th scope="col"{style}>{title}</th>' for title, style in zip(columns, classes, strict=True))
    body = ""
    for row in rows:
        body += f"<tr>{''.join(f'<td{style}>{cell}</td>' for style, cell in zip(classes, row, strict=True))}</tr>"
    table = f'<table class="wide"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="scroll" role="region" aria-label="{name}" tabindex="0">{table}</div>'


def _data(rows: Sequence[Row], reasons: Sequence[str], groups: Sequence[str]) -> str:
    """The runs as JSON that can stand in a page; texts that occur often are numbers."""
    reason_at, tag_at = ({text: at for at, text in enumerate(texts)} for texts in (reasons, groups))
    listed = [
        [
            row.id,
            row.repeat,
            STATUSES.index(row.status),
            row.seconds,
            row.tokens,
            row.cost_usd,
            row.checked_by,
            int(row.can_be_fooled),
            row.outcome,
            row.why,
            row.run,
            int(bool(row.page)),
            reason_at.get(row.reason, -1),
            [tag_at[tag] for tag in row.tags if tag in tag_at],
        ]
        for row in rows
    ]
    facts = {
        "statuses": [[status, STYLES[status], _SIGNS[status]] for status in STATUSES],
        "reasons": [visible(reason) for reason in reasons],
        "tags": [visible(tag) for tag in groups],
        "rows": listed,
    }
    # The end of a script, or the begin of a comment in it, would end the data.
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
