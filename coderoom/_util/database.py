"""The database: one SQLite file, its schema and its transactions. The journal of runs is in it.

    runs      a row for each run: what was asked, by which command, when, and how it ended
    steps     what happened in a run, in order: requests to models, code, decisions of people, messages
    contents  the messages of requests, and the files that code has made, by the hash of their content

`runs.journal` reads and writes these tables.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coderoom.errors import JournalError

_APPLICATION: Final = 0x436F6452
_SCHEMAS: Final = (
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, command TEXT NOT NULL, name TEXT NOT NULL, task TEXT NOT NULL, model TEXT,
        started REAL NOT NULL, ended REAL, outcome TEXT, owner TEXT,
        request TEXT NOT NULL, facts TEXT NOT NULL DEFAULT '{}'
    );
    CREATE INDEX runs_started ON runs (started);
    CREATE TABLE steps (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, number INTEGER NOT NULL, kind TEXT NOT NULL,
        actor TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, seconds REAL NOT NULL,
        request TEXT NOT NULL, result TEXT NOT NULL, PRIMARY KEY (run, number)
    );
    CREATE TABLE contents (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, hash TEXT NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (run, hash)
    )
    """,
    "CREATE INDEX steps_model ON steps (key) WHERE kind = 'model'",
)
"""Each brings a database of the version before it, at first an empty one, to the next."""
_WAIT_SECONDS: Final = 5.0


class Database:
    """A database, which is made when something is written.

    Any number of processes can use it at once. Threads must not use an object at the same time.

    Args:
        path: The file; `None`: `default_path()`.

    Raises:
        JournalError: `using` raises it if the file cannot be used. What is in the file stays as it is.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = default_path() if path is None else Path(path)
        self._connection: sqlite3.Connection | None = None
        self._synced: bool | None = None

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        connection, self._connection, self._synced = self._connection, None, None
        if connection is not None:
            connection.close()

    @contextmanager
    def using(self, *, writes: bool = False, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """Use the database; if something is written, in one transaction.

        Args:
            writes: Whether something is written. A process that is killed leaves all of it or nothing.
            synced: Whether that is on disk at the end. If not, it is with the next transaction that is.
        """
        try:
            database = self._connection = self._connection or self._open()
            if not writes:
                yield database
                return
            if synced != self._synced:
                database.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
                self._synced = synced
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError, json.JSONDecodeError) as error:
            raise JournalError(f"The journal {self.path} cannot be used: {_in_words(error)}") from error

    def _open(self) -> sqlite3.Connection:
        if not self.path.parent.is_dir():
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.path.exists():
            self.path.touch(mode=0o600)
        database = sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        database.execute("PRAGMA foreign_keys = ON")
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if application == _APPLICATION and version == len(_SCHEMAS):
            return
        if application not in (0, _APPLICATION) or (application == 0 and _has_tables(database)):
            raise JournalError(f"The file {self.path} is a database of another program; name another file.")
        if version > len(_SCHEMAS):
            raise JournalError(
                f"The journal {self.path} was written by a newer version of CodeRoom (schema {version}, known here is "
                f"{len(_SCHEMAS)}). Update CodeRoom, or name another file."
            )
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN IMMEDIATE")
        (version,) = database.execute("PRAGMA user_version").fetchone()  # Another process may have done it.
        for schema in _SCHEMAS[version:]:
            for statement in schema.split(";"):
                database.execute(statement)
        database.execute(f"PRAGMA application_id = {_APPLICATION}")
        database.execute(f"PRAGMA user_version = {len(_SCHEMAS)}")
        database.execute("COMMIT")


def default_path() -> Path:
    """The file of the journal if none is named."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "coderoom" / "journal.sqlite3"


def _has_tables(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master").fetchone() is not None


def _in_words(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError):
        return f"{error.strerror or error}."
    if "malformed" in text or "not a database" in text or isinstance(error, json.JSONDecodeError):
        return f"{text}. The file is damaged: move it away, and a new one is made, or name another file."
    if "locked" in text or "locking" in text:
        return f"{text}. Another process keeps it locked, or its folder has no locks, as some network folders."
    return f"{text}."
