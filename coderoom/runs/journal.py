"""The journal: the durable record of all runs, in the database. Only `listing` knows the tables of runs too.

`request` and `result` of a step are JSON. `owner` names the process that worked on a run last; `Owners` knows if it
still does.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coderoom._util.database import OFF, REQUIRED
from coderoom._util.tasks import is_large
from coderoom._util.text import NOT_LOOKED_AT
from coderoom.errors import RequestError
from coderoom.runs.asked import Asked
from coderoom.runs.chat_places import ChatPlaces
from coderoom.runs.listing import MATCHING, Listing, RunList, RunQuery, match_of, remove_words, write_listing
from coderoom.runs.owners import Owners
from coderoom.runs.shown import run_html
from coderoom.runs.totals import seconds_of, totals_of
from coderoom.steps import CALL_BEGUN, CALLS_TO_UNDO, INVERSE, INVERSE_BEGUN, MODEL, WORDS

if TYPE_CHECKING:
    import pandas

MESSAGE: Final = "message"
TASK: Final = "task"
EVENT: Final = "event"
VERDICT: Final = "verdict"

_TAKEN: Final = {
    "runs": "SELECT * FROM runs WHERE id = ?",
    "steps": "SELECT * FROM steps WHERE run = ?",
    "contents": "SELECT run, hash, data FROM contents WHERE run = ?",
}
_COLUMNS: Final = "id, command, name, task, model, started, ended, outcome, owner, request, facts"
_SYNCED: Final = frozenset({"call", CALL_BEGUN, CALLS_TO_UNDO, INVERSE, INVERSE_BEGUN, WORDS, "approval", "input"})
"""Steps that are on disk before the run goes on: they have effects elsewhere, or a person did them.

