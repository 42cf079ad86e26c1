"""A SQLite file of solutions and replies that many processes share, and that may be damaged or locked."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import random
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from coderoom._util.text import visible

__all__ = ["ANSWER", "SOLUTION", "Database", "Name", "Rows", "Totals", "Unavailable"]

_T = TypeVar("_T")
_log = logging.getLogger("coderoom.generation")

_PATIENCE: Final = 30.0  # Waiting is cheaper than calling a model again.
_PAUSE: Final = (0.0005, 0.003)
_TRIES: Final = 3
_BESIDE: Final = ("-journal", "-wal", "-shm")
_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_ERROR,  # A table is missing.
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_NOTADB,
    }
)
# Free pages shrink the file at once, and the content of the file is not trusted.
_PRAGMAS: Final = ("auto_vacuum = FULL", "trusted_schema = OFF", "cell_size_check = ON")


class Unavailable(Exception):  # noqa: N818 (a state, not an error of the caller)
    """The file cannot be used; the message says why."""


class _Damaged(Exception):  # noqa: N818
    """The file is damaged or has another format; the message says why."""


class Database:
    """A SQLite file with a fixed schema.

    Each use is one short transaction on its own connection, so threads and processes are independent, and a killed
    process leaves nothing half done. It has a rollback journal instead of a write-ahead log, which would need shared
    memory and does not work on network file systems.

    A file that is damaged or has another version is renamed, and a new one is created. That is safe only while nobody
    uses the file, since SQLite could otherwise roll an old journal back into the new file. So every use takes a lock
    file. The lock also avoids long waits: SQLite's own busy handler can starve a waiting process for seconds.

    Args:
        path: The file. Its folder is created with it.
        application: The application id of the file.
        version: The version of the schema.
        schema: The statements that initialize an empty file.
    """

    def __init__(self, path: Path, *, application: int, version: int, schema: tuple[str, ...]) -> None:
        self._path = path
        self._mark = (application, version)
        self._schema = schema

    def do(self, work: Callable[[sqlite3.Connection], _T], *, create: bool = False) -> _T | None:
        """Run a function in a transaction, which is on disk when this returns.

        Args:
            work: The function. It may be called again if the file turns out to be damaged.
            create: Whether to create a missing file.

        Returns:
            The result of the function; `None` if there is no file.

        Raises:
            Unavailable: The file cannot be used.
        """
        try:
            for _ in range(_TRIES):
                path = self._locate(create)
                if path is None:
                    return None
                with _locked(path):
                    try:
                        return self._attempt(path, work)
                    except _Damaged as damage:
                        _set_aside(path, str(damage))
        except (OSError, RuntimeError) as error:  # Python 3.11 raises RuntimeError for a symlink loop.
            raise Unavailable(str(error)) from error
        raise Unavailable(f"{str(self._path)!r} is damaged repeatedly")

    def _locate(self, create: bool) -> Path | None:
        """Resolve the path and check that no other user can have put the file there."""
        folder = self._path.parent
        if create:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not os.path.lexists(self._path):
            return None
        path = self._path.resolve()
        for each in {folder.resolve(), path.parent}:
            _check_folder(each)
        try:
            status = path.stat()
        except FileNotFoundError:
            if self._path.is_symlink():
                raise Unavailable(f"{str(self._path)!r} is a link to {str(path)!r}, which does not exist") from None
            return path
        if not stat.S_ISREG(status.st_mode):
            raise Unavailable(f"{str(path)!r} is not a regular file")
        if status.st_uid != os.geteuid():
            raise Unavailable(f"{str(path)!r} belongs to another user ({status.st_uid})")
        return path

    def _attempt(self, path: Path, work: Callable[[sqlite3.Connection], _T]) -> _T:
        # Created here if possible, since SQLite would make it readable for others.
        with contextlib.suppress(OSError):
            os.mknod(path, stat.S_IFREG | 0o600)
        try:
            return self._transaction(path, work)
        except sqlite3.Error as error:
            if _is_damage(error, path):
                raise _Damaged(visible(str(error))) from error
            raise Unavailable(f"{str(path)!r}: {error}") from error
        except UnicodeDecodeError as error:  # SQLite's message quotes damaged bytes.
            raise _Damaged("its schema is malformed") from error

    def _transaction(self, path: Path, work: Callable[[sqlite3.Connection], _T]) -> _T:
        with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as connection:
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            # IMMEDIATE, since a reader that becomes a writer cannot wait for other writers.
            connection.execute("BEGIN IMMEDIATE")
            self._prepare(connection)
            result = work(connection)
            connection.execute("COMMIT")
        return result

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check that the file is ours, and create its tables if it is empty."""
        mark = (_number(connection, "PRAGMA application_id"), _number(connection, "PRAGMA user_version"))
        if mark == self._mark:
            return
        if mark == (0, 0) and not _number(connection, "SELECT count(*) FROM sqlite_master"):
            application, version = self._mark
            for statement in (
                *self._schema,
                f"PRAGMA application_id = {application}",
                f"PRAGMA user_version = {version}",
            ):
                connection.execute(statement)
            return
        if mark[0] == self._mark[0]:
            raise _Damaged(f"its version is {mark[1]}, but this package uses {self._mark[1]}")
        raise _Damaged("it is not a database of this package")


