"""Several tasks for one team, one after the other, which goes on with its conversation, variables and files."""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from rich.console import Console

from coderoom.approval.human import input_descriptor, read_line
from coderoom.executors import adopt_orphans, end_descendants
from coderoom.runs.durable import Run
from coderoom.runs.record import RunRecord
from coderoom.runs.team_run import close_team
from coderoom.runs.view import RunView

_PROMPT: Final = "> "
_HOW: Final = "Write a task, and further ones after its end. Ctrl-C ends a task, an empty line or Ctrl-D the chat."


async def chat(run: Run, console: Console, *, owns_process: bool = False) -> list[RunRecord]:
    """Read tasks from standard input, a line each, and run the team on them until there is none.

    Args:
        run: The team; its task comes first if it is not empty.
        console: Where to show the runs.
        owns_process: Whether the process does nothing else, so that no child process may outlive the chat.

    Returns:
        The records of the tasks.

    Raises:
        SandboxUnavailable: A sandbox broke, or no wall works.
    """
    records: list[RunRecord] = []
    prepared = run.prepared
    view = RunView(console)
    if owns_process:
        adopt_orphans()
    try:
        task = prepared.record.task or prepared.request.with_files(await _ask(console, _HOW))
        while task:
            record = run.record_of(task)
            records.append(record)
            try:
                await run.go_on(record, view.show, begin=partial(view.begin, record), close=False)
            finally:
                view.stop()
            view.end(record)
            task = await _ask(console)
    finally:
        await close_team(prepared.team)
        if owns_process:
            end_descendants()
    return records


async def _ask(console: Console, how: str = "") -> str:
    descriptor = input_descriptor()
    if descriptor is None:
        return ""
    if sys.stdin.isatty():
        if how:
            console.print(how, style="dim")
        console.print(f"\n{_PROMPT}", end="", style="bold")
    return (await read_line(descriptor) or "").strip()
