"""Lists of runs: filtered, sorted, with totals, and searched by words. The base of the journal.

What a list needs is in a narrow table, which is written with the run. The words of a run are indexed later, by who
searches: `catch_up`. So a run does not wait for that.
"""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from coderoom._util.database import Database
from coderoom._util.text import encodable
from coderoom.errors import RequestError

COLUMNS: Final = {
    "began": "started", "outcome": "outcome", "verdict": "verdict", "team": "name", "model": "model", "task": "task",
    "attempts": "attempts", "tokens": "tokens", "cost": "cost", "time": "seconds",
}  # fmt: skip
"""What a list can be sorted by, as columns of the table."""
NOT_OK: Final = "not ok"
_LONGEST_TASK: Final = 300
_MOST_NAMES: Final = 200
_MOST_WORDS: Final = 200_000
"""Characters of a run that are searched."""
_PATIENCE_SECONDS: Final = 0.05
"""A search waits for so long for the index."""
_MOST_AT_ONCE: Final = 25
"""Runs that are indexed in one transaction, for which others that write wait, unless it has taken that time."""
_ALONE: Final = "[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
"""The characters of scripts without spaces between words."""
_TERM: Final = re.compile(r'"([^"]*)"|([^\s"]+)')
"""A phrase, or a word."""
_SHORTEST_BEGINNING: Final = 3
_AROUND: Final = 60
MATCHING: Final = "SELECT rowid FROM searched WHERE searched MATCH"
_STATE: Final = (
    "IFNULL(outcome, iif(run IN (SELECT value FROM json_each(:running)), 'running', 'killed')) AS state, listing.*"
)


@dataclass(frozen=True)
class RunQuery:
    """Which runs are listed, and in which order.

    Attributes:
        text: Words that are in their tasks, answers or code, all of them; the last one may be the beginning of one; a
            phrase is in quotes.
        run: Only the one with this id.
        team: The team or file.
        model: The model.
        state: The outcome, or `running`, or `killed`, or `not ok`, which is all but `ok` and `running`.
        verdict: `passed`, `not passed`, `approved` or `not approved`.
        since: They began at this time or later, in seconds since the epoch.
        before: They began before this time.
        cost_from: They cost so many US dollars or more.
        cost_to: They cost so many US dollars or less.
        sort: A name of `COLUMNS`.
        descending: Whether the largest is the first.
        skip: How many are left out at the beginning.
        most: How many are listed.
    """

    text: str = ""
    run: str | None = None
    team: str | None = None
    model: str | None = None
    state: str | None = None
    verdict: str | None = None
    since: float | None = None
    before: float | None = None
    cost_from: float | None = None
    cost_to: float | None = None
    sort: str = "began"
    descending: bool = True
    skip: int = 0
    most: int = 50


@dataclass(frozen=True)
class RunRow:
    """A run in a list.

    Attributes:
        run: Its id.
        command: The command.
        name: The team, or the file.
        model: The model, or the models of its agents.
        task: The beginning of its task; of several, that of the first one.
        started: When it began, in seconds since the epoch.
        state: The outcome, or `running`, or `killed`.
        verdict: `passed`, `not passed`, `approved` or `not approved`; `None`: nobody decided.
        attempts: How many times code ran; `None` if that is not known.
        tokens: The tokens of its models.
        cost: Their list price in US dollars.
        seconds: How long it took.
        tasks: How many tasks it has.
        found: A place with what was searched: what is before it, itself, and what is behind it.
        last: The beginning of the last one; empty if there is only one.
    """

    run: str
    command: str
    name: str
    model: str | None
    task: str
    started: float
    state: str
    verdict: str | None
    attempts: int | None
    tokens: int | None
    cost: float | None
    seconds: float | None
    tasks: int
    found: tuple[str, ...] = ()
    last: str = ""


@dataclass(frozen=True)
class RunList:
    """A part of the runs that were asked for, with totals of all of them.

    Attributes:
        rows: The runs.
        count: How many there are.
        attempts: How many times code ran in them.
        tokens: Their tokens.
        cost: Their cost in US dollars, as far as it is known.
        seconds: Their time.
        unsearched: How many runs of the journal could not be searched yet.
    """

    rows: list[RunRow]
    count: int
    attempts: int
    tokens: int
    cost: float
    seconds: float
    unsearched: int