def _number(connection: sqlite3.Connection, query: str) -> int:
    row: tuple[int] = connection.execute(query).fetchone()
    return row[0]


def _check_folder(folder: Path) -> None:
    """Check that other users cannot put files into a folder: a planted journal could change the database."""
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise Unavailable(f"{str(folder)!r} belongs to another user ({status.st_uid})")
    if status.st_mode & stat.S_IWOTH:
        raise Unavailable(f"every user may write to {str(folder)!r}")


def _is_damage(error: sqlite3.Error, path: Path) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_READONLY:
        # If permissions allow writing, the file is read-only because of an invalid version in its header.
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return code is not None and code & 0xFF in _DAMAGE


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path.with_name(f"{path.name}.lock"), flags, 0o600)
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unavailable(f"{str(path)!r} is locked by other processes") from None
                time.sleep(random.uniform(*_PAUSE))
        try:
            yield
        finally:
            # Explicitly, since a process forked meanwhile shares the lock and keeps it after the close.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _set_aside(path: Path, why: str) -> None:
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = path.with_name(f"{path.name}.damaged-{when}")
    number = 1
    while os.path.lexists(aside):
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{when}-{number}")
    # The file itself comes last: a process killed before that must not leave a journal beside a new file.
    for end in (*_BESIDE, ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + end).rename(aside.with_name(aside.name + end))
    _log.warning("%r cannot be used: %s. It was renamed to %r, and a new file is created.", str(path), why, aside.name)


SOLUTION: Final = 0
ANSWER: Final = 1

_KIND: Final = {SOLUTION: "A solution", ANSWER: "An answer"}
_APPLICATION: Final = 0x43527353  # "CRsS"
_VERSION: Final = 1
_PER_ROW: Final = 200  # The approximate size of a row without its body.
_LARGEST: Final = 500_000_000  # Half of SQLite's limit.
_KEEP_ANSWERS: Final = 30 * 86_400.0
# Keys are bytes, since damaged text could not be read. Row ids are never reused, so that removing a damaged row cannot
# remove one that another process has put in its place.
_SCHEMA: Final = (
    "CREATE TABLE kept (id INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, key BLOB NOT NULL, "
    "request BLOB NOT NULL, number INTEGER NOT NULL, made REAL NOT NULL, used REAL NOT NULL, hits INTEGER NOT NULL, "
    "size INTEGER NOT NULL, digest BLOB NOT NULL, body BLOB NOT NULL, UNIQUE (kind, key, request, number))",
    "CREATE INDEX kept_used ON kept (used, kind, size)",
)
_SIZE: Final = "SELECT CAST(total(size) AS INTEGER) FROM kept"
_EVICT: Final = (
    "DELETE FROM kept WHERE id IN (SELECT id FROM (SELECT id, "
    "sum(size) OVER (ORDER BY id = :new DESC, used DESC, id DESC) AS held FROM kept) WHERE held > :most)"
)
_FIND: Final = "SELECT id, digest, body FROM kept WHERE kind = ? AND key = ? AND request = ? AND number = ?"
_TOTALS: Final = (
    "SELECT sum(kind = 0), sum(kind = 1), CAST(total(size) AS INTEGER), min(made), max(made), "
    "CAST(total(hits) AS INTEGER) FROM kept"
)


@dataclass(frozen=True)
class Name:
    """The name of a row.

    Attributes:
        kind: `SOLUTION` or `ANSWER`.
        key: The key of the cache.
        request: The request of a reply.
        number: The number of a reply among those to the same request, from 0.
    """

    kind: Literal[0, 1]
    key: str
    request: str = ""
    number: int = 0

    @property
    def columns(self) -> tuple[int, bytes, bytes, int]:
        """The name as values of columns."""
        return self.kind, _raw(self.key), _raw(self.request), self.number

    def digest(self, body: bytes) -> bytes:
        """The checksum of a body together with the name."""
        kind, key, request, number = self.columns
        head = f"{kind} {number} {len(key)} {len(request)} ".encode()
        return hashlib.sha256(b"".join((head, key, request, body))).digest()