Replies of models are on disk a moment later, with all that was written before. Others are safe from the end of the
process at once; a loss of power ends the session too, so that code is run again anyway.
"""


@dataclass(frozen=True)
class RunEntry:
    """A run in the journal.

    Attributes:
        id: Its name in the journal.
        command: The command: `run`, `ask`, `chat`, `solve`, `exec` and others.
        name: The team, or the file.
        task: The task, or the instruction.
        model: The model that replaced those of the team, or `None`.
        started: When it began, in seconds since the epoch.
        ended: When it ended; `None` if it was killed, or goes on.
        outcome: How it ended; `None` as long as it has not.
        owner: The process that works on it, as a host and a number; `None` if none does.
        request: The arguments of the command.
        facts: The record, without its messages.
    """

    id: str
    command: str
    name: str
    task: str
    model: str | None
    started: float
    ended: float | None
    outcome: str | None
    owner: str | None
    request: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """The outcome, or `running`, or `killed` if its process ended without one."""
        if self.outcome is not None:
            return self.outcome
        return "killed" if self.owner is None else "running"

    def _repr_html_(self) -> str:
        return run_html(self.task, self.state, self.name, {**self.facts, "run": self.id}, self.started)


@dataclass(frozen=True)
class Step:
    """A step of a run.

    Attributes:
        number: Its place, counted from 1.
        kind: `task`, `model`, `code`, `call`, `approval`, `input`, `words` or `message`.
        actor: The agent; empty if that is not known.
        key: What identifies its request.
        at: When it was done, in seconds since the epoch.
        seconds: How long it took.
        request: The request.
        result: The result.
    """

    number: int
    kind: str
    actor: str
    key: str
    at: float
    seconds: float
    request: Any
    result: Any


class Journal(Listing, Asked, ChatPlaces):
    """The journal in a file, which is made when something is written.

    Any number of processes and threads can use it at once. Each method is one transaction, but each large
    content has its own: a process that is killed leaves the journal as it was before or after it.

    Args:
        path: The file; `None`: `CODEROOM_JOURNAL`, or `coderoom/journal.sqlite3` in `$XDG_STATE_HOME` or
            `~/.local/state`.
        required: Whether a run ends if it cannot be written. If not, the run goes on without it, and says so.

    Raises:
        JournalError: Any method raises it if the file cannot be used. What is in the file stays as it is.
    """

    def __init__(self, path: str | Path | None = None, *, required: bool = False) -> None:
        super().__init__(path)
        self.required = required
        self._owners = Owners(self.path)

    # --- Writing ---

    def begin(
        self,
        command: str,
        name: str,
        task: str,
        model: str | None,
        request: Mapping[str, Any],
        run: str | None = None,
    ) -> str:
        """Add a run, which this process works on, and return its id. The arguments are those of a `RunEntry`."""
        run = run or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
        columns = "id, command, name, task, model, request, started, owner"
        shown = None if model is None else self.hide(model)
        texts = (self.hide(name), self.hide(task), shown, self.dump(request))
        with self._using(writes=True) as database:
            self._owners.take(run)
            self._keep_reserve()
            database.execute(
                f"INSERT INTO runs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (run, command, *texts, time.time(), _mark()),
            )
            write_listing(database, run)
        return run

    def claim(self, run: str, request: Mapping[str, Any] | None = None, task: str = "") -> None:
        """Have this process work on a run that has ended.

        Args:
            run: The run.
            request: The arguments of the command from now on; `None`: those before.
            task: The task, if the run has none yet.

        Raises:
            RequestError: Another process works on it.
        """
        with self._using(writes=True) as database:
            if not self._owners.take(run):
                (owner,) = database.execute("SELECT owner FROM runs WHERE id = ?", (run,)).fetchone()
                host, _, process = (owner or "").rpartition(" ")
                who = f"process {process} on {host}" if owner else "another process"
                raise RequestError(f"The run {run} goes on: {who} works on it.")
            database.execute("UPDATE runs SET owner = ?, ended = NULL, outcome = NULL WHERE id = ?", (_mark(), run))
            for table in ("stops", "questions", "doings"):  # Of the process before.
                database.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
            database.execute("UPDATE runs SET task = ? WHERE id = ? AND task = ''", (self.hide(task), run))
            if request is not None:
                database.execute("UPDATE runs SET request = ? WHERE id = ?", (self.dump(request), run))
            write_listing(database, run)

    def add(self, run: str, step: Step, contents: Mapping[str, bytes] | None = None) -> None:
        """Add a step of a run, and contents that it refers to by their hash."""
        texts = self.dump(step.request), self.dump(step.result, restorable=True)
        # A resumed run does a step again whose result is not whole.
        key = "" if NOT_LOOKED_AT in texts[1] else step.key
        row = (run, step.number, step.kind, step.actor, key, step.at, step.seconds, *texts)
        if is_large(contents := contents or {}):  # Others must not wait for all of them.
            for name, data in contents.items():
                with self._using(writes=True, synced=False) as database:
                    _add_content(database, run, name, data)
            contents = {}
        with self._using(writes=True, synced=step.kind in _SYNCED) as database:
            for name, data in contents.items():
                _add_content(database, run, name, data)
            database.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            if step.kind == VERDICT:
                write_listing(database, run)
        if step.kind == MODEL:
            self._sync_soon()

    def end(self, run: str, outcome: str, facts: Mapping[str, Any]) -> None:
        """Say how a run ended, and that no process works on it any more; of several tasks, it keeps the totals too."""
        with self._using() as database:
            whole, seconds = totals_of(database, run), seconds_of(database, run)
        if whole:
            facts = {**facts, "whole": whole}
        elif seconds > (facts.get("seconds") or seconds):  # It was resumed: its record knows its last process only.
            facts = {**facts, "seconds": seconds}
        with self._using(writes=True) as database:
            database.execute(
                "UPDATE runs SET owner = NULL, ended = ?, outcome = ?, facts = ? WHERE id = ?",
                (time.time(), outcome, self.dump(facts), run),
            )
            database.execute("DELETE FROM doings WHERE run = ?", (run,))
            write_listing(database, run)
        self._owners.leave(run)

    def hold(self, run: str) -> None:
        """Keep other processes from working on a run that has ended, since this one may go on with it."""
        self._owners.take(run)

    def let_go(self, run: str) -> None:
        """Let other processes work on a run that this one has held."""
        self._owners.leave(run)

    def remove(self, runs: Sequence[str]) -> None:
        """Remove runs with all that belongs to them.

        Raises:
            RequestError: A process works on one of them.
        """
        for run in runs:
            if self.find(run).state == "running":
                raise RequestError(f"The run {run} goes on; end it first.")
        with self._using(writes=True) as database:
            _delete(database, runs)

    def stop(self, run: str) -> None:
        """Ask the process that works on a run to end it, which it does within a second.

        Raises:
            RequestError: No process works on it.
        """
        if self.find(run).state != "running":
            raise RequestError(f"The run {run} has ended.")
        self.ask_to_stop(run)

    def put(self, rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> None:
        """Add a run that another journal gave with `take`, in place of one with the same id."""
        with self._using(writes=True) as database:
            _delete(database, [row[0] for row in rows["runs"]])
            for table in filter(rows.get, ("runs", "steps")):
                places = ", ".join("?" * len(rows[table][0]))
                database.executemany(f"INSERT INTO {table} VALUES ({places})", rows[table])
            for row in rows["contents"]:
                _add_content(database, *row)
            for run, *_ in rows["runs"]:
                write_listing(database, run)

    # --- Reading ---

    def take(self, run: str) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of a run, by tables."""
        with self._using() as database:
            return {table: database.execute(query, (run,)).fetchall() for table, query in _TAKEN.items()}

    def runs(
        self,
        *,
        name: str | None = None,
        outcome: str | None = None,
        since: float = 0,
        before: float | None = None,
        run: str | None = None,
        text: str = "",
        most: int | None = None,
        command: str | None = None,
    ) -> list[RunEntry]:
        """The runs, the newest first.

        Args:
            name: Only those of this team or file.
            outcome: Only those with this outcome, or `state`.
            since: Only those that began at this time or later, in seconds since the epoch.
            before: Only those that began before this time; `None`: all.
            run: Only the one with this id.
            text: Only those with these words, as in a `RunQuery`; those that `catch_up` has not indexed are not found.
            most: At most so many of them; `None`: all.
            command: Only those of this command.
        """
        given = {"started >= ?": since, "started < ?": before, "name = ?": name, "id = ?": run, "command = ?": command}
        given[f"id IN (SELECT run FROM listing WHERE number IN ({MATCHING} ?))"] = match_of(text) or None
        limits = {condition: value for condition, value in given.items() if value is not None}
        found = self._entries(" AND ".join(limits), tuple(limits.values()))
        return list(islice((run for run in found if outcome in (None, run.outcome, run.state)), most))

    def listed(self, wanted: RunQuery) -> RunList:
        """Some of the runs in an order, with what all of them have used."""
        if not self.path.exists():
            return RunList([], 0, 0, 0, 0, 0, 0)
        return self._list(wanted, self._owners.has)

    def version(self) -> tuple[Any, ...]:
        """Something that differs when a list of the runs may differ."""
        if not self.path.exists():
            return ()
        with self._using() as database:
            ids = [run for (run,) in database.execute("SELECT run FROM listing WHERE outcome IS NULL")]
        alive = list(filter(self._owners.has, ids))
        facts = [path.stat() for path in (self.path, Path(f"{self.path}-wal")) if path.exists()]
        changed = [(each.st_size, each.st_size and each.st_mtime_ns) for each in facts]
        return alive, changed, int(time.time()) if alive else 0  # Those that are alive take time.

    def find(self, run: str) -> RunEntry:
        """A run by its id, the beginning of one, or `last`.

        Raises:
            RequestError: There is none, or there are several.
        """
        found = list(self._entries("id = ?", (run,)))
        if run == "last":
            found = list(islice(self._entries("TRUE", ()), 1))
        elif not found:
            found = list(islice(self._entries("SUBSTR(id, 1, ?) = ?", (len(run), run)), 5))
        if not found and run == "last":
            raise RequestError("There is no run in the journal yet.")
        if len(found) != 1:
            several = f": {', '.join(entry.id for entry in found)}" if found else ""
            what = "several runs begin with" if found else "there is no run"
            raise RequestError(f"In the journal {what} {run!r}{several}. `coderoom runs` lists them.")
        return found[0]

    def _entries(self, where: str, values: tuple[Any, ...]) -> Iterator[RunEntry]:
        if self.path.exists():
            with self._using() as database:
                # In the order in which they were added: a clock may jump.
                rows = database.execute(f"SELECT {_COLUMNS} FROM runs WHERE {where} ORDER BY rowid DESC", values)
                yield from map(self._entry, rows)

    def _entry(self, row: tuple[Any, ...]) -> RunEntry:
        columns = dict(zip(_COLUMNS.split(", "), row, strict=True))
        columns |= {name: json.loads(columns[name]) for name in ("request", "facts")}
        if columns["outcome"] is not None or not self._owners.has(columns["id"]):
            columns["owner"] = None
        return RunEntry(**columns)

    def steps(self, run: str, *, with_values: bool = False, first: int = 1) -> Iterator[Step]:
        """The steps of a run, in order.

        Args:
            run: Its id.
            with_values: Whether they have the values of the variables that results had.
            first: The number of the first of them.
        """
        with self._using() as database:
            columns = "number, kind, actor, key, at, seconds, request, result"
            query = f"SELECT {columns} FROM steps WHERE run = ? AND number >= ? ORDER BY number"
            rows = database.execute(query, (run, first))
            for number, kind, actor, key, at, seconds, request, result in rows:
                data = self.restore(json.loads(result), values=with_values)
                yield Step(number, kind, actor, key, at, seconds, json.loads(request), data)

    def tasks(self, run: str) -> list[tuple[float, str]]:
        """When each task of a run began, in seconds since the epoch, and its words."""
        columns = "at, json_extract(result, '$.task')"
        with self._using() as database:
            query = f"SELECT {columns} FROM steps WHERE run = ? AND kind = ? ORDER BY number"
            return database.execute(query, (run, TASK)).fetchall()

    def runs_frame(self, **filters: Any) -> pandas.DataFrame:
        """The runs as a data frame of pandas, the newest first, with a row for each.

        Args:
            filters: The arguments of `runs`.

        Raises:
            MissingDependencyError: Pandas is not installed.
        """
        from coderoom.runs.frames import runs_frame

        return runs_frame(self.runs(**filters))

    def steps_frame(self, run: str | RunEntry) -> pandas.DataFrame:
        """The steps of a run as a data frame of pandas, in order.

        Args:
            run: The run, its id, the beginning of one, or `last`.

        Raises:
            MissingDependencyError: Pandas is not installed.
            RequestError: There is no such run.
        """
        from coderoom.runs.frames import steps_frame

        return steps_frame(self.steps(self.find(run).id if isinstance(run, str) else run.id))

    def last_step(self, run: str) -> int:
        """The number of a run's last step; 0 if there is none."""
        return self._one("SELECT MAX(number) FROM steps WHERE run = ?", run) or 0

    def count(self, run: str, kind: str) -> int:
        """How many steps of a kind a run has."""
        return int(self._one("SELECT COUNT(*) FROM steps WHERE run = ? AND kind = ?", run, kind))

    def reply(self, key: str) -> Any:
        """The newest reply to a request to a model, in any run; `None` if there is none."""
        with self._using():  # Which says what is broken.
            found = self._one("SELECT result FROM steps WHERE kind = 'model' AND key = ? ORDER BY at DESC LIMIT 1", key)
            return None if found is None else self.restore(json.loads(found), values=False)

    def content(self, run: str, name: str) -> bytes:
        """A content by its hash; empty if it was not kept."""
        return self._one("SELECT data FROM contents WHERE run = ? AND hash = ?", run, name) or b""

    def size(self, run: str) -> int:
        """How many bytes the contents of a run have."""
        return self._one("SELECT SUM(LENGTH(data)) FROM contents WHERE run = ?", run) or 0

    def _one(self, query: str, *values: str) -> Any:
        """The only column of the first row; `None` if there is no row."""
        with self._using() as database:
            row = database.execute(query, values).fetchone()
        return row[0] if row else None


