"""The page of a batch: rates, groups, charts, a grid of all runs, and a table to search, filter and sort.

The summary and the first runs are HTML. All runs are data in the page, of which `batch.js` shows what is asked for, so
that a page with 10,000 of them opens at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from coderoom._util.text import counted, in_dollars, visible
from coderoom.runs.batch_report import (
    STATUSES,
    Estimate,
    Summary,
    read_results,
    read_settings,
    summary_lines,
)
from coderoom.runs.item_run import ERRORED, NOT_PASSED, PASSED, UNCHECKED, Result
from coderoom.runs.items import BadLine
from coderoom.runs.pages.charts import histogram_svg, interval_svg, shares_svg
from coderoom.runs.pages.frame import page_of, text_html

SIGNS: Final = {PASSED: "✓", NOT_PASSED: "✗", UNCHECKED: "○", ERRORED: "!"}
_MOST_ROWS: Final = 50_000
_MOST_PLAIN: Final = 500
"""How many runs are shown without scripts."""
_MOST_BAD: Final = 200
_MOST_NAMED: Final = 20
_LONGEST: Final = 300


@dataclass(frozen=True)
class Row:
    """A run on the page; its texts are visible ones."""

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
    tags: Sequence[str]

    @property
    def name(self) -> str:
        """The item, and which of its runs it is."""
        return f"{self.id}, {self.repeat}" if self.repeat > 1 else self.id


def row_of(result: Result, reason: str) -> Row:
    """A result on the page, with the reason that it is counted with."""
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
        result.tags,
    )


def write_batch_page(folder: Path, bad_lines: Sequence[BadLine] = (), notes: Sequence[str] = ()) -> Summary:
    """Write `index.html` for the results so far, and return their summary."""
    summary, rows = Summary(), list[Row]()
    for result in read_results(folder):
        summary.add(result)
        if len(rows) < _MOST_ROWS:
            rows.append(row_of(result, summary.reason_of(result)))
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
    models = batch["model"] or ", ".join(sorted(set(batch["models"].values()))) or "none"
    about = [("team", batch["team_name"]), ("model", models), ("items", batch["items"])]
    lines = [line for line in summary_lines(summary.to_json()) if line[0] not in STATUSES]  # They stand above.
    groups = list(summary.tags.groups())
    parts = [
        f"<h1>Batch</h1>{_headline(summary)}",
        facts_html([*about, *lines]),
        "".join(f"<p>{text_html(each)}</p>" for each in [*summary.warnings, *notes]),
        _bad_lines(bad_lines),
        _by_tag(summary),
        _reasons(summary, rows),
        _charts(summary),
        _runs(summary, rows, groups),
        f'<script type="application/json" id="data">{_data(rows, list(summary.reasons), groups)}</script>',
    ]
    body = f'<div class="batch">{"".join(parts)}</div>'
    return page_of(f"Batch: {batch['team_name']}", body, styles=["batch.css"], scripts=["batch.js"])


def facts_html(facts: Sequence[tuple[str, str]]) -> str:
    """Names and values, as a table."""
    found = (f'<tr><th scope="row">{text_html(name)}</th><td>{text_html(value)}</td></tr>' for name, value in facts)
    return f"<table>{''.join(found)}</table>"


def between(rate: Estimate) -> str:
    """The interval of a rate, in words."""
    return f"95 %: {rate[1]:.1%} to {rate[2]:.1%}"


def link_html(row: Row, folder: str = "pages") -> str:
    """A link to the page of a run."""
    return f'<a href="{escape(folder)}/{escape(row.run)}.html" dir="auto">{escape(row.name)}</a>'


def _headline(summary: Summary) -> str:
    counts = [(status, summary.counts[status]) for status in STATUSES if summary.counts[status]]
    if not counts:
        return "<p>There are no results.</p>"
    passed, rate = "", summary.pass_at(1)
    if rate is not None:
        checked = counted(sum(number for number, _ in summary.runs.values()), "checked run")
        of = f"of {checked} of {counted(len(summary.runs), 'item')}"
        passed = f'<p class="rate"><b>{rate[0]:.1%}</b> pass rate <span class="dim">({between(rate)}), {of}</span></p>'
    words = ", ".join(f"{number:,} {status}" for status, number in counts)
    links = " ".join(
        f'<a href="#status={status}"><span class="sign {status}" aria-hidden="true">{SIGNS[status]}</span> '
        f"{number:,} {status}</a>"
        for status, number in counts
    )
    return f'{passed}{shares_svg(counts, words)}<p class="legend">{links}</p>'


def _bad_lines(bad_lines: Sequence[BadLine]) -> str:
    if not bad_lines:
        return ""
    listed = facts_html([(f"line {each.number}", each.why) for each in bad_lines[:_MOST_BAD]])
    more = f"<p>and {len(bad_lines) - _MOST_BAD:,} more</p>" if len(bad_lines) > _MOST_BAD else ""
    return f"<h2>Lines that are no items</h2>{listed}{more}"


def _by_tag(summary: Summary) -> str:
    rows = ""
    for at, (tag, group) in enumerate(summary.tags.groups().items()):
        rate = group.pass_rate
        shown = '<td class="dim">not checked</td><td></td><td></td>'
        if rate is not None:
            shown = f"<td>{rate[0]:.1%}</td><td>{between(rate)}</td><td>{interval_svg(rate)}</td>"
        name = f'<a href="#tag={at}" dir="auto">{text_html(tag)}</a>'
        rows += f'<tr><th scope="row">{name}</th><td>{len(group.items):,}</td><td>{group.number:,}</td>{shown}</tr>'
    head = "".join(f'<th scope="col">{name}</th>' for name in ("tag", "items", "runs", "pass rate", "interval", ""))
    table = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f"<h2>By tag</h2>{_wide(table, 'By tag', 'tags')}" if rows else ""


def _reasons(summary: Summary, rows: Sequence[Row]) -> str:
    if not summary.reasons:
        return ""
    first: dict[str, list[Row]] = {reason: [] for reason in summary.reasons}
    for row in rows:
        if row.reason and len(first[row.reason]) < _MOST_NAMED:
            first[row.reason].append(row)
    numbers = {reason: at for at, reason in enumerate(summary.reasons)}
    listed = ""
    for reason, number in summary.reasons.most_common():
        links = ", ".join(map(link_html, first[reason]))
        more = f" and {number - _MOST_NAMED:,} more" if number > _MOST_NAMED else ""
        listed += (
            f'<details><summary><b>{number:,}</b> <span dir="auto">{text_html(reason)}</span></summary>'
            f'<p>{links}{more} · <a href="#reason={numbers[reason]}">show in the table</a></p></details>'
        )
    return f'<h2>Why runs have not passed</h2><div class="reasons">{listed}</div>'


def _charts(summary: Summary) -> str:
    if not summary.total:
        return ""
    charts = histogram_svg(
        summary.seconds, "Time", lambda value: f"{value:,.2g} s" if value < 100 else f"{value:,.0f} s"
    )
    if any(summary.tokens):
        charts += histogram_svg(summary.tokens, "Tokens", lambda value: f"{value:,.0f}")
    if any(summary.costs):
        charts += histogram_svg(
            summary.costs, "Cost", lambda value: f"${value:,.2g}" if value < 100 else f"${value:,.0f}"
        )
    return f'<h2>Each run</h2><div class="charts">{charts}</div>'


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
        f'<a class="cell {row.status}" href="pages/{escape(row.run)}.html" title="{escape(row.name)}: {row.status}">'
        f"{SIGNS[row.status]}</a>"
        for row in plain
    )
    return (
        f'<h2 id="grid-title">Items and repeats</h2>{no_script}'
        f'<div id="grid" role="group" aria-labelledby="grid-title">{cells}</div>'
        f'<h2 id="runs">Runs</h2>{left_out}{_controls(summary, groups)}{_table(plain)}'
        '<p id="pages" hidden><button type="button" data-step="-1">previous</button> '
        '<button type="button" data-step="1">next</button></p>'
    )


def _controls(summary: Summary, groups: Sequence[str]) -> str:
    statuses = [(status, f"{status} ({summary.counts[status]:,})") for status in STATUSES if summary.counts[status]]
    reasons = [(str(at), f"{reason} ({number:,})") for at, (reason, number) in enumerate(summary.reasons.items())]
    chosen = [
        _choice("status", "any status", statuses),
        _choice("tag", "any tag", [(str(at), tag) for at, tag in enumerate(groups)]),
        _choice("reason", "any reason", reasons),
    ]
    return (
        '<form id="filters" role="search" hidden>'
        '<input type="search" name="q" placeholder="search items and reasons ( / )" aria-label="search">'
        f"{''.join(chosen)}"
        '<button type="button" data-save="csv">save as CSV</button> '
        '<button type="button" data-save="json">save as JSON</button>'
        '<output id="found" aria-live="polite"></output></form>'
    )


def _choice(name: str, everything: str, options: Sequence[tuple[str, str]]) -> str:
    if not options:
        return ""
    listed = "".join(f'<option value="{escape(value)}">{text_html(text)}</option>' for value, text in options)
    return f'<select name="{name}" aria-label="{name}"><option value="">{everything}</option>{listed}</select>'


_COLUMNS: Final = (
    ("item", "item"),
    ("status", "status"),
    ("time", "time"),
    ("tokens", "tokens"),
    ("cost", "cost"),
    ("checked", "checked by"),
    ("outcome", "outcome"),
    ("why", "why"),
)
"""Their classes in the CSS, and their titles."""


def _table(rows: Sequence[Row]) -> str:
    head = "".join(f'<th scope="col" class="{name}">{title}</th>' for name, title in _COLUMNS)
    listed = ""
    for row in rows:
        cells = (
            link_html(row),
            f'<span class="sign {row.status}" aria-hidden="true">{SIGNS[row.status]}</span> {row.status}',
            f"{row.seconds:.1f} s",
            f"{row.tokens:,}" if row.tokens else "",
            in_dollars(row.cost_usd) if row.cost_usd else "",
            escape(row.checked_by) + " (can be fooled)" * row.can_be_fooled,
            escape(row.outcome),
            f'<span dir="auto">{escape(row.why)}</span>',
        )
        named = zip(_COLUMNS, cells, strict=True)
        listed += "<tr>" + "".join(f'<td class="{name}">{cell}</td>' for (name, _), cell in named) + "</tr>"
    return _wide(f'<thead><tr>{head}</tr></thead><tbody id="rows">{listed}</tbody>', "Runs", "runs")


def _wide(table: str, name: str, style: str) -> str:
    """A table that scrolls by itself where the page is narrow."""
    return (
        f'<div class="wide" role="region" aria-label="{name}" tabindex="0"><table class="{style}">{table}</table></div>'
    )


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
            reason_at.get(row.reason, -1),
            [tag_at[tag] for tag in row.tags if tag in tag_at],
        ]
        for row in rows
    ]
    facts = {
        "statuses": [[status, SIGNS[status]] for status in STATUSES],
        "reasons": [visible(reason) for reason in reasons],
        "tags": [visible(tag) for tag in groups],
        "rows": listed,
    }
    # The end of a script, or the begin of a comment in it, would end the data.
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