@dataclass(frozen=True)
class Totals:
    """Totals over all rows."""

    solutions: int = 0
    answers: int = 0
    size: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    hits: int = 0


class Rows:
    """Named bytes in a database, with checksums: damaged bytes are never returned.

    If the database cannot be used, it behaves as if it were empty, so that paid work is not lost. Each reason is logged
    once.

    Args:
        path: The file of the database.
        most: The size limit of all rows together.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._database = Database(path, application=_APPLICATION, version=_VERSION, schema=_SCHEMA)
        self._most = most
        self._logged: set[str] = set()

    def read(self, name: Name, parse: Callable[[bytes], _T]) -> _T | None:
        """Read a row and count that as a use.

        Args:
            name: Which one.
            parse: Parses the bytes. It raises `ValueError` if they are invalid; then the row is removed.
        """
        row = self._try(lambda connection: _find(connection, name))
        if row is None:
            return None
        identifier, digest, body = row
        try:
            if not isinstance(body, bytes) or digest != name.digest(body):
                raise ValueError("its checksum is another one")
            return parse(body)
        except (ValueError, RecursionError) as error:
            why = str(error).strip().partition("\n")[0]
            _log.warning("%s in the cache is damaged and was removed (%.20r): %s", _KIND[name.kind], name.key, why)
            self._try(lambda connection: connection.execute("DELETE FROM kept WHERE id = ?", (identifier,)).rowcount)
            return None

    def write(self, name: Name, body: bytes, *, replace: bool) -> None:
        """Store bytes; they are on disk when this returns.

        Args:
            name: Their name.
            body: The bytes. They are not stored if they exceed the size limit.
            replace: Whether to replace an existing row of the same name; otherwise that row stays.
        """
        kind, key, request, number = name.columns
        size = _PER_ROW + len(key) + len(request) + len(body)
        if size > min(self._most, _LARGEST):
            _log.info("%s of %d bytes is too large for the cache.", _KIND[kind], size)
            return
        now = time.time()
        row = (kind, key, request, number, now, now, size, name.digest(body), body)
        self._try(lambda connection: self._write(connection, row, now, replace), create=True)

    def remove(self, kind: int, key: str) -> None:
        """Remove the rows with a key."""
        where = "DELETE FROM kept WHERE kind = ? AND key = ?"
        self._try(lambda connection: connection.execute(where, (kind, _raw(key))).rowcount)

    def clear(self) -> int:
        """Remove all rows; return the number of removed solutions.

        Raises:
            Unavailable: The database cannot be used.
        """
        return self._database.do(_clear) or 0

    def totals(self) -> Totals:
        """Count all rows."""
        return self._try(_totals) or Totals()

    def _write(self, connection: sqlite3.Connection, row: tuple[Any, ...], now: float, replace: bool) -> None:
        connection.execute("DELETE FROM kept WHERE kind = ? AND used < ?", (ANSWER, now - _KEEP_ANSWERS))
        done = connection.execute(
            f"INSERT OR {'REPLACE' if replace else 'IGNORE'} INTO kept "
            "(kind, key, request, number, made, used, hits, size, digest, body) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?)",
            row,
        )
        if done.rowcount and connection.execute(_SIZE).fetchone()[0] > self._most:
            connection.execute(_EVICT, {"new": done.lastrowid, "most": self._most})

    def _try(self, work: Callable[[sqlite3.Connection], _T], *, create: bool = False) -> _T | None:
        try:
            return self._database.do(work, create=create)
        except Unavailable as error:
            why = str(error)
            if why not in self._logged:
                self._logged.add(why)
                _log.warning("The cache of solutions cannot be used: %s.", why)
            return None


def _find(connection: sqlite3.Connection, name: Name) -> tuple[int, Any, Any] | None:
    row: tuple[int, Any, Any] | None = connection.execute(_FIND, name.columns).fetchone()
    if row is not None:
        connection.execute("UPDATE kept SET used = ?, hits = hits + 1 WHERE id = ?", (time.time(), row[0]))
    return row


def _clear(connection: sqlite3.Connection) -> int:
    solutions = connection.execute("SELECT count(*) FROM kept WHERE kind = ?", (SOLUTION,)).fetchone()[0]
    connection.execute("DELETE FROM kept")
    return int(solutions)


def _totals(connection: sqlite3.Connection) -> Totals:
    solutions, answers, size, oldest, newest, hits = connection.execute(_TOTALS).fetchone()
    return Totals(solutions or 0, answers or 0, size, _moment(oldest), _moment(newest), hits)


def _moment(seconds: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
