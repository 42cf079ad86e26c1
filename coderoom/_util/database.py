"""The database: one SQLite file, its schema and its transactions.

    runs      a row for each run: what was asked, by which command, when, and how it ended
    steps     what happened in a run, in order: requests to models, code, decisions of people, messages
    contents  the messages of requests, and the files that code has made, by the hash of their content: a view of
    kept      which contents a run has, and
    data      each content once, whatever runs have it
    listing   what a list of runs shows, sorts and filters by: `listed` computes it from the run
    searched  the words of a run, by its number in the listing
    stops     which runs somebody has asked to end
    questions what runs ask a person at this moment, and the answers from elsewhere
    said      what somebody has said to a run from elsewhere, and its process has not seen yet
    chats     where the chats of `coderoom serve` can go on
    solutions the generator's solutions that passed, and replies to its requests on the way to those that are not done

`runs.journal` and what it consists of use all but the last one, the journal of runs, and `generation.cache` that one.
No other module does.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from threading import RLock, Timer
from typing import Final
from weakref import finalize

from coderoom._util.text import Masking
from coderoom.errors import JournalError, RequestError

FILE_NAME: Final = "journal.sqlite3"
VARIABLE: Final = "CODEROOM_JOURNAL"
OFF: Final = "off"
REQUIRED: Final = "required"

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
    """
    CREATE TABLE solutions (
        key TEXT NOT NULL, request TEXT NOT NULL, number INTEGER NOT NULL, used REAL NOT NULL, size INTEGER NOT NULL,
        scope TEXT NOT NULL, vector BLOB NOT NULL, content BLOB NOT NULL, PRIMARY KEY (key, request, number)
    );
    CREATE INDEX solutions_used ON solutions (used, size)
    """,
    """
    CREATE TABLE data (hash TEXT PRIMARY KEY, data BLOB NOT NULL);
    INSERT OR IGNORE INTO data SELECT hash, data FROM contents;
    CREATE TABLE kept (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, hash TEXT NOT NULL, PRIMARY KEY (run, hash)
    );
    CREATE INDEX kept_hash ON kept (hash);
    INSERT INTO kept SELECT run, hash FROM contents;
    DROP TABLE contents;
    CREATE VIEW contents AS SELECT run, hash, data FROM kept JOIN data USING (hash)
    """,
    """
    CREATE TABLE listing (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE REFERENCES runs ON DELETE CASCADE, command TEXT NOT NULL,
        name TEXT NOT NULL, model TEXT, task TEXT NOT NULL, started REAL NOT NULL, outcome TEXT, verdict TEXT,
        attempts INTEGER, tokens INTEGER, cost REAL, seconds REAL, is_searched INTEGER NOT NULL
    );
    CREATE VIEW listed AS
        WITH known AS (SELECT *, CASE WHEN json_valid(facts) THEN facts ELSE '{}' END AS given FROM runs),
        last AS (
            SELECT known.*, (
                SELECT json_extract(result, '$.passed') FROM steps WHERE run = known.id AND kind = 'verdict'
                AND number = (SELECT MAX(number) FROM steps WHERE run = known.id)
            ) AS passed FROM known
        )
        SELECT
            (SELECT number FROM listing WHERE run = id), id, command, name,
            IFNULL(model, (SELECT group_concat(DISTINCT value) FROM json_each(given, '$.models'))),
            substr(task, 1, 80), started, outcome,
            CASE
                WHEN passed IS NOT NULL THEN iif(passed, 'passed', 'not passed')
                WHEN command = 'solve' AND outcome IS NOT NULL
                    THEN iif(json_extract(given, '$.succeeded'), 'passed', 'not passed')
                WHEN json_extract(given, '$.approved') THEN 'approved'
                WHEN NOT json_extract(given, '$.approved') THEN 'not approved'
            END,
            IFNULL(
                json_extract(given, '$.attempts'),
                (SELECT SUM(json_array_length(value, '$.attempts')) FROM json_each(given, '$.functions'))
            ),
            NULLIF(
                json_extract(given, '$.usage.prompt_tokens') + json_extract(given, '$.usage.completion_tokens'), 0
            ),
            json_extract(given, '$.cost_usd'),
            IFNULL(
                IFNULL(json_extract(given, '$.seconds'), json_extract(given, '$.duration')),
                iif(command = 'exec', ended - started, NULL)
            ),
            0
        FROM last;
    INSERT INTO listing SELECT * FROM listed ORDER BY started;
    CREATE INDEX listing_started ON listing (started);
    CREATE INDEX listing_outcome ON listing (outcome);
    CREATE INDEX listing_verdict ON listing (verdict);
    CREATE INDEX listing_name ON listing (name);
    CREATE INDEX listing_model ON listing (model);
    CREATE INDEX listing_task ON listing (task);
    CREATE INDEX listing_attempts ON listing (attempts);
    CREATE INDEX listing_tokens ON listing (tokens);
    CREATE INDEX listing_cost ON listing (cost);
    CREATE INDEX listing_seconds ON listing (seconds);
    CREATE INDEX listing_unsearched ON listing (number) WHERE NOT is_searched;
    CREATE VIRTUAL TABLE searched USING fts5(text, tokenize = 'unicode61 remove_diacritics 2')
    """,
    """
    CREATE TABLE stops (run TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE);
    CREATE TABLE questions (
        id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        asked REAL NOT NULL, text TEXT NOT NULL, answer TEXT
    );
    CREATE INDEX questions_run ON questions (run)
    """,
    """
    ALTER TABLE listing ADD COLUMN tasks INTEGER;
    DROP VIEW listed;
    CREATE VIEW listed AS
        WITH known AS (
            SELECT *, IFNULL(json_extract(given, '$.whole'), given) AS used
            FROM (SELECT *, CASE WHEN json_valid(facts) THEN facts ELSE '{}' END AS given FROM runs)
        ),
        last AS (
            SELECT known.*, (
                SELECT json_extract(result, '$.passed') FROM steps WHERE run = known.id AND kind = 'verdict'
                AND number = (SELECT MAX(number) FROM steps WHERE run = known.id)
            ) AS passed FROM known
        )
        SELECT
            (SELECT number FROM listing WHERE run = id), id, command, name,
            IFNULL(model, (SELECT group_concat(DISTINCT value) FROM json_each(given, '$.models'))),
            substr(task, 1, 80), started, outcome,
            CASE
                WHEN passed IS NOT NULL THEN iif(passed, 'passed', 'not passed')
                WHEN command = 'solve' AND outcome IS NOT NULL
                    THEN iif(json_extract(given, '$.succeeded'), 'passed', 'not passed')
                WHEN json_extract(given, '$.approved') THEN 'approved'
                WHEN NOT json_extract(given, '$.approved') THEN 'not approved'
            END,
            IFNULL(
                json_extract(used, '$.attempts'),
                (SELECT SUM(json_array_length(value, '$.attempts')) FROM json_each(given, '$.functions'))
            ),
            NULLIF(
                IFNULL(
                    json_extract(used, '$.prompt_tokens') + json_extract(used, '$.completion_tokens'),
                    json_extract(used, '$.usage.prompt_tokens') + json_extract(used, '$.usage.completion_tokens')
                ), 0
            ),
            json_extract(used, '$.cost_usd'),
            IFNULL(
                IFNULL(json_extract(used, '$.seconds'), json_extract(used, '$.duration')),
                iif(command = 'exec', ended - started, NULL)
            ),
            0, json_extract(used, '$.tasks')
        FROM last
    """,
    "CREATE TABLE doings (run TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE, told TEXT NOT NULL)",
    "ALTER TABLE questions ADD COLUMN code TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE questions ADD COLUMN about TEXT NOT NULL DEFAULT 'code'",
    """
    CREATE TABLE said (
        id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, text TEXT NOT NULL
    );
    CREATE INDEX said_run ON said (run)
    """,
    """
    CREATE TABLE chats (
        id INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        digest TEXT NOT NULL, asks TEXT NOT NULL, step INTEGER NOT NULL
    );
    CREATE INDEX chats_digest ON chats (digest);
    CREATE INDEX chats_run ON chats (run)
    """,
)
"""Each brings a database of the version before it, at first an empty one, to the next."""
_WAIT_SECONDS: Final = 60.0
"""Many processes that write to one journal wait for each other."""
_SYNC_SECONDS: Final = 0.05
_RESERVED: Final = 512 * 1024
"""Bytes of the disk that are kept for the last write of a run."""


class Database(Masking):
    """The base of what uses the file, which is made when something is written, and closed with the object.

    What is written must be without secrets: see `hide`.
    Any number of processes can use it at once, also those that fork, and so can threads.

    Args:
        path: The file; `None`: `default_path()`.

    Raises:
        JournalError: `_using` raises it if the file cannot be used. What is in the file stays as it is.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        super().__init__()
        self.path = default_path() if path is None else Path(path)
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._file: tuple[int, int] | None = None
        self._synced: bool | None = None
        self._syncing: Timer | None = None
        self._lock = RLock()  # A transaction belongs to one thread.

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            _close(connection, self._process)

    @contextmanager
    def _using(self, *, writes: bool = False, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """Use the database; if something is written, in one transaction, which is on disk at the end if `synced`."""
        try:
            if not writes:
                yield self._opened()
                return
            with self._lock:
                yield from self._transaction(synced)
        except (sqlite3.Error, OSError, json.JSONDecodeError) as error:
            raise JournalError(f"The journal {self.path} cannot be used: {_in_words(error)}") from error

    def _transaction(self, synced: bool) -> Iterator[sqlite3.Connection]:
        database = self._opened()
        if self._file != _identity(self.path):
            raise JournalError(f"The journal {self.path} was removed or replaced while it was in use.")
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

    def give_room(self) -> None:
        """Make room for a last short write, if the disk is full."""
        self._reserve.unlink(missing_ok=True)

    @property
    def _reserve(self) -> Path:
        return Path(f"{self.path}-reserve")

    def _keep_reserve(self) -> None:
        """Keep some of the disk, which `give_room` gives up."""
        with suppress(OSError), self._reserve.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, _RESERVED)

    def _sync_soon(self) -> None:
        """Have what was written without `synced` on disk in 0.05 s, for which nobody waits."""
        if self._syncing is None:
            self._syncing = Timer(_SYNC_SECONDS, self._sync)
            self._syncing.daemon = True
            with suppress(RuntimeError):  # There are too many threads.
                self._syncing.start()

    def _sync(self) -> None:
        self._syncing = None  # What is written from now on may come too late for this.
        with suppress(OSError):
            file = os.open(f"{self.path}-wal", os.O_RDONLY)
            try:
                os.fdatasync(file)
            finally:
                os.close(file)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None or self._process != os.getpid():
            self._connection, self._process, self._synced = self._open(), os.getpid(), None
            self._file, self._syncing = _identity(self.path), None
            finalize(self, _close, self._connection, self._process)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        if not self.path.parent.is_dir():
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.path.is_dir():
            raise JournalError(f"The journal {self.path} cannot be used: it is a folder; name a file in it.")
        if not self.path.exists():
            self.path.touch(mode=0o600)
        if os.access(self.path.parent, os.W_OK):
            database = _connect(self.path)
        else:
            database, copy = _connect_read_only(self.path)
            if copy is not None:
                finalize(self, shutil.rmtree, copy, ignore_errors=True)
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        database.execute("PRAGMA foreign_keys = ON")
        database.execute("PRAGMA cache_size = -16384")  # KiB: with fewer, a long run reads its pages again.
        database.execute("BEGIN")  # Another process may make the tables at this moment.
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        database.execute("COMMIT")
        if application == _APPLICATION and version == len(_SCHEMAS):
            return
        if application not in (0, _APPLICATION) or (application == 0 and tables):
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


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError):
        facts = path.stat()
        return facts.st_dev, facts.st_ino
    return None


