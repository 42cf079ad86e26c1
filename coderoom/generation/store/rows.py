"""The rows of the database: content with a checksum; the least recently used are evicted first."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from coderoom.generation.store.database import Database, Unavailable

__all__ = ["ANSWER", "SOLUTION", "Name", "Rows", "Totals"]

_T = TypeVar("_T")
_log = logging.getLogger("coderoom.generation")

SOLUTION: Final = 0
ANSWER: Final = 1

_KIND: Final = {SOLUTION: "A solution", ANSWER: "An answer"}
_APPLICATION: Final = 0x43527353  # "CRsS"
_VERSION: Final = 1
_PER_ROW: Final = 200  # About what a row and its place in the indexes take.
_LARGEST: Final = 500_000_000  # SQLite takes no more than twice as much.
_KEEP_ANSWERS: Final = 30 * 86_400.0
# Keys are bytes, since text that is damaged could not even be read. Numbers of rows are never used again, so whoever
# found one damaged removes that one, and not what somebody else has put in its place.
_SCHEMA: Final = (
    "CREATE TABLE kept (id INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, key BLOB NOT NULL, "
    "request BLOB NOT NULL, number INTEGER NOT NULL, made REAL NOT NULL, used REAL NOT NULL, hits INTEGER NOT NULL, "
    "size INTEGER NOT NULL, digest BLOB NOT NULL, body BLOB NOT NULL, UNIQUE (kind, key, request, number))",
    "CREATE INDEX kept_used ON kept (used, kind, size)",
)
_HELD: Final = "SELECT CAST(total(size) AS INTEGER) FROM kept"
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
    """What a row is found by.

    Attributes:
        kind: `SOLUTION` or `ANSWER`.
        key: The key of the cache.
        request: Of an answer: what was asked.
        number: Of an answer: which of those to the same request it is, counted from 0.
    """

    kind: Literal[0, 1]
    key: str
    request: str = ""
    number: int = 0

    @property
    def columns(self) -> tuple[int, bytes, bytes, int]:
        """The name as the database has it."""
        return self.kind, _raw(self.key), _raw(self.request), self.number

    def digest(self, body: bytes) -> bytes:
        """The checksum of a body, which is another one under another name."""
        kind, key, request, number = self.columns
        head = f"{kind} {number} {len(key)} {len(request)} ".encode()
        return hashlib.sha256(b"".join((head, key, request, body))).digest()


@dataclass(frozen=True)
class Totals:
    """What there is, as it was counted."""

    solutions: int = 0
    answers: int = 0
    size: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    hits: int = 0


class Rows:
    """Named bytes in a database, of which nothing that is damaged is ever given back.

    Where the database cannot be used it is as if it were empty: what a model was paid for must not be lost because of
    that. Of each reason there is one warning.

    Args:
        path: The file of the database.
        most: The most bytes that all rows may have together.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._database = Database(path, application=_APPLICATION, version=_VERSION, schema=_SCHEMA)
        self._most = most
        self._told: set[str] = set()

    def read(self, name: Name, parse: Callable[[bytes], _T]) -> _T | None:
        """Read a row, and count that as a use.

        Args:
            name: Which one.
            parse: What makes something of the bytes. It raises a `ValueError` if nothing can be made of them; then the
                row is removed.
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
        """Keep bytes; it is done when this returns.

        Args:
            name: What they are found by.
            body: The bytes. More than may be kept are not.
            replace: Whether they take the place of those of the same name; otherwise those stay.
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
        """Remove what is kept under a key."""
        where = "DELETE FROM kept WHERE kind = ? AND key = ?"
        self._try(lambda connection: connection.execute(where, (kind, _raw(key))).rowcount)

    def clear(self) -> int:
        """Remove everything; return how many solutions there were.

        Raises:
            Unavailable: The database cannot be used.
        """
        return self._database.do(_clear) or 0

    def totals(self) -> Totals:
        """Count what there is."""
        return self._try(_totals) or Totals()

    def _write(self, connection: sqlite3.Connection, row: tuple[Any, ...], now: float, replace: bool) -> None:
        connection.execute("DELETE FROM kept WHERE kind = ? AND used < ?", (ANSWER, now - _KEEP_ANSWERS))
        done = connection.execute(
            f"INSERT OR {'REPLACE' if replace else 'IGNORE'} INTO kept "
            "(kind, key, request, number, made, used, hits, size, digest, body) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?)",
            row,
        )
        if done.rowcount and connection.execute(_HELD).fetchone()[0] > self._most:
            connection.execute(_EVICT, {"new": done.lastrowid, "most": self._most})

    def _try(self, work: Callable[[sqlite3.Connection], _T], *, create: bool = False) -> _T | None:
        try:
            return self._database.do(work, create=create)
        except Unavailable as error:
            why = str(error)
            if why not in self._told:
                self._told.add(why)
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