def _add_content(database: sqlite3.Connection, run: str, name: str, data: bytes) -> None:
    database.execute("INSERT OR IGNORE INTO data VALUES (?, ?)", (name, data))
    database.execute("INSERT OR IGNORE INTO kept VALUES (?, ?)", (run, name))


def _delete(database: sqlite3.Connection, runs: Sequence[str]) -> None:
    for run in runs:
        remove_words(database, run)
        database.execute("DELETE FROM runs WHERE id = ?", (run,))
    database.execute("DELETE FROM data WHERE NOT EXISTS (SELECT * FROM kept WHERE kept.hash = data.hash)")


def open_journal(named: str | None = None, *, off: bool = False) -> Journal | None:
    """The journal for the text of an option; `None` if there is none.

    Args:
        named: A file, `off`, or `required` for the default file; `None`: the default file.
        off: Whether there is none, whatever is named.
    """
    if off or named == OFF:
        return None
    path = None if named in (None, "", REQUIRED) else Path(str(named)).expanduser()
    return Journal(path, required=named == REQUIRED)


def _mark() -> str:
    return f"{platform.node() or 'this-machine'} {os.getpid()}"


FILES_IN: Final = "\n\nFiles in the working folder: "
"""Between a task and the names of the files that came with it."""
HOSTS_IN: Final = "\n\nHosts that code can reach: "
"""The same for hosts, after the files."""

