"""The page that compares two runs, side by side: facts, answers, the last code, and all that was said and done."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from typing import Final
from urllib.parse import quote

from coderoom._util.text import in_dollars
from coderoom.errors import RequestError
from coderoom.runs.journal import Journal, RunEntry, without_files
from coderoom.runs.listing import RunQuery, RunRow
from coderoom.runs.pages.frame import badge, page_of, style_of, text_html
from coderoom.runs.run_log import lines_of
from coderoom.runs.story import Cell, Code, Progress, tell_steps

_MOST_LINES: Final = 2_000
"""A comparison takes more than linear time."""
_AROUND: Final = 3


def compare_page(journal: Journal, ids: Sequence[str]) -> str:
    """The page that compares two runs, as HTML.

    Raises:
        RequestError: There are not two, or one of them is not in the journal.
    """
    if len(ids) != 2:
        chosen = f"{len(ids)} {'was' if len(ids) == 1 else 'were'} chosen"
        raise RequestError(f"Two runs are compared, and {chosen}: choose two in the list.")
    entries = [journal.find(run) for run in ids]
    rows = [journal.listed(RunQuery(run=entry.id)).rows[0] for entry in entries]
    before, now = (_code_of(journal, entry) for entry in entries)
    told_before, told_now = (lines_of(journal, entry) for entry in entries)
    answers = [str(entry.facts.get("answer") or "").splitlines() for entry in entries]
    outputs = [str(entry.facts.get("output") or "").splitlines() for entry in entries]
    parts = [
        "<h1>Two runs</h1>",
        _facts(entries, rows),
        _section("Answers", *answers),
        _section("Outputs", *outputs),
        _section("The last code", before, now),
        _section("All that was said and done", told_before, told_now),
    ]
    return page_of("Two runs", "".join(parts), styles=["compare.css"], live=True, trail=[("Runs", "../")])


def _code_of(journal: Journal, entry: RunEntry) -> list[str]:
    """The code that a run had last."""
    found = ""
    for told in tell_steps(journal.steps(entry.id)):
        match told:
            case Code() if told.blocks:
                found = "\n\n".join(block.code for block in told.blocks)
            case Cell(code=code) | Progress(code=code) if code:
                found = code
    return found.splitlines()


def _facts(entries: Sequence[RunEntry], rows: Sequence[RunRow]) -> str:
    facts = [dict(_told(entry, row)) for entry, row in zip(entries, rows, strict=True)]
    lines = ""
    for name in facts[0]:
        one, other = (each[name] for each in facts)
        if one or other:
            style = ' class="differs"' if one != other else ""
            lines += f'<tr{style}><th scope="row">{name}</th><td dir="auto">{one}</td><td dir="auto">{other}</td></tr>'
    head = "".join(
        f'<th scope="col"><a href="../{escape(quote(entry.id, safe=""))}">{text_html(entry.id)}</a></th>'
        for entry in entries
    )
    return (
        '<div class="scroll" role="region" tabindex="0" aria-label="Facts"><table class="wide pair">'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _told(entry: RunEntry, row: RunRow) -> Iterator[tuple[str, str]]:
    yield "task", f'<div class="text">{text_html(without_files(entry.task))}</div>'
    yield "outcome", badge(row.state, style_of(row))
    yield "verdict", text_html(row.verdict)
    yield "error", text_html(entry.facts.get("error") or entry.facts.get("limit"))
    yield "team", text_html(row.name or row.command)
    yield "model", text_html(row.model)
    yield "began", f"{datetime.fromtimestamp(row.started).astimezone():%Y-%m-%d %H:%M:%S}"
    yield "attempts", "" if row.attempts is None else f"{row.attempts:,}"
    yield "tokens", f"{row.tokens:,}" if row.tokens else ""
    yield "cost", "" if row.cost is None else in_dollars(row.cost)
    yield "time", "" if row.seconds is None else f"{row.seconds:,.1f} s"


def _section(title: str, before: list[str], now: list[str]) -> str:
    if not before and not now:
        return ""
    if before == now:
        return f"<h2>{title}</h2><p>They are equal.</p>"
    cut = max(len(before), len(now)) > _MOST_LINES
    rows = "".join(_lines(before[:_MOST_LINES], now[:_MOST_LINES]))
    notice = f'<p class="notice">Only the first {_MOST_LINES:,} lines are compared.</p>' if cut else ""
    return (
        f'<h2>{title}</h2>{notice}<div class="scroll" role="region" tabindex="0" aria-label="{title}">'
        '<table class="sides"><thead class="hidden"><tr><th scope="col">first run</th><th scope="col">second run</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _lines(before: list[str], now: list[str]) -> Iterator[str]:
    """The lines of both, beside each other; of long equal parts only the ends."""
    for what, start, end, other_start, other_end in difflib.SequenceMatcher(None, before, now, False).get_opcodes():
        if what == "equal":
            length = end - start
            at_begin, at_end = _AROUND * (start > 0), _AROUND * (end < len(before) or other_end < len(now))
            if length > at_begin + at_end + 1:
                yield from map(_equal, before[start : start + at_begin])
                yield f'<tr class="fold"><td colspan="2">{length - at_begin - at_end:,} equal lines</td></tr>'
                yield from map(_equal, before[end - at_end : end])
            else:
                yield from map(_equal, before[start:end])
            continue
        one, other = before[start:end], now[other_start:other_end]
        for at in range(max(len(one), len(other))):
            yield f"<tr>{_side(one, at, 'del', '-')}{_side(other, at, 'ins', '+')}</tr>"


def _equal(line: str) -> str:
    cell = f'<td dir="auto">{text_html(line)}</td>'
    return f"<tr>{cell}{cell}</tr>"


def _side(lines: list[str], at: int, tag: str, sign: str) -> str:
    if at >= len(lines):
        return '<td class="none"></td>'
    return f'<td class="{tag}" dir="auto"><span class="sign">{sign}</span><{tag}>{text_html(lines[at])}</{tag}></td>'
