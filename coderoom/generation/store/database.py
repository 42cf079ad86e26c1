"""A SQLite file that many processes share, and that may be damaged or locked."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import random
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from coderoom._util.text import visible

__all__ = ["Database", "Unavailable"]

_T = TypeVar("_T")
_log = logging.getLogger("coderoom.generation")

_PATIENCE: Final = 30.0  # To ask a model again costs more than to wait.
_PAUSE: Final = (0.0005, 0.003)
_TRIES: Final = 3
_BESIDE: Final = ("-journal", "-wal", "-shm")
_DAMAGE: Final = frozenset(
    {
        sqlite3.SQLITE_ERROR,  # A table that should be there is not.
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_NOTADB,
    }
)
# What is freed goes back to the disk at once, and what the file says is doubted.
_PRAGMAS: Final = ("auto_vacuum = FULL", "trusted_schema = OFF", "cell_size_check = ON")


class Unavailable(Exception):  # noqa: N818 (a state, and no mistake of the caller)
    """The file cannot be used now; the message says why."""


class _Damaged(Exception):  # noqa: N818
    """The file is not what it should be; the message says why."""


class Database:
    """A database file of our own.

    Each use is one short transaction on a connection of its own, so that threads and processes need to know nothing of
    each other, and whoever is killed leaves nothing half done. It has a rollback journal and no write-ahead log: that
    would need memory which all users of the file share, and network file systems have none.

    A file that is damaged, or of another version, gets another name, and a new one begins. That may be done only while
    nobody uses it: the journal of somebody's transaction would otherwise be rolled back into the new file. So there is
    a lock file, for every use. It is also what keeps many that wait from missing their turn for seconds, as they would
    with SQLite's own way to wait.

    Args:
        path: The file. Its folder is made by the first use that may create it.
        application: The number that marks such files as ours.
        version: The version of the schema.
        schema: The statements that make an empty file ours.
    """

    def __init__(self, path: Path, *, application: int, version: int, schema: tuple[str, ...]) -> None:
        self._path = path
        self._mark = (application, version)
        self._schema = schema

    def do(self, work: Callable[[sqlite3.Connection], _T], *, create: bool = False) -> _T | None:
        """Do something in a transaction, which is on disk when this returns.

        Args:
            work: What is done. It may be called again if the file turns out to be damaged.
            create: Whether the file is made if it is not there.

        Returns:
            What the work returned; `None` if there is no file.

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
        except (OSError, RuntimeError) as error:  # Python 3.11 calls a circle of links a RuntimeError.
            raise Unavailable(str(error)) from error
        raise Unavailable(f"{str(self._path)!r} is damaged again and again")

    def _locate(self, create: bool) -> Path | None:
        """The file behind all links, if no stranger can have put it there."""
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
                raise Unavailable(f"{str(self._path)!r} is a link to {str(path)!r}, which is not there") from None
            return path
        if not stat.S_ISREG(status.st_mode):
            raise Unavailable(f"{str(path)!r} is no ordinary file")
        if status.st_uid != os.geteuid():
            raise Unavailable(f"{str(path)!r} belongs to another user ({status.st_uid})")
        return path

    def _attempt(self, path: Path, work: Callable[[sqlite3.Connection], _T]) -> _T:
        # Made so, since SQLite would let others read it; where that cannot be done, SQLite makes it.
        with contextlib.suppress(OSError):
            os.mknod(path, stat.S_IFREG | 0o600)
        try:
            return self._transaction(path, work)
        except sqlite3.Error as error:
            if _is_damage(error, path):
                raise _Damaged(visible(str(error))) from error
            raise Unavailable(f"{str(path)!r}: {error}") from error
        except UnicodeDecodeError as error:  # SQLite names what is damaged, in the bytes that it has become.
            raise _Damaged("its schema is malformed") from error

    def _transaction(self, path: Path, work: Callable[[sqlite3.Connection], _T]) -> _T:
        with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as connection:
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            # From the start it is one that may write: a reader that turned into a writer could not wait for others.
            connection.execute("BEGIN IMMEDIATE")
            self._prepare(connection)
            result = work(connection)
            connection.execute("COMMIT")
        return result

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """See to it that the file is ours, and has its tables."""
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
            raise _Damaged(f"its version is {mark[1]}, and this package knows {self._mark[1]}")
        raise _Damaged("it is not a database of this package")


def _number(connection: sqlite3.Connection, query: str) -> int:
    row: tuple[int] = connection.execute(query).fetchone()
    return row[0]


def _check_folder(folder: Path) -> None:
    """See to it that not everybody can put files into a folder: a planted journal would change the database."""
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise Unavailable(f"{str(folder)!r} belongs to another user ({status.st_uid})")
    if status.st_mode & stat.S_IWOTH:
        raise Unavailable(f"everybody may write to {str(folder)!r}")


def _is_damage(error: sqlite3.Error, path: Path) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_READONLY:
        # If nothing else forbids to write, the file does so itself, by a version in its head that is none.
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
                    raise Unavailable(f"{str(path)!r} is kept busy by other processes") from None
                time.sleep(random.uniform(*_PAUSE))
        try:
            yield
        finally:
            # Said, and not left to closing it: a process that was forked meanwhile has the same lock.
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
    # The file itself goes last. Whoever is killed before that leaves a damaged file, and no journal of it that would be
    # taken for the new one's.
    for end in (*_BESIDE, ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + end).rename(aside.with_name(aside.name + end))
    _log.warning("%r cannot be used: %s. It is now called %r, and a new one begins.", str(path), why, aside.name)