class Listing(Database):
    """A journal, as lists."""

    def names(self, column: str) -> list[str]:
        """What stands in a column of `COLUMNS`, each once, at most 200 of it."""
        column = COLUMNS[column]
        query = f"""
            WITH RECURSIVE each (item) AS (
                SELECT MIN({column}) FROM listing WHERE {column} > ''
                UNION ALL SELECT (SELECT MIN({column}) FROM listing WHERE {column} > item) FROM each WHERE item NOT NULL
            )
            SELECT item FROM each WHERE item NOT NULL LIMIT {_MOST_NAMES}
        """
        with self._using() as database:
            return [name for (name,) in database.execute(query)]

    def catch_up(self, seconds: float = math.inf) -> int:
        """Index the words of the runs that are new, for so long at most; return how many are left."""
        end = time.monotonic() + seconds
        pending = "SELECT number, run FROM listing WHERE NOT is_searched ORDER BY number DESC"
        while os.access(self.path.parent, os.W_OK) and time.monotonic() < end:
            with self._using() as database:
                if database.execute(f"{pending} LIMIT 1").fetchone() is None:
                    return 0
            with self._using(writes=True, synced=False) as database:
                begun = time.monotonic()
                for number, run in database.execute(f"{pending} LIMIT {_MOST_AT_ONCE}").fetchall():
                    text = encodable("\n".join(filter(None, _words_of(database, run))))[:_MOST_WORDS]
                    database.execute("REPLACE INTO searched (rowid, text) VALUES (?, ?)", (number, _apart(text)))
                    database.execute("UPDATE listing SET is_searched = 1 WHERE number = ?", (number,))
                    if time.monotonic() - begun > _PATIENCE_SECONDS:
                        break
        with self._using() as database:
            (left,) = database.execute("SELECT COUNT(*) FROM listing WHERE NOT is_searched").fetchone()
        return int(left)

    def _list(self, wanted: RunQuery, is_alive: Callable[[str], bool]) -> RunList:
        """The runs that are asked for; a run without an outcome may be alive."""
        unsearched = self.catch_up(_PATIENCE_SECONDS) if wanted.text.strip() else 0
        match = match_of(wanted.text)
        with self._using() as database:
            database.execute("PRAGMA temp_store = MEMORY")
            database.execute("BEGIN")  # All is read in one state.
            try:
                ids = database.execute("SELECT run FROM listing WHERE outcome IS NULL").fetchall()
                values = {**vars(wanted), "running": json.dumps([run for (run,) in ids if is_alive(run)])}
                if match:  # The index is asked once, and not for rows and totals.
                    database.execute("CREATE TEMP TABLE hits (number INTEGER PRIMARY KEY)")
                    database.execute(f"INSERT INTO hits {MATCHING} ?", (match,))
                found = f"FROM (SELECT {_STATE} FROM listing) WHERE {_conditions(wanted)}"
                way = "DESC" if wanted.descending else "ASC"
                order = f"{COLUMNS[wanted.sort]} {way} NULLS LAST, number {way}"  # As in an index.
                numbers = f"SELECT number {found} ORDER BY {order} LIMIT :most OFFSET :skip"
                rows = [_row(database, number, values) for (number,) in database.execute(numbers, values).fetchall()]
                totals = "COUNT(*), SUM(attempts), SUM(tokens), SUM(cost), SUM(seconds)"
                sums = database.execute(f"SELECT {totals} {found}", values).fetchone()
            finally:
                if database.in_transaction:
                    database.execute("ROLLBACK")
        count, attempts, tokens, cost, seconds = (each or 0 for each in sums)
        return RunList(rows, count, attempts, tokens, cost, seconds, unsearched)


def _conditions(wanted: RunQuery) -> str:
    conditions = {
        "number IN hits": wanted.text.strip() or None,
        "run = :run": wanted.run,
        "name = :team": wanted.team,
        "model = :model": wanted.model,
        "state NOT IN ('ok', 'running')" if wanted.state == NOT_OK else "state = :state": wanted.state,
        "verdict = :verdict": wanted.verdict,
        "started >= :since": wanted.since,
        "started < :before": wanted.before,
        "cost >= :cost_from": wanted.cost_from,
        "cost <= :cost_to": wanted.cost_to,
    }
    return " AND ".join(condition for condition, value in conditions.items() if value is not None) or "TRUE"


