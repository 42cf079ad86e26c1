"""The page with the list of all runs: search, filters, order and totals. Its whole state is in its address."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, time, timedelta
from html import escape
from typing import Final
from urllib.parse import quote, urlencode

from coderoom._util.text import counted, in_dollars
from coderoom.errors import RequestError
from coderoom.runs.journal import Journal, without_files
from coderoom.runs.listing import COLUMNS, NOT_OK, RunList, RunQuery, RunRow
from coderoom.runs.pages.frame import badge, duration, page_of, polled, style_of, text_html

_PAGE: Final = 50
_LONGEST_TASK: Final = 200
_NUMBERS: Final = frozenset({"attempts", "tokens", "cost", "time"})
_FALLING: Final = _NUMBERS | {"began"}
"""What is sorted with the largest first, if it is chosen."""
_STYLES: Final = {"passed": "good", "approved": "good", "not passed": "bad", "not approved": "bad"}
_LINKS: Final = 'hx-boost="true" hx-target="#runs" hx-sync="#runs:queue last"'
_MORE: Final = ("from", "to", "cost_from", "cost_to")
"""Filters that are folded, unless they are used."""
_FILTERS: Final = ("q", "team", "model", "outcome", "verdict", "began", *_MORE)
_DAYS: Final = {"today": (0, 1), "yesterday": (-1, 0), "last 7 days": (-6, 1), "last 30 days": (-29, 1)}
"""For each period, the days from today at whose beginnings it begins and ends."""


def runs_list_page(journal: Journal, asked: Mapping[str, str], *, is_whole: bool = True) -> str:
    """The page of the runs that an address asks for, as HTML.

    Args:
        journal: The journal.
        asked: What the address has behind `?`.
        is_whole: Whether this is all of the page, and not only its list.
    """
    asked = {name: value for name, value in asked.items() if value}
    try:
        wanted = _query(asked)
        found = journal.listed(wanted)
        listed = _listed(asked, wanted, found)
    except RequestError as error:
        listed = f'<p class="notice bad" role="alert">{text_html(error)} <a href="./">Show all runs</a></p>'
    if not is_whole:
        return polled("runs", listed)
    body = '<h1>Runs <a class="beside-title" href="batches/">Batches</a></h1>'
    body += f"{_form(journal, asked)}{polled('runs', listed)}"
    return page_of("Runs", body, styles=["runs_list.css"], scripts=["runs_list.js"], live=True)


def _query(asked: Mapping[str, str]) -> RunQuery:
    order = asked.get("sort", "-began")
    if order.removeprefix("-") not in COLUMNS:
        raise RequestError(f"The runs cannot be sorted by {order!r}; they can by {', '.join(COLUMNS)}.")
    page = asked.get("page", "1")
    if not (page.isascii() and page.isdigit() and int(page[:9]) >= 1):
        raise RequestError(f"{page!r} is not the number of a page.")
    since, before = _day(asked.get("from")), _day(asked.get("to"), days=1)
    if period := asked.get("began"):
        if period not in _DAYS:
            raise RequestError(f"{period!r} is not a period; there are {', '.join(_DAYS)}.")
        # Days are counted, not seconds, since some have 23 or 25 hours.
        today = datetime.combine(datetime.now().astimezone().date(), time())
        begin, end = ((today + timedelta(days)).timestamp() for days in _DAYS[period])
        since, before = max(begin, since or begin), min(end, before or end)
    return RunQuery(
        text=asked.get("q", ""),
        team=asked.get("team"),
        model=asked.get("model"),
        state=asked.get("outcome"),
        verdict=asked.get("verdict"),
        since=since,
        before=before,
        cost_from=_cost(asked.get("cost_from")),
        cost_to=_cost(asked.get("cost_to")),
        sort=order.removeprefix("-"),
        descending=order.startswith("-"),
        skip=(int(page[:9]) - 1) * _PAGE,
        most=_PAGE,
    )


def _day(text: str | None, days: int = 0) -> float | None:
    try:
        return None if text is None else (datetime.fromisoformat(text) + timedelta(days)).timestamp()
    except (ValueError, OverflowError):
        raise RequestError(f"{text!r} is not a date such as 2026-11-20.") from None


def _cost(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        raise RequestError(f"{text!r} is not a number of US dollars.") from None


def _address(asked: Mapping[str, str], **changed: str) -> str:
    given = {name: value for name, value in {**asked, **changed}.items() if value}
    return escape(f"./?{urlencode(given)}" if given else "./")


def _form(journal: Journal, asked: Mapping[str, str]) -> str:
    def value(name: str) -> str:
        return escape(asked.get(name, ""))

    def choice(name: str, first: Iterable[str] = (), more: Iterable[str] = ()) -> str:
        known = journal.names(name) if name in COLUMNS and name != "began" and journal.path.exists() else []
        names = dict.fromkeys([*first, *sorted({*filter(None, [asked.get(name)]), *more, *known})])
        options = "".join(
            f'<option value="{escape(each)}"{" selected" * (each == asked.get(name))}>{text_html(each)}</option>'
            for each in names
        )
        return f'<label>{name}<select name="{name}"><option value="">any</option>{options}</select></label>'

    return (
        '<form id="filter" class="toolbar" role="search" action="./" hx-get="./" hx-target="#runs" hx-select="#runs" '
        'hx-swap="morph" hx-push-url="true" hx-sync="#runs:queue last" '
        'hx-trigger="submit, change, input delay:250ms from:find #q">'
        '<label class="search">search tasks, answers and code'
        f'<input id="q" type="search" name="q" value="{value("q")}" dir="auto" autocomplete="off"></label>'
        f"{choice('team')}{choice('model')}{choice('outcome', [NOT_OK], ['running', 'killed'])}{choice('verdict')}"
        f"{choice('began', _DAYS)}"
        f'<details class="more"{" open" * any(name in asked for name in _MORE)}><summary>more</summary>'
        f'<div class="toolbar"><label>from<input type="date" name="from" value="{value("from")}"></label>'
        f'<label>to<input type="date" name="to" value="{value("to")}"></label>'
        '<label>cost from $<input type="number" name="cost_from" min="0" step="any" '
        f'value="{value("cost_from")}"></label>'
        f'<label>cost to $<input type="number" name="cost_to" min="0" step="any" value="{value("cost_to")}"></label>'
        '</div></details><button>Search</button> <a class="button" href="./">Clear</a></form>'
    )


def _listed(asked: Mapping[str, str], wanted: RunQuery, found: RunList) -> str:
    # The order belongs to the form, but changes with the list.
    order = f'<input type="hidden" name="sort" form="filter" value="{escape(asked.get("sort", ""))}">'
    notice = ""
    if found.unsearched:
        notice = f'<p class="notice" role="status">{counted(found.unsearched, "run")} cannot be searched yet.</p>'
    if not found.count:
        is_filtered = any(name in asked for name in _FILTERS)
        return order + notice + f'<div class="empty">{_NO_SUCH if is_filtered else _NONE}</div>'
    if not found.rows:
        return (
            order + f'<div class="empty">There are no more runs. <a href="{_address(asked, page="")}">Page 1</a></div>'
        )
    rows = "".join(map(_row, found.rows))
    head = "".join(_head(asked, wanted, name) for name in COLUMNS)
    return (
        f"{order}{notice}{_totals(found)}"
        '<form action="compare/" id="compare">'
        '<div class="scroll" role="region" tabindex="0" aria-label="Runs"><table class="stacked wide">'
        f'<thead {_LINKS}><tr><th><span class="hidden">compare</span></th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        f'<div class="foot"><button class="main">Compare two runs</button>{_pages(asked, wanted, found)}</div></form>'
    )


_NO_SUCH: Final = 'No run is like that. <a href="./">Show all runs</a>'
_NONE: Final = (
    "There are no runs yet. This makes the first one:<br>"
    "<code>coderoom run code-act &quot;What is the 100th prime number?&quot;</code>"
)


def _totals(found: RunList) -> str:
    parts = [counted(found.count, "run"), counted(found.attempts, "attempt"), counted(found.tokens, "token")]
    parts += [in_dollars(found.cost)] * bool(found.cost)
    parts += [duration(found.seconds)] * bool(found.seconds)
    return f'<p class="totals" role="status">{" · ".join(parts)}</p>'


def _head(asked: Mapping[str, str], wanted: RunQuery, name: str) -> str:
    is_sorted = wanted.sort == name
    falls = not wanted.descending if is_sorted else name in _FALLING
    address = _address(asked, sort=f"{'-' * falls}{name}", page="")
    state = f' aria-sort="{"descending" if wanted.descending else "ascending"}"' if is_sorted else ""
    style = ' class="number"' if name in _NUMBERS else ""
    return f'<th scope="col"{style}{state}><a id="by-{name}" href="{address}">{name}</a></th>'


def _row(row: RunRow) -> str:
    began = f"{datetime.fromtimestamp(row.started).astimezone():%Y-%m-%d %H:%M}"
    task, last = (" ".join(without_files(each).split())[:_LONGEST_TASK] for each in (row.task, row.last))
    task, found = task or row.name or row.run, ""
    if last:
        found = f'<p class="found dim">{row.tasks} tasks, the last one: {text_html(last)}</p>'
    if row.found and row.found[1] not in task:
        before, itself, behind = map(text_html, row.found)
        found += f'<p class="found dim">{before}<mark>{itself}</mark>{behind}</p>'
    address, name = f"./{escape(quote(row.run, safe=''))}", f"compare {task}, {began}"
    cells = {
        "began": f'<td class="nowrap" data-label="began">{began}</td>',
        "outcome": f'<td data-label="outcome">{badge(row.state, style_of(row))}</td>',
        "verdict": f'<td data-label="verdict">{badge(row.verdict, _STYLES[row.verdict]) if row.verdict else ""}</td>',
        "team": _name("team", row.name or row.command),
        "model": _name("model", (row.model or "").replace(",", ", ")),
        "task": f'<td class="task" dir="auto"><a href="{address}">{text_html(task)}</a>{found}</td>',
        "attempts": _number("attempts", "" if row.attempts is None else f"{row.attempts:,}"),
        "tokens": _number("tokens", f"{row.tokens:,}" if row.tokens else ""),
        "cost": _number("cost", "" if row.cost is None else in_dollars(row.cost)),
        "time": _number("time", "" if row.seconds is None else duration(row.seconds)),
    }
    box = f'<input type="checkbox" name="run" value="{escape(row.run)}" aria-label="{text_html(name)}">'
    return f'<tr id="run-{escape(row.run)}"><td class="choose">{box}</td>{"".join(cells.values())}</tr>'


def _name(column: str, name: str) -> str:
    short = name
    if column == "model":  # Its name says more than the address or the folder before it.
        short = re.sub(r"(?<![^ ])https?://[^# ,]*#", "", re.sub(r"(?<=replay:)[^ ,]*/", "", name))
    shown = f'<div class="short" dir="auto" title="{text_html(name)}">{text_html(short)}</div>' if name else ""
    return f'<td data-label="{column}">{shown}</td>'


def _number(name: str, value: str) -> str:
    return f'<td class="number" data-label="{name}">{value}</td>'


def _pages(asked: Mapping[str, str], wanted: RunQuery, found: RunList) -> str:
    page, last = wanted.skip // _PAGE + 1, -(-found.count // _PAGE)

    def links() -> Iterator[str]:
        for words, number in (("First", 1), ("Previous", page - 1), ("Next", page + 1), ("Last", last)):
            if 1 <= number <= last and number != page:
                address = _address(asked, page="" if number == 1 else str(number))
                yield f'<a class="button" href="{address}">{words}</a>'

    shown = f"{wanted.skip + 1:,} to {wanted.skip + len(found.rows):,} of {found.count:,}"
    return f'<nav class="pages" aria-label="Pages of the list" {_LINKS}>{shown} {" ".join(links())}</nav>'