RAN_IN: Final = "\n\nThe person has run this code in the session since ("
"""The same for code that a person has run, before the files."""
EARLIER_IN: Final = "\n\nEarlier in this chat, the team "
"""The same for what another team was asked."""
UNDONE_IN: Final = "\n\nThe person has undone a task since. "
"""The same for what was left of a task that was undone."""
TAKEN_BACK_IN: Final = "\n\nThe person has taken back what was changed in: "
"""The same for files that code has changed in an overlay."""
UNCOMMITTED_IN: Final = "\n\nThe person has undone the commit "
"""The same for a commit."""

CONTENTS_IN: Final = "\n\nContents of files:\n\n"
"""Between a question and the files in it."""


def without_files(task: str) -> str:
    """A task as its author wrote it."""
    task = task.partition(CONTENTS_IN)[0] or task
    for words in (HOSTS_IN, FILES_IN):
        task = task.rpartition(words)[0] or task
    for words in (RAN_IN, EARLIER_IN, UNDONE_IN, TAKEN_BACK_IN, UNCOMMITTED_IN):
        task = task.partition(words)[0] or task
    return task


def summary(entry: RunEntry) -> dict[str, Any]:
    """A run without its steps, as plain data."""
    facts = {name: value for name, value in asdict(entry).items() if name not in ("request", "owner")}
    return {**facts, "state": entry.state}
