"""Chats of the past, of which one goes on: `coderoom chat --continue` and `--resume`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from coderoom._util.text import visible
from coderoom.errors import RequestError
from coderoom.runs.journal import Journal, RunEntry, without_files

_MOST_LISTED: Final = 20
_LONGEST_TASK: Final = 60


def last_chat(journal: Journal, team: str, folder: Path) -> RunEntry:
    """The last chat with a team that was begun in a folder; else the last one of the journal.

    Args:
        journal: The journal.
        team: The team; empty: any.
        folder: The folder.

    Raises:
        RequestError: There is none.
    """
    found = _chats(journal, team)
    return next((entry for entry in found if entry.request.get("folder") == str(folder)), found[0])


def chosen_chat(journal: Journal, named: str, *, asks: bool) -> RunEntry:
    """The chat that is named, or that the person at the terminal chooses from a list.

    Args:
        journal: The journal.
        named: The id of a chat or its beginning, or a team whose chats are listed; empty: all are.
        asks: Whether there is a person at a terminal.

    Raises:
        RequestError: There is none, none was chosen, or there is nobody to ask; then the message has the list.
    """
    by_id = [entry for entry in _chats(journal, "") if named and entry.id.startswith(named)]
    if len(by_id) == 1:
        return by_id[0]
    found = by_id or _chats(journal, named)
    listed = "\n".join(_lines(journal, found[:_MOST_LISTED]))
    if not asks:
        raise RequestError(f"Name one of these chats, as in `coderoom chat --resume {found[0].id}`:\n{listed}")
    sys.stdout.write(f"{listed}\n")
    try:
        answer = input("Which one? [1] ").strip() or "1"
    except EOFError:
        answer = ""
    if not answer.isdecimal() or not 1 <= int(answer) <= min(len(found), _MOST_LISTED):
        raise RequestError(f"{answer!r} is none of the numbers: no chat goes on.")
    return found[int(answer) - 1]


def _chats(journal: Journal, team: str) -> list[RunEntry]:
    found = [entry for entry in journal.runs(name=team or None, command="chat") if entry.task]
    if not found:
        named = f" with the team {team!r}, and none whose id begins so," if team else ""
        raise RequestError(f"The journal {str(journal.path)!r} has no chat{named} to go on with.")
    return found


def _lines(journal: Journal, entries: Sequence[RunEntry]) -> list[str]:
    """The first task of each chat; below it its last one, by which chats that began alike differ."""
    rows = []
    for number, entry in enumerate(entries, start=1):
        rows.append(f"{number:>3}  {_time(entry.started)}  {entry.id}  {visible(entry.name)}  {_words(entry.task)}")
        tasks = journal.tasks(entry.id)
        if len(tasks) > 1:
            at, last = tasks[-1]
            rows.append(f"     {_time(at)}  {len(tasks)} tasks, the last one: {_words(last)}")
    return rows


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M}"


def _words(task: str) -> str:
    return " ".join(visible(without_files(task)).split())[:_LONGEST_TASK]
