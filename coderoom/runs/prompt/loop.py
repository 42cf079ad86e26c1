"""Reads tasks for a team from standard input, one after the other. Used by `coderoom chat`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from rich.console import Console

from coderoom.approval.human import input_descriptor, read_line
from coderoom.errors import CodeRoomError
from coderoom.executors import adopt_orphans, end_descendants
from coderoom.runs.durable import Run
from coderoom.runs.record import RunRecord
from coderoom.runs.team_run import executors_of, start_sandboxes
from coderoom.runs.view import RunView

_PROMPT: Final = "> "
_HOW: Final = "Write one task after the other. Ctrl-C ends a task; an empty line, exit or Ctrl-D the chat."
_ENDS: Final = ("", "exit", "quit", "/exit", "/quit")
_ASKS_HOW: Final = ("help", "/help", "?")


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
        MissingDependencyError: A package to preload is not installed.
    """
    records: list[RunRecord] = []
    prepared = run.prepared
    view = RunView(console)
    if owns_process:
        adopt_orphans()
    try:
        if not prepared.record.task:  # What is missing is known before the first one.
            try:
                await start_sandboxes(executors_of(prepared.team))
            except CodeRoomError as error:
                prepared.record.error = str(error)
                run.log.end(prepared.record)
                raise
        task = prepared.record.task or prepared.request.with_files(await _ask(console, _HOW))
        while task:
            record = run.record_of(task)
            records.append(record)
            try:
                await run.go_on(record, view.show, begin=partial(view.begin, record), close=False)
            finally:
                view.stop()
            view.end(record)
            if record.cancelled and not sys.stdin.isatty():
                break  # Ctrl-C ends a list of tasks; a person is asked for another one.
            task = await _ask(console)
    finally:
        if not records and not prepared.record.error:
            run.log.discard()
        await run.close()
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
    task = (await read_line(descriptor) or "").strip()
    if task.lower() in _ASKS_HOW:
        return await _ask(console, _HOW)
    return "" if task.lower() in _ENDS else task