def _connect(path: Path, options: str = "") -> sqlite3.Connection:
    address = path.absolute().as_uri() + options
    return sqlite3.connect(address, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False, uri=True)


def _connect_read_only(path: Path) -> tuple[sqlite3.Connection, Path | None]:
    """Open a database in a folder in which SQLite cannot make files; if need be a copy, in a folder of its own.

    What was written last may be in its log, which SQLite reads only if it can make files beside it, or they are there.
    Without a log, it is told that nobody changes the file.
    """
    log = Path(f"{path}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    database = _connect(path, "?mode=ro" if has_log else "?immutable=1")
    with suppress(sqlite3.OperationalError):
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version >= len(_SCHEMAS):  # An older one is brought to this version.
            return database, None
    database.close()
    folder = Path(mkdtemp(prefix="coderoom-journal-"))
    for file in [path, log] if has_log else [path]:
        shutil.copyfile(file, folder / file.name)
    return _connect(folder / path.name), folder


def default_path() -> Path:
    """The file if none is named: `CODEROOM_JOURNAL`, or `coderoom/journal.sqlite3` in the user's state folder.

    Raises:
        RequestError: There is no home folder.
    """
    named = os.environ.get(VARIABLE)
    try:
        return Path(named).expanduser() if named and named not in (OFF, REQUIRED) else state_folder() / FILE_NAME
    except RuntimeError as error:
        raise RequestError(f"There is no place for the journal: {error} Name a file by {VARIABLE}.") from error


def state_folder() -> Path:
    """The folder for what lasts from one run to the next.

    Raises:
        RuntimeError: There is no home folder.
    """
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    # The XDG specification says that relative paths are to be ignored.
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "coderoom"


def _close(connection: sqlite3.Connection, process: int) -> None:
    if process == os.getpid():  # A connection of the process that this one was forked from must stay as it is.
        connection.close()


def _in_words(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError):
        return f"{error.strerror or error}."
    if "malformed" in text or "not a database" in text or isinstance(error, json.JSONDecodeError):
        return f"{text}. The file is damaged: move it away, and a new one is made, or name another file."
    if "disk is full" in text:
        return f"{text}. Make room on its disk, or name another file."
    if "locked" in text or "locking" in text:
        return f"{text}. Another process keeps it locked, or its folder has no locks, as some network folders."
    return f"{text}."
