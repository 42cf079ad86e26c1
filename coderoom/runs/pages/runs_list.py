"""The page with the list of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

from coderoom._util.text import visible
from coderoom.runs.journal import RunEntry, without_files
from coderoom.runs.pages.frame import page_of, polled, style_of


def runs_list_page(entries: Sequence[RunEntry], *, are_all: bool) -> str:
    """The page with these runs; it says that there are older ones if they are not all."""
    rows = ""
    for entry in entries:
        began = f"{datetime.fromtimestamp(entry.started).astimezone():%Y-%m-%d %H:%M:%S}"
        task = " ".join(visible(without_files(entry.task)).split())[:200] or entry.name
        rows += (
            f'<tr><td>{began}</td><td class="{style_of(entry)}">{escape(entry.state)}</td>'
            f"<td>{escape(visible(entry.name))}</td>"
            f'<td><a href="{escape(entry.id)}">{escape(task)}</a></td></tr>'
        )
    head = "<tr><th>began</th><th>outcome</th><th>team</th><th>task</th></tr>"
    more = "<p>and older ones, which <code>coderoom runs</code> lists</p>" if not are_all else ""
    listed = f"<table>{head}{rows}</table>{more}" if entries else "<p>There are no runs.</p>"
    return page_of("Runs", f"<h1>Runs</h1>{polled('runs', listed)}", live=True)