def _row(database: sqlite3.Connection, number: int, values: dict[str, Any]) -> RunRow:
    task = f"(SELECT substr(task, 1, {_LONGEST_TASK}) FROM runs WHERE id = run)"
    columns = f"run, command, name, model, {task}, started, state, verdict, attempts, tokens, cost, seconds"
    query = f"SELECT {columns}, IFNULL(tasks, 1) FROM (SELECT {_STATE} FROM listing) WHERE number = :number"
    row = RunRow(*database.execute(query, {**values, "number": number}).fetchone())
    if row.state in ("running", "killed"):  # What it has used is only in its steps.
        used = "json_extract(result, '$.usage.prompt_tokens') + json_extract(result, '$.usage.completion_tokens')"
        tokens_of = f"iif(kind = 'model' AND json_valid(result), {used}, 0)"
        sums = f"SUM(kind = 'task'), SUM(kind = 'code'), SUM({tokens_of}), MAX(at)"
        found = database.execute(f"SELECT {sums} FROM steps WHERE run = ?", (row.run,))
        tasks, attempts, tokens, last = found.fetchone()
        end = time.time() if row.state == "running" else last or row.started
        row = replace(row, attempts=attempts, tokens=tokens, seconds=end - row.started, tasks=tasks or 1)
    if row.tasks > 1:
        task = f"substr(json_extract(result, '$.task'), 1, {_LONGEST_TASK})"
        query = f"SELECT {task} FROM steps WHERE run = ? AND kind = 'task' ORDER BY number DESC LIMIT 1"
        row = replace(row, last=database.execute(query, (row.run,)).fetchone()[0])
    if values["text"].strip():
        (text,) = database.execute("SELECT text FROM searched WHERE rowid = ?", (number,)).fetchone()
        row = replace(row, found=_place(_together(text), values["text"]))
    return row


def _place(text: str, search: str) -> tuple[str, ...]:
    """The place in a text at which something stands that was searched: before it, itself, and behind it."""
    words = [re.escape(phrase or word) for phrase, word in _TERM.findall(search) if phrase or word]
    found = re.search("|".join(words), text, re.IGNORECASE)
    if found is None:  # It is written differently there.
        return ()
    before, behind = text[max(0, found.start() - _AROUND) : found.start()], text[found.end() : found.end() + _AROUND]
    parts = "…" * (found.start() > _AROUND) + before, found[0], behind + "…" * (found.end() + _AROUND < len(text))
    return tuple(re.sub(r"\s+", " ", part) for part in parts)


def write_listing(database: sqlite3.Connection, run: str) -> None:
    """Write what lists show of a run, which is new or has changed."""
    database.execute("REPLACE INTO listing SELECT * FROM listed WHERE id = ?", (run,))


def remove_words(database: sqlite3.Connection, run: str) -> None:
    """Remove the words of a run, which is removed next."""
    database.execute("DELETE FROM searched WHERE rowid = (SELECT number FROM listing WHERE run = ?)", (run,))


def _words_of(database: sqlite3.Connection, run: str) -> Iterator[str]:
    """The tasks, the answers and the code of a run."""
    task, facts = database.execute("SELECT task, facts FROM runs WHERE id = ?", (run,)).fetchone()
    yield from (task, str(json.loads(facts).get("answer") or ""))
    kinds = "kind IN ('task', 'message', 'code', 'event')"
    query = f"SELECT kind, request, result FROM steps WHERE run = ? AND {kinds} ORDER BY number"
    for kind, request, result in database.execute(query, (run,)):
        data = json.loads(result)
        if kind == "code" and "code" not in data:
            yield from (block[1] for block in (json.loads(request) or {}).get("blocks") or ())
        elif kind != "message":
            yield str(data.get("code") or data.get("task") or "")
        elif data.get("type") == "TextMessage":
            yield str(data.get("content"))


def _apart(text: str) -> str:
    """A text in which each character of a script without spaces between words is a word."""
    return re.sub(f"(?={_ALONE})|(?<={_ALONE})", " ", text)


def _together(text: str) -> str:
    """What `_apart` has made of a text, as it is read."""
    return re.sub(f" (?={_ALONE})|(?<={_ALONE}) ", "", text)


def match_of(text: str) -> str:
    """A search as SQLite's full-text index reads it; what is in it has no other meaning than its words.

    Raises:
        RequestError: There is no word in it.
    """
    found = [(phrase, _apart(phrase or word).replace("\0", " ")) for phrase, word in _TERM.findall(text)]
    terms = [(phrase, words) for phrase, words in found if re.search(r"[^\W_]", words)]
    if text.strip() and not terms:
        raise RequestError(f"{text.strip()!r} has no letter and no digit, by which runs are searched.")
    parts = [f'"{words}"' for _, words in terms]
    if terms and not terms[-1][0] and len(terms[-1][1]) >= _SHORTEST_BEGINNING:
        parts[-1] += "*"
    return " ".join(parts)
